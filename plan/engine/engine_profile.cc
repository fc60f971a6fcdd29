#include "plan/engine/engine_profile.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
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

// Habits of single published runs.
struct HabitRow {
  absl::string_view name;
  void (*set)(MemoryHabits& habits);
};
constexpr HabitRow kHabits[] = {
    // Both moments of AdamW in bf16 (arXiv:2412.19437, 3.3.2).
    {"states=bf16", [](MemoryHabits& habits) { habits.moment_bytes = 2; }},
    // Gradients are accumulated in 16 bits (grad_reduce_in_fp32=False of Megatron-Bridge's
    // recipes).
    {"gradients=bf16", [](MemoryHabits& habits) { habits.gradient_bytes = 2; }},
    // The loss makes logits, softmax and gradient in one kernel (cross_entropy_loss_fusion).
    {"loss=fused", [](MemoryHabits& habits) { habits.fused_loss = true; }},
    // `selective` makes outputs of norms and of the feed-forward's activation again, not scores
    // alone (arXiv:2412.19437, 3.2.3; recompute_modules of Megatron-Core).
    {"selective=norms", [](MemoryHabits& habits) { habits.selective_drops_wide = true; }},
    // And what latents are made into: what the products for that take is not priced.
    {"selective=latents",
     [](MemoryHabits& habits) { habits.selective_drops_wide = habits.selective_drops_up = true; }},
};

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
  const std::vector<absl::string_view> words = absl::StrSplit(name, ',');
  std::vector<EngineProfile> profiles = Profiles();
  const auto found = std::find_if(profiles.begin(), profiles.end(), [&](const auto& profile) {
    return profile.name == words.front();
  });
  if (found == profiles.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", words.front(),
                                                   "\" is not an engine profile; use ",
                                                   absl::StrJoin(EngineProfileNames(), ", ")));
  }
  if (found->memory.arena && words.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", words[1], "\" is no habit of ", found->name,
                     ", whose workers allocate what they list; leave it out, or name another "
                     "engine"));
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const auto* const row = std::find_if(std::begin(kHabits), std::end(kHabits),
                                         [&](const HabitRow& r) { return r.name == words[i]; });
    if (row == std::end(kHabits)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", words[i], "\" is not a habit; use ",
                                                     absl::StrJoin(HabitNames(), ", ")));
    }
    row->set(found->memory);
  }
  return std::move(*found);
}

std::vector<std::string> HabitNames() {
  std::vector<std::string> names;
  for (const HabitRow& row : kHabits) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> EngineProfileNames() {
  std::vector<std::string> names;
  for (const EngineProfile& profile : Profiles()) names.push_back(profile.name);
  return names;
}

}  // namespace weft
