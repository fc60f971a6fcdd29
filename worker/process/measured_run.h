// A new run whose job asks for it (comm.measure_seconds) measures the links among its ranks before
// it trains, over the very ways by which it will train, and leaves them in its folder.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "plan/spec/job_spec.h"
#include "process/progress_page.h"
#include "worker/backend/comm.h"
#include "worker/backend/device.h"

namespace weft {

// Rank 0 writes this into the run's folder: {"backend": "cpu", "ranks", "nodes", "collectives":
// [...]} (worker/links/link_probe.h). `weft calibrate --links` reads it.
inline constexpr char kLinksFile[] = "links.json";

// REQUIRES: all ranks call it, before anything else moves among them. Where they cannot be
// measured, or the file cannot be written, the log says so and OK is returned; an error is the
// Comm's or the device's.
absl::Status MeasureLinksOfRun(const JobSpec& job, const std::string& run_folder, Device& device,
                               Comm& comm, ProgressWriter& progress);

}  // namespace weft
