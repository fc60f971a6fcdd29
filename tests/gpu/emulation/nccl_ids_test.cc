// Rank 0 makes only those of NCCL's ids that are used: for each, NCCL listens until all ranks have
// come.
#include <dlfcn.h>

#include <string>

#include "gtest/gtest.h"
#include "plan/spec/layout_text.h"
#include "tests/gpu/emulation/fake_nccl.h"
#include "tests/gpu/opened_ranks.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

int IdsMade() {
  void* const handle = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return reinterpret_cast<decltype(&WeftFakeNcclIds)>(dlsym(handle, "WeftFakeNcclIds"))();
}

TEST(NcclIds, AreOneForEachWayInWhichALayoutMakesCalls) {
  const struct {
    int dp, cp, tp, pp;
    int ids;
    bool deterministic = false;  // so that sums over tp block
  } cases[] = {{1, 1, 1, 1, 1}, {1, 1, 2, 1, 2}, {1, 1, 1, 2, 1},       {2, 1, 1, 1, 2},
               {1, 2, 1, 1, 2}, {2, 1, 2, 1, 3}, {1, 1, 2, 1, 1, true}, {2, 1, 2, 1, 2, true}};
  const TestFolder folder;
  JobSpec job = TinyJob(folder, Architecture::kGpt2);
  job.training.steps = 1;
  for (const auto& c : cases) {
    Layout layout = MakeLayout(c.dp, c.tp, c.pp, ScheduleKind::kOneForwardOneBackward, 1, job);
    layout.cp = c.cp;
    SCOPED_TRACE(LayoutText(layout));
    const int before = IdsMade();
    OpenedRanks ranks(layout.world_size(), TransportKind::kNccl,
                      {.deterministic = c.deterministic});
    const TrainingOutcome outcome = TrainOn(ranks, job, layout, folder.Make(LayoutText(layout)));
    EXPECT_EQ(outcome.status(), absl::OkStatus());
    EXPECT_EQ(IdsMade() - before, c.ids);
  }
}

}  // namespace
}  // namespace weft
