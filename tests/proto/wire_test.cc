// proto/wire: what goes out comes back, field by field, and what makes no sense is refused.
#include "proto/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/job_text.h"
#include "tests/plan/keys/full_job.h"

namespace weft {
namespace {

using testing::HasSubstr;

// Paths of the fields of `message`, submessages included, that are not set.
void UnsetFields(const google::protobuf::Message& message, const std::string& path,
                 std::vector<std::string>& unset) {
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* field = message.GetDescriptor()->field(i);
    const std::string name = path + field->name();
    const bool set = field->is_repeated() ? reflection->FieldSize(message, field) > 0
                                          : reflection->HasField(message, field);
    if (!set) {
      unset.push_back(name);
    } else if (!field->is_repeated() &&
               field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      UnsetFields(reflection->GetMessage(message, field), name + ".", unset);
    }
  }
}

TEST(JobText, CarriesEveryKey) {
  const absl::StatusOr<JobSpec> back = ParseJobText(JobText(FullJob()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == FullJob());
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
  layout.zero_group = 10;
  layout.sequence_parallel = layout.offload_optimizer = true;
  layout.head_chunks = 11;
  layout.stage_blocks = {1, 2, 3};
  layout.stage_recompute = {Recompute::kSelective, Recompute::kNone, Recompute::kFull};
  std::vector<std::string> unset;
  UnsetFields(ToProto(layout), "", unset);
  EXPECT_THAT(unset, testing::IsEmpty());
  const absl::StatusOr<Layout> back = FromProto(ToProto(layout));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == layout);
}

TEST(Wire, RefusesALayoutThatIsNone) {
  const Layout layout{1, 1, 1, 1, 0, ScheduleKind::kGpipe, 1, 1, Recompute::kNone};
  for (const auto& spoil : std::vector<std::function<void(proto::Layout&)>>{
           [](proto::Layout& m) { m.set_schedule("zb"); },
           [](proto::Layout& m) { m.set_recompute("some"); }, [](proto::Layout& m) { m.set_dp(0); },
           [](proto::Layout& m) { m.set_tp(-1); }}) {
    proto::Layout message = ToProto(layout);
    spoil(message);
    EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kInvalidArgument)
        << message.ShortDebugString();
  }
}

}  // namespace
}  // namespace weft
