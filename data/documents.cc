#include "data/documents.h"

#include <cstddef>

#include "plan/errors.h"

namespace weft {

void FindDocumentStarts(absl::Span<const int32_t> tokens, std::optional<int64_t> bos,
                        std::optional<int64_t> eos, absl::Span<int32_t> starts) {
  CHECK(tokens.size() == starts.size());
  int32_t start = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool starts_here = (bos && tokens[i] == *bos) || (eos && i > 0 && tokens[i - 1] == *eos);
    if (starts_here) start = static_cast<int32_t>(i);
    starts[i] = start;
  }
}

}  // namespace weft
