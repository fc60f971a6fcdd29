#include "process/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "process/clock.h"

namespace weft {
namespace {

constexpr uint64_t kVersion = 0x7765667470670002;  // "weftpg", and a number for each layout
constexpr int kReadTries = 128;                    // the second half with pauses
constexpr std::chrono::microseconds kReadPause{10};
constexpr size_t kActionWords = 2;  // of 8 bytes

template <typename T>
void Set(std::atomic<T>& field, T value) {
  field.store(value, std::memory_order_relaxed);
}
template <typename T>
T Get(const std::atomic<T>& field) {
  return field.load(std::memory_order_relaxed);
}

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

}  // namespace

// All of it begins as 0, which is what a new file holds.
struct ProgressPage {
  struct Group {
    std::atomic<uint64_t> key;
    std::atomic<int64_t> calls;
  };
  struct Mark {
    std::atomic<int64_t> polls;
    std::atomic<int32_t> peer_plus_one;
  };

  std::atomic<uint64_t> version;  // 0: nobody has written it yet
  std::atomic<uint64_t> lock;     // odd: the writer is at it
  std::atomic<int64_t> generation;
  std::atomic<int64_t> rank;
  std::atomic<int64_t> pid;
  std::atomic<int64_t> busy_us;
  std::atomic<int64_t> changed_boot_ms;
  std::atomic<int32_t> phase;
  std::atomic<int64_t> step;
  std::atomic<int64_t> action;
  std::array<std::atomic<uint64_t>, kActionWords> action_text;
  std::atomic<int32_t> call_kind;
  std::atomic<int32_t> call_axis;
  std::atomic<int64_t> call_sequence;
  std::atomic<int32_t> call_peer;
  std::array<Group, kMeetingAxes> groups;
  std::atomic<int64_t> departure_step;
  std::atomic<int32_t> departure_axis;
  std::atomic<int64_t> departure_expected;
  std::atomic<int64_t> departure_calls;
  alignas(64) Mark blocking;
  alignas(64) Mark started;
};

namespace {

static_assert(std::atomic<int64_t>::is_always_lock_free);

absl::StatusOr<std::shared_ptr<ProgressPage>> Map(const std::string& path, bool writable) {
  const int fd = open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("progress page ", path));
  struct stat found = {};
  const bool is_whole =
      fstat(fd, &found) == 0 && found.st_size >= static_cast<off_t>(sizeof(ProgressPage));
  void* const memory = is_whole
                           ? mmap(nullptr, sizeof(ProgressPage),
                                  writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0)
                           : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) {
    return absl::UnavailableError(absl::StrCat("progress page ", path, ": cannot be mapped"));
  }
  return std::shared_ptr<ProgressPage>(static_cast<ProgressPage*>(memory), [](ProgressPage* page) {
    munmap(page, sizeof(ProgressPage));
  });
}

// FNV-1a, over the ranks; never 0.
uint64_t KeyOf(absl::Span<const int> ranks) {
  uint64_t key = 0xcbf29ce484222325;
  for (const int rank : ranks) key = (key ^ static_cast<uint64_t>(rank)) * 0x100000001b3;
  return key | 1;
}

PageView Copy(const ProgressPage& page) {
  PageView view;
  view.generation = Get(page.generation);
  view.rank = static_cast<int>(Get(page.rank));
  view.pid = Get(page.pid);
  view.phase = static_cast<RankPhase>(Get(page.phase));
  view.step = Get(page.step);
  view.action = Get(page.action);
  std::array<char, kActionWords* 8 + 1> text = {};
  for (size_t i = 0; i < kActionWords; ++i) {
    const uint64_t word = Get(page.action_text[i]);
    std::memcpy(text.data() + 8 * i, &word, 8);
  }
  view.action_text = text.data();
  view.call = {static_cast<CallKind>(Get(page.call_kind)),
               static_cast<MeetingAxis>(Get(page.call_axis)), Get(page.call_sequence),
               Get(page.call_peer)};
  for (size_t i = 0; i < view.groups.size(); ++i) {
    view.groups[i] = {Get(page.groups[i].key), Get(page.groups[i].calls)};
  }
  if (Get(page.departure_step) != 0) {
    view.departure = {Get(page.departure_step), static_cast<MeetingAxis>(Get(page.departure_axis)),
                      Get(page.departure_expected), Get(page.departure_calls)};
  }
  view.busy_ms = Get(page.busy_us) / 1000;
  view.changed_boot_ms = Get(page.changed_boot_ms);
  return view;
}

}  // namespace

absl::string_view NameOf(RankPhase phase) {
  switch (phase) {
    case RankPhase::kStart:
      return "start";
    case RankPhase::kCommInit:
      return "communicator start";
    case RankPhase::kLoad:
      return "load";
    case RankPhase::kStep:
      return "step";
    case RankPhase::kEval:
      return "validation";
    case RankPhase::kSave:
      return "save";
    case RankPhase::kTeardown:
      return "teardown";
  }
  return "unknown phase";
}

