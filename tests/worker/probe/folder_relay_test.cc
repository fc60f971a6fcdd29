#include "worker/probe/folder_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/worker/rank_threads.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int64_t kTimeoutMs = 10000;

TEST(FolderRelay, CarriesANoteToWhoeverAsksForItAlsoToItsSender) {
  const TestFolder folder;
  FolderRelay zero(folder.path(), 0), one(folder.path(), 1);
  int heard = 0;
  std::thread waits([&] { one.Receive("id", 0, kTimeoutMs, &heard, sizeof heard); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int sent = 1234, other = 5;
  EXPECT_TRUE(zero.Send("id", nullptr, 0, &sent, sizeof sent).ok());
  EXPECT_TRUE(one.Send("id", nullptr, 0, &other, sizeof other).ok());
  waits.join();
  EXPECT_EQ(heard, sent);
  EXPECT_TRUE(zero.Receive("id", 0, kTimeoutMs, &heard, sizeof heard).ok());
  EXPECT_EQ(heard, sent);
  EXPECT_TRUE(zero.Receive("id", 1, kTimeoutMs, &heard, sizeof heard).ok());
  EXPECT_EQ(heard, other);
}

TEST(FolderRelay, SaysWhoseNoteDoesNotComeOrIsOfAnotherSize) {
  const TestFolder folder;
  FolderRelay zero(folder.path(), 0);
  double heard = 0;
  const BackendStatus missing = zero.Receive("id", 3, 10, &heard, sizeof heard);
  EXPECT_EQ(missing.code, kDeadlineExceeded);
  EXPECT_STREQ(missing.text, "rank 3 did not send its id within 10 ms");
  const char sent = 'x';
  EXPECT_TRUE(zero.Send("id", nullptr, 0, &sent, sizeof sent).ok());
  const BackendStatus wrong = zero.Receive("id", 0, kTimeoutMs, &heard, sizeof heard);
  EXPECT_EQ(wrong.code, kInternal);
  EXPECT_STREQ(wrong.text, "the id of rank 0 has 1 bytes instead of 8");
  FolderRelay nowhere(folder.path() + "/missing", 0);
  EXPECT_EQ(nowhere.Send("id", nullptr, 0, &sent, sizeof sent).code, kUnavailable);
}

}  // namespace
}  // namespace weft
