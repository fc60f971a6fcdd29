#include "plan/spec/lora.h"

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {
namespace {

// PEFT takes a name for every module that is called so: gpt2 has a c_proj in attention and one in
// the feed-forward.
struct ModuleRow {
  absl::string_view name;
  LoraTargets targets;
};
constexpr ModuleRow kModules[] = {
    {"q_proj", {.q = true}},       {"k_proj", {.k = true}},
    {"v_proj", {.v = true}},       {"o_proj", {.o = true}},
    {"gate_proj", {.gate = true}}, {"up_proj", {.up = true}},
    {"down_proj", {.down = true}}, {"c_attn", {.qkv = true}},
    {"c_fc", {.up = true}},        {"c_proj", {.o = true, .down = true}},
};

}  // namespace

LoraTargets TargetsOf(const LoraSpec& lora) {
  LoraTargets all;
  for (const ModuleRow& row : kModules) {
    const bool named = std::find(lora.target_modules.begin(), lora.target_modules.end(),
                                 std::string(row.name)) != lora.target_modules.end();
    if (!named) continue;
    for (bool LoraTargets::*module :
         {&LoraTargets::q, &LoraTargets::k, &LoraTargets::v, &LoraTargets::qkv, &LoraTargets::o,
          &LoraTargets::gate, &LoraTargets::up, &LoraTargets::down}) {
      all.*module |= row.targets.*module;
    }
  }
  return all;
}

}  // namespace weft
