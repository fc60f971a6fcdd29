// A JobEntry holds what is told of a job beside its place in the fleet.
#pragma once
#include <cstdint>

#include "proto/driver.pb.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

struct JobEntry {
  v1::SubmitRequest request;
  int64_t submitted_ms = 0;     // Unix time
  int64_t revision = 0;         // of the last thing that happened to it
  proto::JobStatus status;      // as its newest Driver has told it; no phase: it never ran
  int64_t allocation = 0;       // of that Driver
  int64_t driver_revision = 0;  // up to which that Driver was heard
};

}  // namespace weft
