// A job becomes a tree of keys and comes back, key by key; a tree of an older weft is read, one of
// a newer weft is refused by the key's name.
#include "plan/keys/job_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "plan/keys/value_text.h"
#include "tests/plan/keys/full_job.h"

namespace weft {
namespace {

using testing::HasSubstr;

// Expects no issue.
JobSpec ReadBack(const Value& tree) {
  Issues issues;
  JobSpec job = ReadJobTree(tree, &issues);
  EXPECT_EQ(issues.Text(), "");
  return job;
}

// Takes the dotted key out of the tree.
void Remove(Value& tree, absl::string_view dotted) {
  const size_t dot = dotted.find('.');
  if (dot == absl::string_view::npos) {
    tree.Remove(dotted);
  } else {
    tree.Find(dotted.substr(0, dot))->Remove(dotted.substr(dot + 1));
  }
}

TEST(JobTree, CarriesEveryKey) {
  JobSpec full = FullJob();
  JobSpec plain;
  plain.lora.emplace();
  plain.cluster.device.backend = full.cluster.device.backend;
  for (const JobKey& key : JobKeys()) {
    if (key.field == nullptr || key.key == "cluster.slots") continue;
    EXPECT_NE(LineText(PrintField(key.field(full))), LineText(PrintField(key.field(plain))))
        << key.key << ": the full job has its default";
  }
  EXPECT_TRUE(ReadBack(JobTree(full)) == full);
}

TEST(JobTree, KeepsAutoApartFromAValue) {
  JobSpec job = FullJob();
  job.layout = {};
  job.checkpoint.interval.reset();
  job.lora.reset();
  EXPECT_TRUE(ReadBack(JobTree(job)) == job);
  job.layout.layers_per_stage.emplace();  // even
  EXPECT_TRUE(ReadBack(JobTree(job)) == job);
}

// A job file takes what a plan prints as it stands.
TEST(JobTree, ReadsListsOfStagesAsPlansPrintThem) {
  Value tree = JobTree(FullJob());
  const auto read = [&](const char* key, const char* text, std::string* issues) {
    tree.Put(key, Value::Scalar(text));
    Issues found;
    const JobSpec job = ReadJobTree(tree, &found);
    *issues = found.Text();
    return job.layout;
  };
  std::string issues;
  EXPECT_THAT(read("parallelism.layers_per_stage", "1,62x2,1", &issues).layers_per_stage->size(),
              64);
  EXPECT_EQ(issues, "");
  EXPECT_EQ(read("parallelism.layers_per_stage", "4,4,3", &issues).layers_per_stage,
            (std::vector<int64_t>{4, 4, 3}));
  for (const char* wrong : {"4", "4,x", "0x4,1", "4,,3"}) {
    read("parallelism.layers_per_stage", wrong, &issues);
    EXPECT_THAT(issues, HasSubstr("auto, even or a list of numbers, one a stage")) << wrong;
  }
  tree = JobTree(FullJob());
  EXPECT_EQ(read("activation_checkpointing.per_stage", "full/none", &issues).recompute_per_stage,
            (std::vector<Recompute>{Recompute::kFull, Recompute::kNone}));
}

// As large as what Validate takes and PyTorch's manual_seed too.
TEST(JobTree, CarriesEverySeed) {
  JobSpec job = FullJob();
  for (const uint64_t seed :
       {uint64_t{0}, uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    job.training.seed = seed;
    EXPECT_EQ(ReadBack(JobTree(job)).training.seed, seed);
  }
  Value tree = JobTree(job);
  for (const char* wrong : {"-1", "18446744073709551616", "1.5", "x"}) {
    tree.Put("training.seed", Value::Scalar(wrong));
    Issues issues;
    ReadJobTree(tree, &issues);
    EXPECT_THAT(issues.Text(), HasSubstr("training.seed: ")) << wrong;
  }
}

TEST(JobTree, CarriesEitherFamilyAndBackend) {
  JobSpec job = FullJob();
  job.model = {.vocab_size = 50257,
               .hidden_size = 768,
               .num_blocks = 12,
               .num_heads = 12,
               .num_kv_heads = 12,
               .head_dim = 64,
               .ffn_size = 3072,
               .max_positions = 1024};
  job.cluster.device.backend = BackendKind::kCpu;
  job.cluster.nodes = 1;
  job.cluster.inter_node = {};
  job.cluster.collectives.clear();
  EXPECT_TRUE(ReadBack(JobTree(job)) == job);
}

// A reader with one more key than the writer finds that key missing. So each key in turn is taken
// out of a tree: it reads as the same job with that key's default.
TEST(JobTree, OfAWriterThatDoesNotKnowAKeyIsReadWithItsDefault) {
  const std::set<std::string> needed = {"job.name", "data.train", "training.seq_len",
                                        "training.steps"};
  int tried = 0;
  for (const JobKey& key : JobKeys()) {
    JobSpec full = FullJob();
    if (key.field == nullptr || std::holds_alternative<std::monostate>(key.field(full))) continue;
    if (key.key == "training.global_batch_size") continue;  // follows from what the job fixes
    Value tree = JobTree(full);
    Remove(tree, key.key);
    Issues issues;
    JobSpec job = ReadJobTree(tree, &issues);
    if (needed.count(std::string(key.key)) > 0) {
      EXPECT_THAT(issues.Text(), HasSubstr(absl::StrCat(key.key, ": missing"))) << key.key;
      continue;
    }
    EXPECT_EQ(issues.Text(), "") << key.key;
    JobSpec plain;
    plain.lora = LoraSpec{.lora_alpha = 4};  // follows r
    plain.cluster = full.cluster;            // the profile's own counts
    EXPECT_EQ(LineText(PrintField(key.field(job))), LineText(PrintField(key.field(plain))))
        << key.key;
    ++tried;
  }
  EXPECT_GT(tried, 60);
}

TEST(JobTree, OfANewerWriterIsRefusedByTheKeysName) {
  Value tree = JobTree(FullJob());
  tree.Put("training.flux_capacity", Value::Whole(3));
  Issues issues;
  ReadJobTree(tree, &issues);
  EXPECT_THAT(issues.Text(), HasSubstr("training.flux_capacity: unknown key"));
}

TEST(JobTree, SaysWhatIsWrongWithEachKey) {
  const std::pair<const char*, Value> cases[] = {
      {"model.model_type", Value::Text("bert")},
      {"data.format", Value::Text("")},
      {"optimizer.name", Value::Text("lioness")},
      {"lr_scheduler.type", Value::Text("wsd")},
      {"parallelism.pp_schedule", Value::Text("zb")},
      {"training.mixed_precision", Value::Text("int4")},
      {"activation_checkpointing.mode", Value::Text("most")},
      {"activation_checkpointing.per_stage", Value::List({Value::Text("most")})},
      {"lora.quantization", Value::Text("int3")},
      {"checkpoint.resume", Value::Text("x")},
      {"training.seq_len", Value::Text("12")},
      {"training.seed", Value::Whole(-1)},
      {"optimizer.betas", Value::List({Value::Number(0.9)})},
      {"optimizer.param_groups", Value::List({Value::Whole(1)})},
      {"cluster.env", Value::Whole(1)},
      {"cluster.nodes", Value::Text("2:x")},
      {"cluster.nodes", Value::Text("0:2")},
      {"cluster.nodes", Value::Text("1:2:3")},
      {"data.train", Value::List({Value::Text("/a.txt")})},
      {"cluster.profile", Value::Text("cpu")},
      {"cluster.slots", Value::Whole(4)},  // the profile counts GPUs
  };
  for (const auto& [key, value] : cases) {
    Value tree = JobTree(FullJob());
    tree.Put(key, value);
    Issues issues;
    ReadJobTree(tree, &issues);
    EXPECT_THAT(issues.Text(), HasSubstr(key)) << key;
  }
  Value backend = JobTree(FullJob());
  backend.Put("cluster.profile.device.backend", Value::Text("tpu"));
  Issues issues;
  ReadJobTree(backend, &issues);
  EXPECT_THAT(issues.Text(), HasSubstr("device.backend: found tpu; expected cpu or cuda"));
}

}  // namespace
}  // namespace weft
