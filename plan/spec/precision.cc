#include "plan/spec/precision.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {

int ActivationBytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : 2;
}

absl::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
    case Precision::kFp8:
      return "fp8";
  }
  CHECK(false);
  return "";
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    if (name == PrecisionName(precision)) return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not a precision; use fp32, bf16, fp16 or fp8"));
}

absl::string_view FrozenFormatName(FrozenFormat format) {
  switch (format) {
    case FrozenFormat::kBf16:
      return "none";
    case FrozenFormat::kInt8:
      return "int8";
    case FrozenFormat::kNf4:
      return "nf4";
    case FrozenFormat::kNf4Double:
      return "nf4_double";
  }
  CHECK(false);
  return "";
}

absl::StatusOr<FrozenFormat> ParseFrozenFormat(absl::string_view name) {
  for (const FrozenFormat format :
       {FrozenFormat::kBf16, FrozenFormat::kInt8, FrozenFormat::kNf4, FrozenFormat::kNf4Double}) {
    if (name == FrozenFormatName(format)) return format;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", name, "\" is not a format of a frozen base; use none (bf16), int8, nf4 or nf4_double"));
}

}  // namespace weft
