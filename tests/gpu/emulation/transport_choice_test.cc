#include "worker/backend/cuda/comm/transport_choice.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/backend/cuda/comm/local_block.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int kRefusedCode = static_cast<int>(absl::StatusCode::kFailedPrecondition);

// "h1:a h1:b": ranks by host and device; a host with ! has no NCCL, a device with a capital letter
// is the only one that its rank sees.
std::vector<DeviceFacts> Ranks(const std::string& text) {
  std::vector<DeviceFacts> ranks;
  for (size_t at = 0; at < text.size(); at += 5) {
    DeviceFacts& facts = ranks.emplace_back();
    std::snprintf(facts.host, sizeof(facts.host), "%s", text.substr(at, 2).c_str());
    const char device = text[at + 3];
    facts.is_the_only_one = device >= 'A' && device <= 'Z';
    std::snprintf(facts.device, sizeof(facts.device), "%c", device | 0x20);
    if (text[at] == '!') std::snprintf(facts.nccl_problem, sizeof(facts.nccl_problem), "none");
  }
  return ranks;
}

struct ChoiceCase {
  TransportKind asked;
  const char* ranks;
  TransportKind kind;
  const char* why;
};

TEST(TransportChoice, FollowsTheDevicesThatRanksHold) {
  constexpr auto kAuto = TransportKind::kAuto;
  constexpr auto kNccl = TransportKind::kNccl;
  constexpr auto kLocal = TransportKind::kLocal;
  const ChoiceCase cases[] = {
      {kAuto, "h1:a", kLocal, "one rank"},
      {kAuto, "!1:a", kLocal, "one rank"},
      {kAuto, "h1:a h1:b", kNccl, "2 ranks hold a device each, on 1 host"},
      {kAuto, "h1:a h2:a h1:b", kNccl, "3 ranks hold a device each, on 2 hosts"},
      {kAuto, "h1:a h1:b h1:a", kLocal, "ranks 0 and 2 share a device"},
      {kAuto, "!1:a !1:a", kLocal, "ranks 0 and 1 share a device"},
      {kAuto, "h1:a h1:B", kNccl, "2 ranks hold a device each, on 1 host"},
      {kLocal, "h1:a h1:A", kLocal, "ranks 0 and 1 share a device"},
      {kLocal, "h1:a h1:b", kLocal, "asked for"},
      {kNccl, "h1:a h1:a", kNccl, "asked for"},
      {kNccl, "h1:a", kNccl, "asked for"},
  };
  for (const ChoiceCase& c : cases) {
    const TransportChoice choice = ChooseTransport(c.asked, Ranks(c.ranks));
    EXPECT_TRUE(choice.status.ok()) << c.ranks << ": " << choice.status.text;
    EXPECT_EQ(choice.kind, c.kind) << c.ranks;
    EXPECT_EQ(std::string(choice.why), c.why) << c.ranks;
  }
}

TEST(TransportChoice, TellsDevicesApartAsNcclDoes) {
  DeviceFacts facts;
  ASSERT_TRUE(OwnFacts(&facts).ok());
  EXPECT_STREQ(facts.device, "00000000:01:00.0");
  EXPECT_STREQ(facts.nccl_problem, "");
  EXPECT_EQ(facts.nccl_version, 22809);
  EXPECT_STRNE(facts.host_name, "");
}

TEST(TransportChoice, RefusesHostsWithDifferentVersionsOfNcclByName) {
  std::vector<DeviceFacts> ranks = Ranks("h1:a h1:b h2:a");
  for (DeviceFacts& facts : ranks) {
    facts.nccl_version = facts.host[1] == '2' ? 22703 : 22809;
    std::snprintf(facts.host_name, sizeof(facts.host_name), "node%c", facts.host[1]);
  }
  const TransportChoice choice = ChooseTransport(TransportKind::kAuto, ranks);
  EXPECT_EQ(choice.status.code, kRefusedCode);
  EXPECT_THAT(choice.status.text,
              HasSubstr("rank 0 on node1 has NCCL 2.28.9, rank 2 on node2 has 2.27.3; install"));
  ranks.pop_back();
  EXPECT_TRUE(ChooseTransport(TransportKind::kAuto, ranks).status.ok());
  // Ranks that do without NCCL need not agree.
  ranks[1].nccl_version = 0;
  EXPECT_TRUE(ChooseTransport(TransportKind::kLocal, ranks).status.ok());
}

