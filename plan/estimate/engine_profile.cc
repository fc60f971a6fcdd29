#include "plan/estimate/engine_profile.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

EngineProfile MegatronProfile() {
  EngineProfile profile;
  profile.name = "megatron";
  return profile;
}

EngineProfile PytorchEagerProfile() {
  EngineProfile profile;
  profile.name = "pytorch-eager";
  return profile;
}

std::vector<EngineProfile> Profiles() {
  return {WeftProfile(), MegatronProfile(), PytorchEagerProfile()};
}

}  // namespace

EngineProfile WeftProfile() {
  return EngineProfile();
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
