// proto/wire: what goes out comes back, field by field, and what makes no sense is refused.
#include "proto/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace weft {
namespace {

// Every field differs from its default.
Cluster FullCluster() {
  DeviceProfile device;
  device.name = "h200";
  device.backend = BackendKind::kCuda;
  device.memory_bytes = 1000;
  device.library_bytes = 10;
  device.compute_units = 132;
  device.peak_flops_per_s = {1e12, 2e12, 4e12};
  device.peak_memory_bytes_per_s = 2e11;
  device.matmul_efficiency = {0.8, 0.7, 0.6};
  device.attention_efficiency = 0.5;
  device.streaming_efficiency = 0.9;
  device.op_overhead_s = 3e-6;
  device.matmuls = {{64, 128, 256, Precision::kBf16, 1.5e12}};
  Cluster cluster;
  cluster.name = "lab";
  cluster.nodes = 2;
  cluster.slots_per_node = 8;
  cluster.cores_per_node = 16;
  cluster.nics_per_node = 4;
  cluster.host_memory_bytes = 2000;
  cluster.device = device;
  cluster.intra_node = {1e-6, 2e10, true};
  cluster.inter_node = {3e-6, 4e9, true};
  cluster.storage = {1e9, 1e10};
  cluster.failures = {5e4, 300};
  cluster.price_per_device_hour = 2.5;
  cluster.collectives = {{Collective::kAllGather, 8, 1 << 20, 1e-4}};
  return cluster;
}

JobSpec FullJob() {
  JobSpec job;
  job.name = "quickstart";
  job.output_dir = "/runs";
  job.init_from = "/weights";
  job.model = {
      ModelFamily::kLlama, 257, 64, 3, 4, 2, 16, 256, 128, 1e-6, 0.01, 5e5, true, 8, 2, 256,
      {8, 2, 5, 4096},     true};
  job.data = {{{"/a.txt"}, {"/b.txt"}}, {{"/v.txt"}}, 0.1, TokenFormat::kNanogpt, 5, 6, true, true};
  job.training = {32, 8, 2, 4, 20, 0.5, 7, Precision::kBf16, 3, 16};
  job.fp16 = {512, 12, 200, 3, 4};
  job.optimizer = {OptimizerKind::kSgd,
                   1e-3,
                   0.8,
                   0.99,
                   1e-9,
                   0.2,
                   {{{"*.bias", "head.weight"}, 0.3}},
                   0.9,
                   0.4,
                   true,
                   -0.7,
                   0.6,
                   true};
  job.lr_scheduler = {LrSchedule::kLinear, 5, 10, 1e-5};
  job.parallelism = {2, 3, 4, 5, 6, 1, 2, true, ScheduleKind::kGpipe, 7, {{1, 2}}};
  job.activation_checkpointing = {Recompute::kFull, {Recompute::kNone, Recompute::kSelective}};
  job.offload = {true};
  job.lora = {4, 16, {"c_attn"}, FrozenFormat::kNf4Double};
  job.checkpoint = {"saved", 10, 4, ResumeMode::kNone};
  job.fault_tolerance = {5, 2.5};
  job.comm = {11, 12};
  job.validation = {6, 2};
  job.log_freq = 3;
  job.profiler_freq = 7;
  job.deterministic = true;
  job.cluster = FullCluster();
  job.threads_per_worker = 2;
  job.env = {{"A", "1"}, {"B", "two"}};
  return job;
}

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

TEST(Wire, CarriesEveryFieldOfAJob) {
  std::vector<std::string> unset;
  UnsetFields(ToProto(FullJob()), "", unset);
  EXPECT_THAT(unset, testing::IsEmpty());
  const absl::StatusOr<JobSpec> back = FromProto(ToProto(FullJob()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == FullJob());
}

TEST(Wire, KeepsAutoApartFromAValue) {
  JobSpec job = FullJob();
  job.training.micro_batch_size.reset();
  job.training.gradient_accumulation_steps.reset();
  job.training.head_chunk_tokens.reset();
  job.parallelism = {};
  job.activation_checkpointing = {};
  job.offload = {};
  job.lora.reset();
  const absl::StatusOr<JobSpec> back = FromProto(ToProto(job));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == job);
}

TEST(Wire, SurvivesSerialisation) {
  proto::JobSpec parsed;
  ASSERT_TRUE(parsed.ParseFromString(ToProto(FullJob()).SerializeAsString()));
  const absl::StatusOr<JobSpec> back = FromProto(parsed);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == FullJob());
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

TEST(Wire, RefusesUnknownNamesAndMissingPartsByPath) {
  struct Case {
    std::string field;
    std::function<void(proto::JobSpec&)> spoil;
  };
  const std::vector<Case> cases = {
      {"model.family", [](proto::JobSpec& m) { m.mutable_model()->set_family("bert"); }},
      {"data.format", [](proto::JobSpec& m) { m.mutable_data()->set_format(""); }},
      {"optimizer.name", [](proto::JobSpec& m) { m.mutable_optimizer()->set_name("lioness"); }},
      {"lr_scheduler.type", [](proto::JobSpec& m) { m.mutable_lr_scheduler()->set_type("wsd"); }},
      {"parallelism.pp_schedule",
       [](proto::JobSpec& m) { m.mutable_parallelism()->set_pp_schedule("zb"); }},
      {"training.mixed_precision",
       [](proto::JobSpec& m) { m.mutable_training()->set_mixed_precision("int4"); }},
      {"activation_checkpointing.mode",
       [](proto::JobSpec& m) { m.mutable_activation_checkpointing()->set_mode("most"); }},
      {"activation_checkpointing.per_stage",
       [](proto::JobSpec& m) { m.mutable_activation_checkpointing()->add_per_stage("most"); }},
      {"lora.quantization", [](proto::JobSpec& m) { m.mutable_lora()->set_quantization("int3"); }},
      {"activation_checkpointing", [](proto::JobSpec& m) { m.clear_activation_checkpointing(); }},
      {"offload", [](proto::JobSpec& m) { m.clear_offload(); }},
      {"model.rope_scaling", [](proto::JobSpec& m) { m.mutable_model()->clear_rope_scaling(); }},
      {"checkpoint.resume", [](proto::JobSpec& m) { m.mutable_checkpoint()->set_resume("x"); }},
      {"cluster.device.backend",
       [](proto::JobSpec& m) { m.mutable_cluster()->mutable_device()->set_backend("tpu"); }},
      {"model", [](proto::JobSpec& m) { m.clear_model(); }},
      {"data", [](proto::JobSpec& m) { m.clear_data(); }},
      {"training", [](proto::JobSpec& m) { m.clear_training(); }},
      {"optimizer", [](proto::JobSpec& m) { m.clear_optimizer(); }},
      {"lr_scheduler", [](proto::JobSpec& m) { m.clear_lr_scheduler(); }},
      {"parallelism", [](proto::JobSpec& m) { m.clear_parallelism(); }},
      {"checkpoint", [](proto::JobSpec& m) { m.clear_checkpoint(); }},
      {"fault_tolerance", [](proto::JobSpec& m) { m.clear_fault_tolerance(); }},
      {"comm", [](proto::JobSpec& m) { m.clear_comm(); }},
      {"validation", [](proto::JobSpec& m) { m.clear_validation(); }},
      {"cluster", [](proto::JobSpec& m) { m.clear_cluster(); }},
      {"cluster.device", [](proto::JobSpec& m) { m.mutable_cluster()->clear_device(); }},
      {"cluster.intra_node", [](proto::JobSpec& m) { m.mutable_cluster()->clear_intra_node(); }},
      {"cluster.inter_node", [](proto::JobSpec& m) { m.mutable_cluster()->clear_inter_node(); }},
  };
  for (const Case& c : cases) {
    proto::JobSpec message = ToProto(FullJob());
    c.spoil(message);
    const absl::StatusOr<JobSpec> back = FromProto(message);
    ASSERT_FALSE(back.ok()) << c.field;
    EXPECT_EQ(back.status().code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_EQ(std::string(back.status().message()).rfind(c.field + ":", 0), 0u) << back.status();
  }
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
