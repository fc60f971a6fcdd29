// The habits of an engine: what it keeps, fuses and overlaps. weft's own, and those of others,
// whose published runs the estimates are held against. Pure values; the profiles are
// engine_profile.cc's.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/engine/memory_habits.h"
#include "plan/engine/time_habits.h"

namespace weft {

struct EngineProfile {
  std::string name = "weft";  // one of EngineProfileNames()
  MemoryHabits memory;
  TimeHabits time;
};

EngineProfile WeftProfile();

// By name; InvalidArgument lists the names there are.
absl::StatusOr<EngineProfile> EngineProfileNamed(absl::string_view name);
std::vector<std::string> EngineProfileNames();

}  // namespace weft
