// A weftd that serves many jobs, with real agents, ranks and clients.
#include <gmock/gmock.h>

#include <set>

#include "tests/service/service_bed.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::vector<std::string> Phases(const std::vector<v1::Event>& events) {
  std::vector<std::string> phases;
  for (const v1::Event& each : events) {
    if (!each.has_phase()) continue;
    if (phases.empty() || phases.back() != each.phase().phase()) {
      phases.push_back(each.phase().phase());
    }
  }
  return phases;
}

TEST_F(ServiceBed, TrainsAJobOnTheHostsOfItsFleet) {
  StartHost(2);
  const std::string job = Submit(Job("one", 2, 30));
  EXPECT_EQ(job, "job-1");
  const v1::Job done = WaitForPhase(job, "COMPLETED");
  EXPECT_EQ(done.step(), 30);
  EXPECT_EQ(Curve("one").size(), 30u);
  EXPECT_THAT(Phases(Events(job)),
              testing::ElementsAre("QUEUED", "SUBMITTED", "PLANNED", "STARTING", "RUNNING",
                                   "COMPLETED"));
  EXPECT_TRUE(Eventually(10, [&] { return Host().slots_used() == 0; }));
}

}  // namespace
}  // namespace weft
