// What a probe measures within its time; the measuring itself is tested by `weft calibrate`.
#include "worker/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "worker/probe_rates.h"

namespace weft {
namespace {

double Flops(const MatmulPoint& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

TEST(ShapesWithin, GrowWithTheSpeedAndTheTimeFromTheSmallest) {
  std::vector<MatmulPoint> before;
  for (const double flops_per_s : {1e6, 1e9, 50e9, 150e9, 10e12, 1e15}) {
    const std::vector<MatmulPoint> shapes = ShapesWithin(flops_per_s, 15);
    ASSERT_GE(shapes.size(), before.size());
    // A prefix: what a slow device measures, a fast one measures too.
    EXPECT_TRUE(std::equal(before.begin(), before.end(), shapes.begin()));
    before = shapes;
  }
  EXPECT_EQ(before.size(), 80);
  EXPECT_GE(ShapesWithin(50e9, 15).size(), 40);
}

TEST(ShapesWithin, FitTheirTime) {
  for (const double flops_per_s : {1e9, 50e9, 150e9}) {
    for (const double seconds : {0.5, 5.0, 20.0}) {
      double sum_s = 0;
      for (const MatmulPoint& shape : ShapesWithin(flops_per_s, seconds)) {
        sum_s += 3 * Flops(shape) / flops_per_s;
      }
      EXPECT_LE(sum_s, seconds);
    }
  }
}

TEST(ShapesWithin, NamesEachShapeOnce) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen;
  for (const MatmulPoint& shape : ShapesWithin(1e15, 60)) {
    EXPECT_TRUE(seen.emplace(shape.m, shape.n, shape.k).second);
  }
}

TEST(Probe, RefusesUnknownBackendsAndKindsByName) {
  ProbeOptions options;
  options.backend = "tpu";
  EXPECT_EQ(Probe(options).message(), "--backend: \"tpu\" is unknown; use cpu or cuda");
  EXPECT_EQ(ParseProbeKind("speed").status().message(),
            "--probe: \"speed\" is unknown; use devices, rates or links");
  EXPECT_EQ(ProbeExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ProbeExitCode(absl::InvalidArgumentError("x")), 2);
  EXPECT_EQ(ProbeExitCode(absl::UnimplementedError("x")), 2);
  EXPECT_EQ(ProbeExitCode(absl::UnavailableError("x")), 1);
}

}  // namespace
}  // namespace weft
