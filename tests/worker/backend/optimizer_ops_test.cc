// Updates of parameters against their definitions in double; AdamW, Lion and SGD are in
// device_test.cc.
#include <cmath>

#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"

namespace weft {
namespace {

using OptimizerOps = DeviceTest;

TEST_P(OptimizerOps, SgdMomentumFollowsPyTorchOverFiveSteps) {
  constexpr int64_t kCount = 1003;
  const MomentumParameters cases[] = {
      {.lr = 0.1, .momentum = 0.9},
      {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .gradient_scale = 0.25},
      {.lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.05},
      {.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05, .gradient_scale = 0.5},
  };
  for (MomentumParameters sgd : cases) {
    const std::vector<float> start = Normal(kCount, 99);
    const View param = Upload(1, kCount, start);
    const View momentum = Upload(1, kCount, Normal(kCount, 98));  // of no meaning to the first
    Doubles p = ToDoubles(start);
    Doubles buffer(kCount);
    for (uint32_t step = 1; step <= 5; ++step) {
      sgd.first = step == 1;
      const std::vector<float> gradient = Normal(kCount, step);
      device().SgdMomentum(sgd, Upload(1, kCount, gradient), param, momentum);
      for (size_t i = 0; i < p.size(); ++i) {
        const double g =
            sgd.gradient_scale * static_cast<double>(gradient[i]) + sgd.weight_decay * p[i];
        buffer[i] = step == 1 ? g : sgd.momentum * buffer[i] + (1 - sgd.dampening) * g;
        p[i] -= sgd.lr * (sgd.nesterov ? g + sgd.momentum * buffer[i] : buffer[i]);
      }
    }
    EXPECT_LT(RelativeError(Download(param), p), 1e-6);
    EXPECT_LT(RelativeError(Download(momentum), buffer), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OptimizerOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace weft
