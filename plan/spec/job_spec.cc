#include "plan/spec/job_spec.h"

namespace weft {

LoraTargets TargetsOf(const LoraSpec& lora) {
  LoraTargets targets;
  for (const std::string& module : lora.target_modules) {
    const bool fused = module == "c_attn";  // gpt2's q, k and v in one
    targets.attention_qv |= fused || module == "q_proj" || module == "v_proj";
    targets.attention_ko |= fused || module == "k_proj" || module == "o_proj";
    targets.mlp |= module == "gate_proj" || module == "up_proj" || module == "down_proj" ||
                   module == "c_fc" || module == "c_proj";
  }
  return targets;
}

Words WordsOf(ResumeMode) {
  static constexpr absl::string_view kWords[] = {"auto", "none"};
  return kWords;
}

Words WordsOf(Scheduler) {
  static constexpr absl::string_view kWords[] = {"none", "slurm", "kubernetes"};
  return kWords;
}

Words WordsOf(TokenFormat) {
  static constexpr absl::string_view kWords[] = {"bytes", "llmc", "nanogpt"};
  return kWords;
}

Words WordsOf(TokenDtype) {
  static constexpr absl::string_view kWords[] = {"uint16", "uint32"};
  return kWords;
}

Words WordsOf(LrSchedule) {
  static constexpr absl::string_view kWords[] = {"constant", "linear", "cosine"};
  return kWords;
}

absl::StatusOr<TokenFormat> ParseTokenFormat(absl::string_view name) {
  return ParseWord<TokenFormat>(name, "a token format that weft reads");
}

absl::StatusOr<TokenDtype> ParseTokenDtype(absl::string_view name) {
  return ParseWord<TokenDtype>(name, "a type of token ids that weft reads");
}

}  // namespace weft
