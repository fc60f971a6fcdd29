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

// By name, which habits of a single run may follow that the profile does not have by itself:
// "megatron,states=bf16,loss=fused". InvalidArgument lists the names, or the habits, there are.
absl::StatusOr<EngineProfile> EngineProfileNamed(absl::string_view name);
std::vector<std::string> EngineProfileNames();
std::vector<std::string> HabitNames();  // "states=bf16"

}  // namespace weft
