// Ranks as threads, who say on which node they are.
#include "worker/links/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/cpu/device_cpu.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Answers {
  std::vector<absl::StatusOr<LinkTimes>> links;
  std::vector<int> moves;
};

Answers MeasureOn(const std::vector<double>& node_of_rank) {
  const auto comms = MakeThreadComms(static_cast<int>(node_of_rank.size()));
  Answers answers;
  answers.links.assign(comms.size(), absl::UnknownError("not asked"));
  answers.moves.assign(comms.size(), 0);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto device = MakeCpuDevice({});
      answers.links[rank] = MeasureLinks(BackendKind::kCpu, *device, *comms[rank],
                                         node_of_rank[rank], 0.2, [&] { ++answers.moves[rank]; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

TEST(MeasureLinks, TimesEachCallInsideNodesAndAcrossThem) {
  const Answers answers = MeasureOn({9, 9, 4, 4});
  ASSERT_TRUE(answers.links[0].ok()) << answers.links[0].status();
  const LinkTimes& links = *answers.links[0];
  EXPECT_EQ(links.nodes, 2);
  EXPECT_EQ(links.ranks_per_node, 2);
  std::map<std::tuple<Collective, int, int>, int> sizes;
  for (const CollectivePoint& point : links.points) {
    EXPECT_GT(point.seconds, 0);
    EXPECT_EQ(point.bytes % 4, 0);
    ++sizes[{point.collective, point.ranks, point.nodes}];
  }
  for (const auto& [collective, ranks, nodes] :
       std::vector<std::tuple<Collective, int, int>>{{Collective::kSendReceive, 2, 1},
                                                     {Collective::kSendReceive, 2, 2},
                                                     {Collective::kAllReduce, 2, 1},
                                                     {Collective::kAllReduce, 2, 2},
                                                     {Collective::kAllReduce, 4, 2},
                                                     {Collective::kReduceScatter, 4, 2},
                                                     {Collective::kAllGather, 4, 2}}) {
    EXPECT_GE((sizes[{collective, ranks, nodes}]), 3) << WordOf(collective) << ranks << nodes;
  }
  for (size_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(answers.links[rank].ok());
    EXPECT_EQ(answers.links[rank]->points.size(), links.points.size());
    EXPECT_EQ(answers.moves[rank], links.points.size());
  }
  EXPECT_THAT(LinksJson(links), HasSubstr(R"("ranks": 4, "nodes": 2, "collectives": [{"coll)"));
}

TEST(MeasureLinks, SaysOnAllRanksThatNodesAreUneven) {
  for (const auto& links : MeasureOn({9, 9, 4}).links) {
    EXPECT_TRUE(absl::IsFailedPrecondition(links.status())) << links.status();
    EXPECT_THAT(links.status().message(), HasSubstr("these have 2, 1"));
  }
}

TEST(MeasureLinks, NeedsTwoRanks) {
  EXPECT_EQ(MeasureOn({1}).links[0].status().message(),
            "links are measured by 2 or more ranks at once");
}

}  // namespace
}  // namespace weft
