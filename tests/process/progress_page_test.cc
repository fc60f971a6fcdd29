#include "process/progress_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace weft {
namespace {

class ProgressPageTest : public ::testing::Test {
 protected:
  ProgressPageTest() {
    std::string folder = "/tmp/weft-page-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    path_ = PagePath(folder_, 3);
  }
  ~ProgressPageTest() override { std::filesystem::remove_all(folder_); }
  PageView View() {
    const auto reader = PageReader::Open(path_);
    const auto view = reader.ok() ? reader->Read() : reader.status();
    EXPECT_TRUE(view.ok()) << view.status();
    return view.ok() ? *view : PageView();
  }

  std::string folder_;
  std::string path_;
};

TEST_F(ProgressPageTest, OfNobodySaysSo) {
  ASSERT_TRUE(MakePageFile(path_).ok());
  EXPECT_EQ(View().rank, -1);
  EXPECT_FALSE(MakePageFile(path_).ok()) << "each generation has its own";
}

TEST_F(ProgressPageTest, ShowsTheCallThatTheRankIsIn) {
  ASSERT_TRUE(MakePageFile(path_).ok());
  auto writer = ProgressWriter::Open(path_, /*generation=*/2, /*rank=*/3);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const int group[] = {1, 3};
  writer->Join(MeetingAxis::kTensor, group);
  writer->BeginStep(12);
  writer->BeginAction(4, "reduce_grads10");
  PageView view = View();
  EXPECT_EQ(view.generation, 2);
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.pid, getpid());
  EXPECT_EQ(view.phase, RankPhase::kStep);
  EXPECT_EQ(view.step, 12);
  EXPECT_EQ(view.action, 4);
  EXPECT_EQ(view.action_text, "reduce_grads10");
  EXPECT_EQ(view.call.kind, CallKind::kNone);
  {
    const InCall call(*writer, CallKind::kAllReduce, MeetingAxis::kTensor);
    EXPECT_EQ(View().call, (PageCall{CallKind::kAllReduce, MeetingAxis::kTensor, 1, -1}));
    writer->blocking_marks().peer->store(1 + 1);
    writer->blocking_marks().polls->store(40);
    EXPECT_EQ(View().call.peer, 1) << "the backend knows whom it has not heard from";
    EXPECT_EQ(View().polls, 40);
  }
  view = View();
  EXPECT_EQ(view.call.kind, CallKind::kNone);
  EXPECT_EQ(view.groups[static_cast<size_t>(MeetingAxis::kTensor)].calls, 1);
  EXPECT_NE(view.groups[static_cast<size_t>(MeetingAxis::kTensor)].key, 0u);
}

TEST_F(ProgressPageTest, OfAnotherVersionIsRefused) {
  ASSERT_TRUE(MakePageFile(path_).ok());
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary) << "another one";
  const auto reader = PageReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(reader->Read().ok());
  EXPECT_FALSE(PageReader::Open(folder_ + "/none").ok());
  std::ofstream(folder_ + "/short") << "cut";
  EXPECT_FALSE(PageReader::Open(folder_ + "/short").ok());
}

// One step as its schedule has it: two calls over tp around an action, one over all ranks.
void Step(ProgressWriter& writer, int64_t step, bool skips) {
  writer.BeginStep(step);
  writer.BeginAction(0, "F0");
  writer.Count(MeetingAxis::kTensor);
  if (!skips) writer.Count(MeetingAxis::kTensor);
  writer.BeginAction(1, "reduce_norm");
  writer.Count(MeetingAxis::kWorld);
  writer.EndStep();
}

TEST_F(ProgressPageTest, ShowsWhereTheRankHasSkippedACall) {
  ASSERT_TRUE(MakePageFile(path_).ok());
  auto writer = ProgressWriter::Open(path_, 1, 0);
  ASSERT_TRUE(writer.ok());
  for (int64_t step = 5; step <= 8; ++step) Step(*writer, step, false);
  writer->Count(MeetingAxis::kWorld);  // between steps calls are free: validation
  Step(*writer, 9, false);
  EXPECT_EQ(View().departure, Departure());
  Step(*writer, 10, true);
  Step(*writer, 11, false);
  EXPECT_EQ(View().departure, (Departure{10, MeetingAxis::kTensor, 2, 1})) << "the first stays";
}

// A reader that meets its writer amid a change looks again while the writer rests. How long a
// writer that has lost its core stays away is the machine's to say, so the test's pause waits for
// the rest itself.
TEST_F(ProgressPageTest, IsNeverReadHalfWritten) {
  ASSERT_TRUE(MakePageFile(path_).ok());
  auto writer = ProgressWriter::Open(path_, 1, 0);
  ASSERT_TRUE(writer.ok());
  const auto reader = PageReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  std::atomic<bool> over = false;
  std::atomic<bool> rests = false;
  std::thread thread([&] {
    // Calls in bursts, as ranks make them; one that never paused would leave no moment to read in.
    using std::chrono::microseconds;
    while (!over) {
      const auto pauses = std::chrono::steady_clock::now() + microseconds(500);
      while (std::chrono::steady_clock::now() < pauses) {
        for (int i = 0; i < 20; ++i) writer->Enter(CallKind::kAllReduce, MeetingAxis::kWorld);
      }
      rests = true;
      std::this_thread::sleep_for(microseconds(100));
      rests = false;
    }
    rests = true;
  });
  const auto wait_for_rest = [&] {
    while (!rests) PageReader::PauseForWriter();
  };
  int torn = 0;
  for (int i = 0; i < 20000; ++i) {
    const PageView view = *reader->Read(wait_for_rest);
    const auto world = static_cast<size_t>(MeetingAxis::kWorld);
    if (view.call.kind != CallKind::kNone && view.call.sequence != view.groups[world].calls) ++torn;
  }
  over = true;
  thread.join();
  EXPECT_EQ(torn, 0);
}

// The page's second word is odd while its writer is amid a change.
TEST_F(ProgressPageTest, IsReadOnceItsWriterIsThroughOrAfterSomePauses) {
  ASSERT_TRUE(MakePageFile(path_).ok());
  ASSERT_TRUE(ProgressWriter::Open(path_, 1, 0).ok());
  const auto reader = PageReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  const int file = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  void* const words = mmap(nullptr, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  ASSERT_NE(words, MAP_FAILED);
  auto& lock = *(static_cast<std::atomic<uint64_t>*>(words) + 1);
  ASSERT_EQ(lock % 2, 0U);
  ++lock;
  int pauses = 0;
  EXPECT_TRUE(reader
                  ->Read([&] {
                    if (++pauses == 10) ++lock;  // the writer is through
                  })
                  .ok());
  EXPECT_EQ(pauses, 10) << "it is not waited for, or for longer than that";
  ++lock;  // and is gone, amid a change
  pauses = 0;
  EXPECT_TRUE(reader->Read([&] { ++pauses; }).ok());
  EXPECT_GT(pauses, 10);
  EXPECT_LT(pauses, 1000);
  munmap(words, 16);
}

}  // namespace
}  // namespace weft
