#include "bench/measured_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kHeader[] =
    "id,source,hardware,gpus,gpus_per_node,inter_node_GBps_per_gpu,model_family,layers,hidden,"
    "heads,kv_heads,head_dim,ffn,gated,vocab,tied,experts,top_k,expert_ffn,shared_ffn,seq_len,"
    "global_batch,micro_batch,dp,tp,pp,vpp,cp,ep,zero_stage,zero_group,sequence_parallel,recompute,"
    "precision,flash,rank_or_stage,allocated_GiB,peak_GiB,what_is_counted,notes\n";

MeasuredTable Parse(const std::string& rows) {
  return ParseMeasured(absl::StrCat(kHeader, rows), "some.csv").value();
}

TEST(ParseMeasured, TurnsARowIntoAModelALayoutAndWhatWasMeasured) {
  const MeasuredTable table = Parse(
      "a1,\"some, paper\",B200,8,8,50,llama,12,8192,64,8,128,28672,1,128256,0,,,,,4096,16,1,4,1,2,"
      "1,1,1,1,,0,none,bf16,1,max,,66.5,torch_allocated,\"says \"\"fused\"\", once\"\n");
  EXPECT_THAT(table.left_out, IsEmpty());
  ASSERT_THAT(table.runs, SizeIs(1));
  const MeasuredRun& run = table.runs[0];
  EXPECT_EQ(run.id, "a1");
  EXPECT_EQ(run.source, "some, paper");
  EXPECT_EQ(run.notes, "says \"fused\", once");
  EXPECT_EQ(run.model, "llama 12x8192");
  EXPECT_EQ(run.shape.architecture, Architecture::kLlama);
  EXPECT_EQ(run.shape.num_kv_heads, 8);
  EXPECT_FALSE(run.shape.tied_embeddings);
  EXPECT_EQ(run.layout,
            (Layout{.dp = 4, .pp = 2, .zero_stage = 1, .gradient_accumulation_steps = 4}));
  EXPECT_EQ(run.batch, (BatchShape{.global_batch_size = 16, .seq_len = 4096}));
  EXPECT_EQ(run.inter_node_bytes_per_s, 50e9);
  EXPECT_EQ(run.peak_bytes, int64_t{133} << 29);
  EXPECT_EQ(run.allocated_bytes, std::nullopt);
  EXPECT_EQ(run.rank_or_stage, "max");
  EXPECT_THAT(run.assumed, IsEmpty());
}

TEST(ParseMeasured, RemembersWhichCellsWereLeftEmpty) {
  const MeasuredTable table = Parse(
      "a1,s,H100,8,8,,gpt,12,512,8,8,64,2048,0,50257,,,,,,1024,32,4,8,1,1,1,1,1,,,,,bf16,,max,,1,"
      "x,\n");
  ASSERT_THAT(table.runs, SizeIs(1));
  EXPECT_THAT(table.runs[0].assumed,
              ElementsAre("tied", "zero_stage", "sequence_parallel", "recompute", "flash"));
  EXPECT_TRUE(table.runs[0].shape.tied_embeddings);
}

TEST(ParseMeasured, LeavesOutWhatItHasNoWordsForAndSaysWhy) {
  const struct {
    const char* cells;  // from gpus to flash, then the rest
    const char* reason;
  } cases[] = {
      {"8,8,,gpt,12,512,8,8,64,2048,0,50257,1,,,,,1024,32,4,8,1,1,1,1,1,0,,0,none,mxfp8,1",
       "precision \"mxfp8\" is not one of ours"},
      {"8,8,,gpt,12,512,8,8,64,2048,0,,1,,,,,1024,32,4,8,1,1,1,1,1,0,,0,none,bf16,1",
       "vocab is not stated"},
      {"8,8,,gpt,12,512,8,8,64,2048,0,50257,1,,,,,1024,33,4,8,1,1,1,1,1,0,,0,none,bf16,1",
       "global_batch 33 is not a multiple of dp x micro_batch"},
      {"16,8,,gpt,12,512,8,8,64,2048,0,50257,1,,,,,1024,32,4,8,1,1,1,1,1,0,,0,none,bf16,1",
       "gpus 16 is not dp x tp x pp x cp = 8"},
      {"8,8,,gpt,-3,512,8,8,64,2048,0,50257,1,,,,,1024,32,4,8,1,1,1,1,1,0,,0,none,bf16,1",
       "layers \"-3\" is not a count"},
      {"8,8,,gpt,12,512,8,8,64,2048,0,50257,1,,,,,1024,32,4,8,1,1,1,1,1,0,,0,some,bf16,1",
       "recompute \"some\" is not one of ours"},
  };
  for (const auto& c : cases) {
    const MeasuredTable table = Parse(absl::StrCat("a1,s,H100,", c.cells, ",max,,1,x,\n"));
    EXPECT_THAT(table.runs, IsEmpty()) << c.reason;
    ASSERT_THAT(table.left_out, SizeIs(1)) << c.reason;
    EXPECT_EQ(table.left_out[0].reason, c.reason);
  }
}

TEST(ParseMeasured, ReadsExpertsAndFeedForwardsWithoutAGate) {
  const MeasuredTable table = Parse(
      "a1,s,H100,8,8,,llama,12,512,8,8,64,2048,1,50257,1,8,2,2048,96,1024,32,4,8,1,1,1,1,1,0,,0,"
      "none,bf16,1,max,,1,x,\n"
      "a2,s,H100,8,8,,gpt,12,512,8,2,64,2048,0,50257,1,,,,,1024,32,4,8,1,1,1,1,1,0,,0,"
      "none,bf16,1,max,,1,x,qk_layernorm\n");
  ASSERT_THAT(table.runs, SizeIs(2));
  EXPECT_EQ(table.runs[0].shape.num_experts, 8);
  EXPECT_EQ(table.runs[0].shape.shared_ffn_size, 96);
  const ModelShape& plain = table.runs[1].shape;
  EXPECT_EQ(plain.architecture, Architecture::kNemotron);
  EXPECT_TRUE(plain.plain_ffn && plain.layer_norms && plain.qk_norms);
  EXPECT_EQ(plain.num_kv_heads, 2);
}

TEST(ParseMeasured, RefusesAFileWithoutItsColumns) {
  EXPECT_EQ(ParseMeasured("id,source\n", "some.csv").status().message(),
            "some.csv:1: has no column \"hardware\"; see bench/README.md for them");
  EXPECT_EQ(ParseMeasured(absl::StrCat(kHeader, "a,b\n"), "some.csv").status().message(),
            "some.csv:2: has 2 cells, not the header's 40");
  EXPECT_EQ(ReadMeasured("/nowhere.csv").status().message(), "/nowhere.csv: cannot be read");
}

}  // namespace
}  // namespace weft
