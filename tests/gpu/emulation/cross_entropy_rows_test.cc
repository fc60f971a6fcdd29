// Rows of logits that are longer than what a block may hold of them in shared memory, as those of a
// large vocabulary are, and several of them one after the other.
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/emulation/threads.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"

namespace weft {
namespace {

class CrossEntropyRows : public DeviceTest {
 protected:
  void TearDown() override {
    emulation::shared_bytes_of_a_block = bytes_;
    DeviceTest::TearDown();
  }
  const int bytes_ = emulation::shared_bytes_of_a_block;
};
INSTANTIATE_TEST_SUITE_P(Backends, CrossEntropyRows, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

// However much a device holds of a row, it computes the same.
TEST_P(CrossEntropyRows, GiveTheSameBitsHoweverMuchOfThemIsHeld) {
  constexpr int64_t kRows = 270;  // some blocks have a second one
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const int64_t cols = dtype == DType::kF32 ? 2503 : 4999;
    std::vector<int32_t> targets(kRows);
    for (int64_t i = 0; i < kRows; ++i)
      targets[static_cast<size_t>(i)] = static_cast<int32_t>(i * 31 % cols);
    const View ids = UploadIds(targets);
    const View given = As(dtype, Upload(kRows, cols, Normal(kRows * cols, 1, 3)));
    std::vector<std::vector<float>> all[2];
    for (const bool held : {true, false}) {
      emulation::shared_bytes_of_a_block = held ? bytes_ : 11 << 10;
      const View logits = As(dtype, given);
      const View statistics[3] = {Fresh(kRows, 1), Fresh(kRows, 1), Fresh(kRows, 1)};
      device().CrossEntropy(ids, {.scale = 0.5}, logits, statistics[0], statistics[1],
                            statistics[2]);
      all[held ? 0 : 1].push_back(Download(logits));
      for (const View& x : statistics) all[held ? 0 : 1].push_back(Download(x));
    }
    EXPECT_TRUE(all[0] == all[1]) << static_cast<int>(dtype);
  }
}

}  // namespace
}  // namespace weft
