#include "plan/engine/engine_profile.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/engine/constants.h"

namespace weft {
namespace {

EngineProfile MegatronProfile() {
  EngineProfile profile;
  profile.name = "megatron";
  profile.memory = MegatronMemory();
  profile.time = FittedTimeConstants().megatron;
  return profile;
}

// Megatron-LM of 2021-22: eager attention, nothing overlapped.
EngineProfile MegatronLmProfile() {
  EngineProfile profile;
  profile.name = "megatron-lm";
  profile.memory = MegatronLmMemory();
  profile.time = MegatronLmHabits(FittedTimeConstants());
  return profile;
}

// The same model code under DeepSpeed's pipeline engine.
EngineProfile MegatronDeepspeedProfile() {
  EngineProfile profile = MegatronProfile();
  profile.name = "megatron-deepspeed";
  profile.memory = MegatronDeepspeedMemory();
  profile.time = FittedTimeConstants().megatron_deepspeed;
  return profile;
}

EngineProfile PytorchFsdpProfile() {
  EngineProfile profile;
  profile.name = "pytorch-fsdp";
  profile.memory = PytorchEagerMemory();
  profile.time = FittedTimeConstants().pytorch_fsdp;
  return profile;
}

EngineProfile PytorchEagerProfile() {
  EngineProfile profile;
  profile.name = "pytorch-eager";
  profile.memory = PytorchEagerMemory();
  profile.time = FittedTimeConstants().pytorch_eager;
  return profile;
}

std::vector<EngineProfile> Profiles() {
  return {WeftProfile(),        MegatronProfile(),
          MegatronLmProfile(),  MegatronDeepspeedProfile(),
          PytorchFsdpProfile(), PytorchEagerProfile()};
}

}  // namespace

EngineProfile WeftProfile() {
  EngineProfile profile;
  profile.memory = WeftMemory();
  profile.time = FittedTimeConstants().weft;
  return profile;
}

absl::StatusOr<EngineProfile> EngineProfileNamed(absl::string_view name) {
  for (EngineProfile& profile : Profiles()) {
    if (profile.name == name) return std::move(profile);
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is not an engine profile; use ",
                                                 absl::StrJoin(EngineProfileNames(), ", ")));
}

std::vector<std::string> EngineProfileNames() {
  std::vector<std::string> names;
  for (const EngineProfile& profile : Profiles()) names.push_back(profile.name);
  return names;
}

}  // namespace weft
