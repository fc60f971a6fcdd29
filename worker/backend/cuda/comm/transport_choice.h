// How the ranks of a generation reach each other, by the devices they hold: NCCL where each has its
// own, LocalComm where ranks of one host share one (NCCL refuses that). Every rank says what it has
// to rank 0 by the coordinator, rank 0 chooses and makes the id that NCCL opens with, all hear it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace weft {

// DeviceFacts is what one rank says. It crosses the wire as it is: all ranks run the same build.
struct DeviceFacts {
  char host[48] = {};       // the same for what runs on one kernel
  char host_name[48] = {};  // for messages: containers on one host have several
  int nccl_version = 0;     // 22809: 2.28.9; 0: none
  // PCI bus id, by which NCCL (to 2.29) tells devices apart: parts of one (MIG), whose UUIDs
  // differ, are one device to it.
  char device[40] = {};
  // Whether the rank has it only because it sees no other (Queue::is_of_only_device).
  bool is_the_only_one = false;
  char nccl_problem[256] = {};  // why NCCL cannot be used there; empty: it can
};

struct TransportChoice {
  BackendStatus status;
  TransportKind kind = TransportKind::kLocal;
  char why[112] = {};
};

// Gathers what this rank has to say. Fails if there is no device.
BackendStatus OwnFacts(DeviceFacts* facts);

// Pure. FailedPrecondition if nothing reaches all of `ranks`, or not what is asked for; if that is
// NCCL, also where two of them have different versions of it, whose messages need not fit together.
TransportChoice ChooseTransport(TransportKind asked, const std::vector<DeviceFacts>& ranks);

// Collective. Without options.relay ranks cannot agree, and kAuto is LocalComm.
BackendStatus OpenCudaComm(const CommOptions& options, const Queue& queue,
                           std::unique_ptr<Comm>* comm);

}  // namespace weft
