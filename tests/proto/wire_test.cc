// proto/wire: what goes out comes back, field by field, and what makes no sense is refused.
#include "proto/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/spec/layout_properties.h"
#include "proto/job_text.h"
#include "tests/plan/keys/full_job.h"

namespace weft {
namespace {

using testing::HasSubstr;

TEST(JobText, CarriesEveryKey) {
  const absl::StatusOr<JobSpec> back = ParseJobText(JobText(FullJob()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == FullJob());
}

TEST(JobText, CarriesTheLargestSeed) {
  JobSpec job = FullJob();
  job.training.seed = std::numeric_limits<uint64_t>::max();
  const absl::StatusOr<JobSpec> back = ParseJobText(JobText(job));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == job);
}

TEST(JobText, IsJsonWithAVersion) {
  auto json = nlohmann::json::parse(JobText(FullJob()));
  EXPECT_EQ(json.at("format_version"), 1);
  EXPECT_EQ(json.at("training").at("seed"), 9007199254740993);
  EXPECT_EQ(json.at("cluster").at("env").at("A"), "1");
  EXPECT_EQ(json.at("parallelism").at("pp_schedule"), "gpipe");
  json["training"].erase("max_consecutive_skipped_steps");  // of a weft that had no such key
  const absl::StatusOr<JobSpec> older = ParseJobText(json.dump());
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->training.max_consecutive_skipped_steps, 5);
}

TEST(JobText, RefusesWhatItDoesNotKnow) {
  const auto refusal = [](const std::string& text) {
    const absl::Status status = ParseJobText(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(""), HasSubstr("job: is missing, or no JSON object"));
  EXPECT_THAT(refusal("[]"), HasSubstr("job: is missing, or no JSON object"));
  EXPECT_THAT(refusal("{\"job\": \x01}"), HasSubstr("job: line 1, byte 9: not JSON"));
  EXPECT_THAT(refusal("{\"job\": " + std::string(400'000, '[')),
              HasSubstr("job: line 1, byte 72: nested deeper than 64"));
  EXPECT_THAT(refusal(std::string(9'000'000, ' ')),
              HasSubstr("job: holds 9000000 bytes, at most 8388608 are read"));
  EXPECT_THAT(refusal("{}"), HasSubstr("job: format_version is not 1"));
  auto json = nlohmann::json::parse(JobText(FullJob()));
  json["format_version"] = 2;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("job: format_version is not 1"));
  json["format_version"] = 1;
  json["training"]["flux_capacity"] = 3;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("job: training.flux_capacity: unknown key"));
  json["training"].erase("flux_capacity");
  json.erase("model");
  EXPECT_THAT(refusal(json.dump()), HasSubstr("job: model: missing"));
}

TEST(Wire, CarriesEveryFieldOfALayout) {
  Layout layout{2, 3, 4, 5, 1, ScheduleKind::kZeroBubbleH1, 6, 7, Recompute::kFull};
  layout.virtual_stages = 8;
  layout.ep = 9;
  layout.etp = 12;
  layout.zero_hpz_partition_size = 10;
  layout.sequence_parallel = true;
  layout.offload_optimizer = OffloadDevice::kCpu;
  layout.head_chunk_tokens = 11;
  layout.layers_per_stage = {1, 2, 3};
  layout.recompute_per_stage = {Recompute::kSelective, Recompute::kNone, Recompute::kFull};
  EXPECT_EQ(ToProto(layout).properties_size(), int{kNumLayoutProperties});
  const absl::StatusOr<Layout> back = FromProto(ToProto(layout));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == layout);
}

TEST(Wire, RefusesALayoutThatIsNone) {
  const Layout layout{1, 1, 1, 1, 0, ScheduleKind::kGpipe, 1, 1, Recompute::kNone};
  for (const auto& spoil : std::vector<std::function<void(proto::Layout&)>>{
           [](proto::Layout& m) { (*m.mutable_properties())["pp_schedule"] = "zb"; },
           [](proto::Layout& m) { (*m.mutable_properties())["recompute"] = "some"; },
           [](proto::Layout& m) { (*m.mutable_properties())["dp"] = "0"; },
           [](proto::Layout& m) { (*m.mutable_properties())["warp"] = "9"; },
           [](proto::Layout& m) { m.clear_properties(); },
           [](proto::Layout& m) { (*m.mutable_properties())["tp"] = "-1"; }}) {
    proto::Layout message = ToProto(layout);
    spoil(message);
    EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kInvalidArgument)
        << message.ShortDebugString();
  }
}

}  // namespace
}  // namespace weft
