// A rank's progress page: what it does at the moment, in memory that it shares with its host's
// agent, which reads it without asking the rank. A rank that hangs cannot say so; its page does.
// One writer (ProgressWriter, the rank's main thread), which never waits and makes no call of the
// kernel's; any number of readers. The agent makes the file, the rank maps it.
//
// A page has a version, which both sides compare, and a sequence lock: a reader takes its copy
// again while the writer is at it. The poll marks are beside the lock: other threads write them.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// A rank's phases stand in the order of its life.
enum class RankPhase : int32_t { kStart, kCommInit, kLoad, kStep, kEval, kSave, kTeardown };
absl::string_view NameOf(RankPhase phase);  // "communicator start"

// With whom a rank meets: its groups (worker/state/groups.h), by what they have in common, and the
// points at which ranks meet by way of the coordinator. A rank has at most one group of each.
enum class MeetingAxis : int32_t {
  kTensor,
  kReplicas,
  kTiedCopies,
  kWorld,
  kKvCopies,
  kShards,
  kContext,
  kTrain,     // all are started
  kBegin,     // all are ready
  kSaveDone,  // all have written their part of a save
  kSaveOver,  // it is committed, or given up
};
inline constexpr int kMeetingAxes = 11;
absl::string_view NameOf(MeetingAxis axis);  // "tp", "replicas of dp"

enum class CallKind : int32_t {
  kNone,  // is in no call
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBarrier,
  kExchange,      // transfers with peers, of no group
  kAwaitStarted,  // waits for collectives that move beside the passes
  kDevice,        // waits for the device, and so for whatever is queued on it
  kMeeting,       // waits for others by way of the coordinator
};
absl::string_view NameOf(CallKind kind);  // "all-reduce"

// The call that a rank is in.
struct PageCall {
  CallKind kind = CallKind::kNone;
  MeetingAxis axis = MeetingAxis::kWorld;  // not of kExchange and kDevice
  int64_t sequence = 0;                    // counts the calls of that group from 1
  int peer = -1;                           // a rank that it has not heard from yet; -1: not known
  friend bool operator==(const PageCall&, const PageCall&) = default;
};

// How often a rank has called its group of an axis; the key is the same for the same ranks.
struct PageGroup {
  uint64_t key = 0;  // 0: it is in none
  int64_t calls = 0;
  friend bool operator==(const PageGroup&, const PageGroup&) = default;
};

// Where a rank's calls have first departed from what its first step of the generation called by
// the same action: its schedule is the same in each step.
struct Departure {
  int64_t step = 0;  // 0: it has not
  MeetingAxis axis = MeetingAxis::kWorld;
  int64_t expected_calls = 0;
  int64_t calls = 0;  // since the step's beginning
  friend bool operator==(const Departure&, const Departure&) = default;
};

// A copy of a page, as of one moment.
struct PageView {
  int64_t generation = 0;
  int rank = -1;  // -1: nobody has written it yet
  int64_t pid = 0;
  RankPhase phase = RankPhase::kStart;
  int64_t step = 0;
  int64_t action = -1;      // index in the schedule; -1: none
  std::string action_text;  // "F3"
  PageCall call;
  std::array<PageGroup, kMeetingAxes> groups;
  Departure departure;
  int64_t busy_ms = 0;  // of all its steps, outside of calls in which it waits for other ranks
  int64_t changed_boot_ms = 0;  // when anything of it but the polls changed
  int64_t polls = 0;            // of the threads that wait in collectives
};

// A thread that waits in a collective raises these: WaitMarks of worker/backend/backend.h. A mark
// has one writer.
struct PollMarks {
  std::atomic<int64_t>* polls = nullptr;
  std::atomic<int32_t>* peer = nullptr;
};

struct ProgressPage;  // the layout in memory

// Makes the file of a rank's page, empty. AlreadyExists if it is there.
absl::Status MakePageFile(const std::string& path);
std::string PagePath(const std::string& folder, int rank);
// The folder of the pages of a rank's host and generation is named by this variable.
inline constexpr char kPagesVariable[] = "WEFT_PROGRESS_PAGES";

// A page that somebody else writes.
class PageReader {
 public:
  static absl::StatusOr<PageReader> Open(const std::string& path);
  // Returns what it holds now; the best that can be had of a writer that was stopped amid a change.
  // FailedPrecondition for a page of another version. `pause`: between two looks at a page whose
  // writer does not come through; some of them take 4 ms in all.
  absl::StatusOr<PageView> Read(const std::function<void()>& pause = PauseForWriter) const;
  static void PauseForWriter();

 private:
  explicit PageReader(std::shared_ptr<const ProgressPage> page) : page_(std::move(page)) {}
  std::shared_ptr<const ProgressPage> page_;
};

class ProgressWriter {
 public:
  // Nobody sees that page: so tests, and a worker without an agent, need no other code.
  ProgressWriter();
  // Maps the page of `path` and says whose it is.
  static absl::StatusOr<ProgressWriter> Open(const std::string& path, int64_t generation, int rank);

  void SetPhase(RankPhase phase);
  void BeginStep(int64_t step);
  // Before each action of a step, in order, and after the last one. `text`: up to 15 bytes.
  void BeginAction(int64_t index, absl::string_view text);
  void EndStep();
  // The rank is in the group of `ranks`.
  void Join(MeetingAxis axis, absl::Span<const int> ranks);

  // From Enter to Leave the rank is in that call. A call is counted when it is entered, or with
  // Count, where it goes on without the rank; both return its number, 0 if that kind has none.
  int64_t Enter(CallKind kind, MeetingAxis axis, int peer = -1);
  int64_t Count(MeetingAxis axis);
  void EnterWait(CallKind kind, MeetingAxis axis, int64_t sequence);
  void Leave();

  // For the thread that makes blocking calls, and for the one of started calls.
  PollMarks blocking_marks();
  PollMarks started_marks();

 private:
  using Counts = std::array<int64_t, kMeetingAxes>;
  explicit ProgressWriter(std::shared_ptr<ProgressPage> page);
  template <typename Change>
  void Write(const Change& change);
  void CompareCalls(size_t point);
  // From one to the other, the time of a step is its own.
  void BeginOwn();
  void EndOwn();

  std::shared_ptr<ProgressPage> page_;
  std::vector<Counts> profile_;  // of the first step: calls since its beginning, by action
  bool has_profile_ = false;
  Counts calls_ = {};
  Counts at_step_begin_ = {};
  int64_t step_ = 0;
  int64_t own_since_us_ = 0;  // 0: it waits, or is in no step
  int64_t busy_us_ = 0;
  size_t point_ = 0;  // actions of this step so far
};

// Enter and Leave of one call.
class InCall {
 public:
  InCall(ProgressWriter& writer, CallKind kind, MeetingAxis axis, int peer = -1)
      : writer_(writer), sequence_(writer.Enter(kind, axis, peer)) {}
  ~InCall() { writer_.Leave(); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

  int64_t sequence() const { return sequence_; }

 private:
  ProgressWriter& writer_;
  const int64_t sequence_;
};

}  // namespace weft
