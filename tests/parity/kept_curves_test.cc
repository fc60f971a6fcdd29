// A kept curve is the trained one, bit for bit, or it is trained again: a damaged file is no curve.
#include "tests/parity/kept_curves.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

Curve AnyCurve() {
  Curve curve;
  curve.losses = {5.25, 0x1.000001p+1};
  curve.grad_norms = {1.5, 0x1.8p-60};
  curve.loss_hex = {"0x1.5p+2", "0x1.000001p+1"};
  curve.shard_hashes = {"00ff", "ff00"};
  curve.gradients = {{"embed.tokens.weight", {1, -2, float{0x1.000002p-3}}}, {"empty", {}}};
  return curve;
}

TEST(KeptCurve, IsReadAsItWasWritten) {
  const auto read = ReadCurve(CurveText(AnyCurve()));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->losses, AnyCurve().losses);
  EXPECT_EQ(read->grad_norms, AnyCurve().grad_norms);
  EXPECT_EQ(read->loss_hex, AnyCurve().loss_hex);
  EXPECT_EQ(read->shard_hashes, AnyCurve().shard_hashes);
  EXPECT_EQ(read->gradients, AnyCurve().gradients);
}

TEST(KeptCurve, IsNoneWhereOneByteIsWrongOrMissing) {
  const std::string text = CurveText(AnyCurve());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string wrong = text;
    wrong[i] = static_cast<char>(wrong[i] ^ 1);
    EXPECT_FALSE(ReadCurve(wrong).has_value()) << "byte " << i;
    EXPECT_FALSE(ReadCurve(text.substr(0, i)).has_value()) << i << " bytes";
  }
}

TEST(KeptCurve, IsTheOneThatATrainingGives) {
  ParityJob parity = {.job = EnglishJob(), .layout = {.micro_batch_size = 8}};
  parity.job.training.steps = 2;
  parity.job.training.seed = 7;  // nobody else's
  const auto kept = KeptCurve(parity);
  ASSERT_TRUE(kept.ok()) << kept.status();
  const auto fresh = FreshCurve(parity);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  const auto again = KeptCurve(parity);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(CurveText(*kept), CurveText(*fresh));
  EXPECT_EQ(CurveText(*again), CurveText(*fresh));
}

}  // namespace
}  // namespace weft
