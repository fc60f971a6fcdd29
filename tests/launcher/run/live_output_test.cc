// These tests say what becomes of a run's words where nobody takes them at once.
#include "launcher/run/live_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <sstream>
#include <string>

namespace weft {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A descriptor that stands for /dev/full, and from MakeRoom on for a pipe that the test reads.
class Output {
 public:
  Output() {
    descriptor_ = open("/dev/full", O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
  }
  ~Output() {
    for (const int each : {descriptor_, pipe_[0], pipe_[1]}) {
      if (each >= 0) close(each);
    }
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int descriptor() const { return descriptor_; }
  void MakeRoom() const { EXPECT_GE(dup2(pipe_[1], descriptor_), 0); }
  void CloseReader() {
    close(pipe_[0]);
    pipe_[0] = -1;
  }
  std::string Read() const {
    std::string text;
    char part[4096];
    for (ssize_t size = 0; (size = read(pipe_[0], part, sizeof part)) > 0;) {
      text.append(part, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  int descriptor_ = -1;
  int pipe_[2] = {-1, -1};
};

TEST(LiveOutput, WaitsForRoomAndKeepsTheOrder) {
  const Output output;
  std::ostringstream before;
  std::ostream stream(before.rdbuf());
  stream << "before ";
  {
    const LiveOutput live(stream, output.descriptor());
    stream << "step " << 1 << "\n" << std::flush;
    EXPECT_TRUE(stream.good());
    output.MakeRoom();
    EXPECT_THAT(output.Read(), IsEmpty());
    stream << "step 2\n" << std::flush;
    EXPECT_EQ(output.Read(), "step 1\nstep 2\n");
    stream << "step 3\n";
  }
  EXPECT_EQ(output.Read(), "step 3\n");
  stream << "after";
  EXPECT_EQ(before.str(), "before after");
}

TEST(LiveOutput, IsWrittenInPartsWhereOnlyAPartIsTaken) {
  const Output output;
  output.MakeRoom();  // a pipe holds 64 KiB
  std::ostringstream before;
  std::ostream stream(before.rdbuf());
  std::string said, taken;
  {
    const LiveOutput live(stream, output.descriptor());
    for (int step = 0; step < 20000; ++step) {
      const std::string line = "step " + std::to_string(step) + "\n";
      said += line;
      stream << line << std::flush;
    }
    while (taken.size() < said.size()) {
      const std::string part = output.Read();
      ASSERT_FALSE(part.empty());
      taken += part;
      stream << std::flush;
    }
  }
  EXPECT_EQ(taken, said);
}

TEST(LiveOutput, LeavesOutTheOldestOfTooMuchAndSaysSo) {
  const Output output;
  std::ostringstream before;
  std::ostream stream(before.rdbuf());
  testing::internal::CaptureStderr();
  std::string last;
  {
    const LiveOutput live(stream, output.descriptor());
    const std::string line(1023, 'x');
    for (int i = 0; i < 3000; ++i) stream << i << line << "\n" << std::flush;
    output.MakeRoom();
    for (std::string part; stream << std::flush, !(part = output.Read()).empty();) last += part;
  }
  EXPECT_LE(last.size(), LiveOutput::kMaxWaiting);
  EXPECT_THAT(last.substr(0, 100),
              HasSubstr(" bytes are left out here, which could not be written"));
  EXPECT_THAT(last, HasSubstr("\n2999x"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty()) << "the output says it itself";
}

TEST(LiveOutput, TellsWhatIsLostAtTheEnd) {
  const Output output;
  std::ostringstream before;
  std::ostream stream(before.rdbuf());
  testing::internal::CaptureStderr();
  {
    const LiveOutput live(stream, output.descriptor());
    stream << "step 1\n" << std::flush;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "weft: 7 bytes of the output could not be written: No space left on device\n");
}

// Whoever reads `weft run | head` has all that it wanted. Main ignores SIGPIPE.
TEST(LiveOutput, SaysNothingToNobody) {
  Output output;
  output.MakeRoom();
  output.CloseReader();
  std::ostringstream before;
  std::ostream stream(before.rdbuf());
  testing::internal::CaptureStderr();
  const auto ignored = signal(SIGPIPE, SIG_IGN);
  {
    const LiveOutput live(stream, output.descriptor());
    stream << "step 1\n" << std::flush << "step 2\n";
  }
  signal(SIGPIPE, ignored);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace weft
