#include "plan/spec/numerics.h"

#include "plan/errors.h"

namespace weft {

int64_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kFp32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kBf16:
    case ElementType::kFp16:
      return 2;
    case ElementType::kUint8:
      return 1;
    case ElementType::kFp64:
      return 8;
  }
  CHECK(false);
  return 0;
}

ElementType Numerics::compute() const {
  switch (precision) {
    case Precision::kFp32:
      return ElementType::kFp32;
    case Precision::kBf16:
    case Precision::kFp8:  // of linear layers alone
      return ElementType::kBf16;
    case Precision::kFp16:
      return ElementType::kFp16;
  }
  CHECK(false);
  return ElementType::kFp32;
}

}  // namespace weft
