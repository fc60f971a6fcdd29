#include "plan/spec/job_spec.h"

namespace weft {

Words WordsOf(ResumeMode) {
  static constexpr absl::string_view kWords[] = {"auto", "none"};
  return kWords;
}

Words WordsOf(Scheduler) {
  static constexpr absl::string_view kWords[] = {"none", "slurm", "kubernetes"};
  return kWords;
}

Words WordsOf(TokenFormat) {
  static constexpr absl::string_view kWords[] = {"bytes", "llmc", "nanogpt", "megatron"};
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

const PassedOn* PassedOn::Find(absl::string_view name) const {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &parts[i];
  }
  return nullptr;
}

}  // namespace weft
