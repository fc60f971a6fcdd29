#include "tests/fuzz/file_trial.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

namespace weft {
namespace {

constexpr int64_t kMostMemoryKib = int64_t{1} << 20;

uint64_t NumberFrom(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 1 : static_cast<uint64_t>(std::atoll(text));
}

}  // namespace

uint64_t FileTrials(uint64_t cases) {
  return cases * NumberFrom("WEFT_FUZZ_FACTOR");
}

Random RandomOfTrial(uint64_t number) {
  return Random(NumberFrom("WEFT_FUZZ_SEED") * 1'000'003 + number);
}

std::string DamagedOnDisk(std::string bytes, Random& random) {
  for (size_t i = 0; i <= random.Below(4) && !bytes.empty(); ++i) {
    const size_t at = random.Once(2) ? random.Below(bytes.size())
                                     : random.Below(std::min<size_t>(bytes.size(), 64));
    switch (random.Below(4)) {
      case 0:
        bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        bytes.erase(at, 1 + random.Below(8));
        break;
      case 2:
        bytes.insert(at, bytes.substr(random.Below(bytes.size()), 1 + random.Below(64)));
        break;
      default:
        if (random.Once(2)) bytes.resize(at);
    }
  }
  return bytes;
}

void ExpectBothEndsAndBoundedMemory(uint64_t num_good, uint64_t trials) {
  EXPECT_GT(num_good, trials / 40);
  EXPECT_LT(num_good, trials * 39 / 40);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, kMostMemoryKib);
}

}  // namespace weft
