// Ranks that are processes and talk by MPI compute the very bits of ranks that are threads. Layouts
// are few: each has something that goes another way through MPI. That any layout computes the same
// thing is layout_matrix_test's, with threads.
#include <string>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

JobSpec OnTwelveSequences(JobSpec job) {
  job.training.global_batch_size = 12;  // for 3 data ranks
  return job;
}

JobSpec OnPackedDocuments(JobSpec job) {
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  return job;
}

JobSpec FactoredEnglishJob() {
  JobSpec job = EnglishJob();
  job.optimizer = {.name = OptimizerKind::kAdafactor, .lr = 5e-4};
  return job;
}

struct MpiCase {
  const char* name;
  JobSpec job;
  Layout layout;
};

class OverMpi : public testing::TestWithParam<MpiCase> {};

TEST_P(OverMpi, TrainsTheSameBitsAsThreads) {
  ExpectTheSameBitsOverMpi(GetParam().job, GetParam().layout);
}

INSTANTIATE_TEST_SUITE_P(
    Parity, OverMpi,
    testing::Values(
        MpiCase{"single", EnglishJob(), {.micro_batch_size = 2}},
        MpiCase{"dp2_tp2_pp2", EnglishJob(), {.dp = 2, .pp = 2, .tp = 2, .micro_batch_size = 1}},
        MpiCase{"llama_tp4_two_kv_heads_sequence_parallel",
                EnglishLlamaJob(),
                {.pp = 2, .tp = 4, .micro_batch_size = 2, .sequence_parallel = true}},
        MpiCase{"llama_packed_cp2_tp2",
                OnPackedDocuments(EnglishLlamaJob()),
                {.cp = 2, .tp = 2, .micro_batch_size = 2}},
        MpiCase{"cp4", EnglishJob(), {.cp = 4, .micro_batch_size = 2}},
        MpiCase{"zero1_dp3",
                OnTwelveSequences(EnglishJob()),
                {.dp = 3, .zero_stage = 1, .micro_batch_size = 2}},
        MpiCase{"zero2_dp2_pp2_zb_h1_uneven",
                OnTwelveSequences(EnglishJob()),
                {.dp = 2,
                 .pp = 2,
                 .zero_stage = 2,
                 .pp_schedule = ScheduleKind::kZeroBubbleH1,
                 .micro_batch_size = 2,
                 .layers_per_stage = {3, 1}}},
        MpiCase{"zero3_groups_of_2",
                EnglishJob(),
                {.dp = 4, .zero_stage = 3, .micro_batch_size = 1, .zero_hpz_partition_size = 2}},
        MpiCase{"interleaved_tp2_recompute_head_chunks",
                EnglishLlamaJob(),
                {.pp = 2,
                 .tp = 2,
                 .pp_schedule = ScheduleKind::kInterleaved,
                 .micro_batch_size = 2,
                 .recompute = Recompute::kFull,
                 .virtual_stages = 2,
                 .sequence_parallel = true,
                 .head_chunk_tokens = 22}},
        MpiCase{"bf16_zero1_dp2_tp2",
                In(Precision::kBf16, EnglishJob()),
                {.dp = 2, .tp = 2, .zero_stage = 1, .micro_batch_size = 2}},
        MpiCase{"fp8_dp2_pp2", In(Precision::kFp8, EnglishJob()), {.dp = 2, .pp = 2}},
        MpiCase{"adafactor_zero1_cp2_tp2",
                FactoredEnglishJob(),
                {.cp = 2, .tp = 2, .zero_stage = 1, .micro_batch_size = 2}}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
