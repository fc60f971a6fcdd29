#include "plan/spec/precision.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {

int ActivationBytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : 2;
}

Words WordsOf(Precision) {
  static constexpr absl::string_view kWords[] = {"fp32", "bf16", "fp16", "fp8"};
  return kWords;
}

Words WordsOf(ReduceDtype) {
  static constexpr absl::string_view kWords[] = {"fp32", "bf16"};
  return kWords;
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  return ParseWord<Precision>(name, "a precision");
}

Words WordsOf(FrozenFormat) {
  static constexpr absl::string_view kWords[] = {"none", "int8", "nf4", "nf4_double"};
  return kWords;
}

}  // namespace weft
