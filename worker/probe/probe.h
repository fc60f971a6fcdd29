// Probe: what `weft calibrate` and `weft doctor` ask a worker to find out about this machine. It
// measures through the interfaces that training uses, so any backend is measured alike, and prints
// one JSON object on stdout. Nothing is trained, no coordinator is needed.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

enum class ProbeKind {
  kDevices,  // the backend's devices, by name and memory
  kRates,    // of one device: matrix products, streaming, attention, cost of an operation
  kProduct,  // one short product of each device: the slowest device's rate
  kLinks,    // collectives among all ranks that were started together; rank 0 prints
};

struct ProbeOptions {
  ProbeKind kind = ProbeKind::kDevices;
  std::string backend = "cpu";
  std::string backend_folder;  // empty: beside this executable
  int threads = 1;             // CPU: BLAS threads
  double seconds = 15;         // about how long to measure
  std::string relay_folder;    // kLinks without MPI: of this group alone (folder_relay.h)
};

// {"backend": "cpu", "versions": "...", "devices": [{"name": "...", "memory_bytes": 1,
// "compute_units": 0}], "notes": ["..."]}, the notes of SettleLibraryEnvironment, and, for kRates,
// "rates": {"matmuls": [{"m", "n", "k", "precision", "flops_per_s"}], "stream_bytes_per_s",
// "operation_bytes_per_s", "attention_flops_per_s", "attention_precision", "op_overhead_s"} and
// "library_bytes", on CPUs "shared_bytes"; for kProduct "product_flops_per_s"; for kLinks "ranks",
// "collectives": [{"collective", "ranks", "bytes", "seconds"}] and the same. InvalidArgument for an
// unknown backend; what a backend cannot do comes back in its own words.
absl::Status Probe(const ProbeOptions& options);

// Says on stderr what went wrong. 0; 2 for a wrong call or what this machine's
// backend does not offer; else 1.
int ProbeExitCode(const absl::Status& status);

// "devices", "rates", "product" or "links".
absl::StatusOr<ProbeKind> ParseProbeKind(absl::string_view name);

}  // namespace weft