// Whoever starts a rank may leave it one device to see, which is 0 there.
TEST(DeviceChoice, TakesTheOnlyDeviceUnderAnyLocalIndex) {
  const struct {
    int local_index, count;
    bool share;
    int index;  // -1: refused
  } cases[] = {{0, 1, false, 0},  {3, 1, false, 0}, {3, 1, true, 0},    {3, 4, false, 3},
               {4, 4, false, -1}, {5, 4, true, 1},  {-1, 4, false, -1}, {0, 0, false, -1}};
  for (const auto& c : cases) {
    int index = -1;
    const BackendStatus s =
        ChooseDevice({.local_index = c.local_index, .share_devices = c.share}, c.count, &index);
    EXPECT_EQ(s.ok() ? index : -1, c.index) << c.local_index << " of " << c.count;
    if (c.count > 0 && c.index < 0) {
      EXPECT_THAT(s.text, HasSubstr("this host has 4"));
    }
  }
}

TEST(DeviceChoice, KnowsWhoHasItForWantOfAnother) {
  std::unique_ptr<Device> device;
  for (const bool share : {false, true}) {
    for (const int local_index : {0, 1}) {
      ASSERT_TRUE(
          OpenCudaDevice({.local_index = local_index, .share_devices = share}, &device).ok());
      EXPECT_EQ(QueueOf(*device).is_of_only_device, local_index == 1 && !share);
    }
  }
}

// Between ranks that are threads.
class Notes final : public Relay {
 public:
  BackendStatus Send(const char* topic, const int* /*to*/, int /*count*/, const void* data,
                     int bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    notes_[topic].assign(static_cast<const char*>(data), static_cast<size_t>(bytes));
    changed_.notify_all();
    return {};
  }
  BackendStatus Receive(const char* topic, int /*from*/, int64_t /*timeout_ms*/, void* data,
                        int bytes) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return notes_.count(topic) > 0; });
    std::memcpy(data, notes_[topic].data(), static_cast<size_t>(bytes));
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> notes_;
};

// The block of a run that was killed while its ranks met is in nobody's way.
TEST(TransportChoice, MeetsBesideWhatAKilledRunHasLeft) {
  const std::string name = "/weft-transport-test-" + std::to_string(getpid());
  std::unique_ptr<LocalBlock> left;
  ASSERT_TRUE(LocalBlock::Open(name, 2, &left).ok());
  left->rank(0).stage = 1;
  left->rank(1).stage = 1;
  Notes notes;
  BackendStatus opened[2];
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        std::unique_ptr<Comm> comm;
        opened[rank] = OpenCudaComm({.init_timeout_ms = 20000,
                                     .rank = rank,
                                     .world_size = 2,
                                     .rendezvous = name.c_str(),
                                     .relay = &notes},
                                    {}, &comm);
      });
    }
  }
  left->Unlink();
  for (const BackendStatus& s : opened) EXPECT_TRUE(s.ok()) << s.text;
}

TEST(TransportChoice, NamesWhoMakesItImpossible) {
  const struct {
    TransportKind asked;
    const char* ranks;
    const char* text;
  } cases[] = {
      {TransportKind::kAuto, "h1:a !2:a", "rank 1: none"},
      {TransportKind::kNccl, "!1:a", "rank 0: none"},
      {TransportKind::kAuto, "h1:a h2:a h2:a", "ranks 1 and 2 share a device, but mapped memory"},
      {TransportKind::kAuto, "h1:a h1:A", "ranks 0 and 1 share a device, the only one that each"},
      {TransportKind::kLocal, "h1:a h2:a", "mapped memory is asked for, but mapped memory ends at"},
  };
  for (const auto& c : cases) {
    const TransportChoice choice = ChooseTransport(c.asked, Ranks(c.ranks));
    EXPECT_EQ(choice.status.code, kRefusedCode) << c.ranks;
    EXPECT_THAT(choice.status.text, HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace weft