absl::string_view NameOf(MeetingAxis axis) {
  switch (axis) {
    case MeetingAxis::kTensor:
      return "tp";
    case MeetingAxis::kReplicas:
      return "replicas of dp";
    case MeetingAxis::kTiedCopies:
      return "copies of the tied embedding";
    case MeetingAxis::kWorld:
      return "all ranks";
    case MeetingAxis::kKvCopies:
      return "ranks that share kv heads";
    case MeetingAxis::kShards:
      return "shards of dp";
    case MeetingAxis::kContext:
      return "cp";
    case MeetingAxis::kTrain:
      return "the start of all ranks";
    case MeetingAxis::kBegin:
      return "the beginning of training";
    case MeetingAxis::kSaveDone:
      return "all shards of a save";
    case MeetingAxis::kSaveOver:
      return "the end of a save";
  }
  return "unknown group";
}

absl::string_view NameOf(CallKind kind) {
  switch (kind) {
    case CallKind::kNone:
      return "no call";
    case CallKind::kAllReduce:
      return "all-reduce";
    case CallKind::kReduceScatter:
      return "reduce-scatter";
    case CallKind::kAllGather:
      return "all-gather";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kExchange:
      return "exchange";
    case CallKind::kAwaitStarted:
      return "wait for a started collective";
    case CallKind::kDevice:
      return "wait for the device";
    case CallKind::kMeeting:
      return "wait";
  }
  return "unknown call";
}

std::string PagePath(const std::string& folder, int rank) {
  return absl::StrCat(folder, "/rank-", rank, ".page");
}

absl::Status MakePageFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("progress page ", path));
  // Room is taken now: what is only promised ends whoever writes to it later, by SIGBUS.
  bool made = fallocate(fd, 0, 0, sizeof(ProgressPage)) == 0;
  if (!made && errno == EOPNOTSUPP) made = ftruncate(fd, sizeof(ProgressPage)) == 0;
  const absl::Status why = absl::ErrnoToStatus(errno, absl::StrCat("progress page ", path));
  close(fd);
  if (made) return absl::OkStatus();
  unlink(path.c_str());
  return why;
}

absl::StatusOr<PageReader> PageReader::Open(const std::string& path) {
  absl::StatusOr<std::shared_ptr<ProgressPage>> page = Map(path, /*writable=*/false);
  if (!page.ok()) return page.status();
  return PageReader(*std::move(page));
}

void PageReader::PauseForWriter() {
  std::this_thread::sleep_for(kReadPause);
}

absl::StatusOr<PageView> PageReader::Read(const std::function<void()>& pause) const {
  const uint64_t version = page_->version.load(std::memory_order_acquire);
  if (version == 0) return PageView();
  if (version != kVersion) {
    return absl::FailedPreconditionError(
        "a rank's progress page is of another version; install the same weft everywhere");
  }
  PageView view;
  for (int i = 0; i < kReadTries; ++i) {
    const uint64_t before = page_->lock.load(std::memory_order_acquire);
    view = Copy(*page_);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && page_->lock.load(kRelaxed) == before) break;
    // A writer that has lost its core in between goes on; one that is gone has left it so.
    if (i >= kReadTries / 2) pause();
  }
  view.polls = Get(page_->blocking.polls) + Get(page_->started.polls);
  const bool is_started = view.call.kind == CallKind::kAwaitStarted;
  const ProgressPage::Mark& mark = is_started ? page_->started : page_->blocking;
  const int32_t peer = Get(mark.peer_plus_one) - 1;
  if (view.call.kind != CallKind::kNone && peer >= 0) view.call.peer = peer;
  return view;
}

ProgressWriter::ProgressWriter() : ProgressWriter(std::make_shared<ProgressPage>()) {}

ProgressWriter::ProgressWriter(std::shared_ptr<ProgressPage> page) : page_(std::move(page)) {}

absl::StatusOr<ProgressWriter> ProgressWriter::Open(const std::string& path, int64_t generation,
                                                    int rank) {
  absl::StatusOr<std::shared_ptr<ProgressPage>> page = Map(path, /*writable=*/true);
  if (!page.ok()) return page.status();
  ProgressWriter writer(*std::move(page));
  writer.Write([&](ProgressPage& p) {
    Set(p.generation, generation);
    Set(p.rank, static_cast<int64_t>(rank));
    Set(p.pid, static_cast<int64_t>(getpid()));
    Set(p.action, int64_t{-1});
    Set(p.call_peer, int32_t{-1});
  });
  writer.page_->version.store(kVersion, std::memory_order_release);
  return writer;
}

