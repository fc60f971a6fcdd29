// Messages at random: well formed, of any kind, with numbers and texts that mean something here or
// nothing anywhere. Pure.
#pragma once
#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/mutation.h"

namespace weft {

// Values that a field of the type may have by chance, beside those that are extreme.
struct LikelyValues {
  std::vector<int64_t> numbers = {};
  std::vector<std::string> texts = {};
};

// Sets about half of the fields, those of messages within it too, four deep at most.
void FillAtRandom(google::protobuf::Message& message, const LikelyValues& likely, Random& random);

}  // namespace weft