template <typename Change>
void ProgressWriter::Write(const Change& change) {
  const uint64_t lock = page_->lock.load(kRelaxed);
  page_->lock.store(lock + 1, kRelaxed);
  std::atomic_thread_fence(std::memory_order_release);
  change(*page_);
  Set(page_->changed_boot_ms, BootTimeMs());
  page_->lock.store(lock + 2, std::memory_order_release);
}

void ProgressWriter::SetPhase(RankPhase phase) {
  Write([&](ProgressPage& p) {
    Set(p.phase, static_cast<int32_t>(phase));
    Set(p.action, int64_t{-1});
    for (std::atomic<uint64_t>& word : p.action_text) Set(word, uint64_t{0});
  });
}

void ProgressWriter::BeginOwn() {
  if (step_ > 0) own_since_us_ = BootTimeUs();
}

// It is followed by a change, with which the sum is seen.
void ProgressWriter::EndOwn() {
  if (own_since_us_ == 0) return;
  busy_us_ += BootTimeUs() - own_since_us_;
  own_since_us_ = 0;
  Set(page_->busy_us, busy_us_);
}

void ProgressWriter::BeginStep(int64_t step) {
  step_ = step;
  BeginOwn();
  point_ = 0;
  at_step_begin_ = calls_;
  Write([&](ProgressPage& p) {
    Set(p.phase, static_cast<int32_t>(RankPhase::kStep));
    Set(p.step, step);
  });
}

void ProgressWriter::BeginAction(int64_t index, absl::string_view text) {
  if (step_ > 0) CompareCalls(point_++);
  std::array<char, kActionWords* 8> bytes = {};
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size() - 1));
  Write([&](ProgressPage& p) {
    Set(p.action, index);
    for (size_t i = 0; i < kActionWords; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + 8 * i, 8);
      Set(p.action_text[i], word);
    }
  });
}

void ProgressWriter::EndStep() {
  CompareCalls(point_);
  has_profile_ = true;
  EndOwn();
  step_ = 0;
}

// The first step of a generation says how many calls have been made by which action.
void ProgressWriter::CompareCalls(size_t point) {
  Counts made = calls_;
  for (size_t i = 0; i < made.size(); ++i) made[i] -= at_step_begin_[i];
  if (!has_profile_) return profile_.push_back(made);
  if (point >= profile_.size() || Get(page_->departure_step) != 0) return;
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] == profile_[point][i]) continue;
    Write([&](ProgressPage& p) {
      Set(p.departure_step, step_);
      Set(p.departure_axis, static_cast<int32_t>(i));
      Set(p.departure_expected, profile_[point][i]);
      Set(p.departure_calls, made[i]);
    });
    return;
  }
}

void ProgressWriter::Join(MeetingAxis axis, absl::Span<const int> ranks) {
  const auto index = static_cast<size_t>(axis);
  Write([&](ProgressPage& p) { Set(p.groups[index].key, ranks.empty() ? 0 : KeyOf(ranks)); });
}

int64_t ProgressWriter::Count(MeetingAxis axis) {
  const auto index = static_cast<size_t>(axis);
  const int64_t calls = ++calls_[index];
  Write([&](ProgressPage& p) { Set(p.groups[index].calls, calls); });
  return calls;
}

int64_t ProgressWriter::Enter(CallKind kind, MeetingAxis axis, int peer) {
  const auto index = static_cast<size_t>(axis);
  const bool is_counted = kind != CallKind::kExchange && kind != CallKind::kDevice;
  const int64_t calls = is_counted ? ++calls_[index] : 0;
  if (kind != CallKind::kDevice) EndOwn();  // which is at this rank's own work, too
  Write([&](ProgressPage& p) {
    if (is_counted) Set(p.groups[index].calls, calls);
    Set(p.call_kind, static_cast<int32_t>(kind));
    Set(p.call_axis, static_cast<int32_t>(axis));
    Set(p.call_sequence, calls);
    Set(p.call_peer, static_cast<int32_t>(peer));
    Set(p.blocking.peer_plus_one, int32_t{0});
  });
  return calls;
}

void ProgressWriter::EnterWait(CallKind kind, MeetingAxis axis, int64_t sequence) {
  EndOwn();
  Write([&](ProgressPage& p) {
    Set(p.call_kind, static_cast<int32_t>(kind));
    Set(p.call_axis, static_cast<int32_t>(axis));
    Set(p.call_sequence, sequence);
    Set(p.call_peer, int32_t{-1});
    Set(p.blocking.peer_plus_one, int32_t{0});
  });
}

void ProgressWriter::Leave() {
  if (own_since_us_ == 0) BeginOwn();
  Write([&](ProgressPage& p) { Set(p.call_kind, static_cast<int32_t>(CallKind::kNone)); });
}

PollMarks ProgressWriter::blocking_marks() {
  return {&page_->blocking.polls, &page_->blocking.peer_plus_one};
}

PollMarks ProgressWriter::started_marks() {
  return {&page_->started.polls, &page_->started.peer_plus_one};
}

}  // namespace weft
