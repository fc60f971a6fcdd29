#include "launcher/inference/inference_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/model_json.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/start.h"
#include "plan/errors.h"
#include "process/version.h"
#include "text/json.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 20;
constexpr int kPatienceMs = 1000;
// A worker may be silent so long between two events: one tensor to load, one batch to evaluate, a
// prompt to read.
constexpr std::chrono::minutes kLongestSilence{30};

// A pipe; both ends are closed with it.
class Pipe {
 public:
  static absl::StatusOr<Pipe> Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return absl::ErrnoToStatus(errno, "cannot make a pipe");
    }
    return Pipe(ends[0], ends[1]);
  }
  Pipe(Pipe&& other) noexcept : read_(other.read_), write_(other.write_) {
    other.read_ = other.write_ = -1;
  }
  Pipe& operator=(Pipe&&) = delete;
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }

  int read_end() const { return read_; }
  int write_end() const { return write_; }
  void CloseRead() { Close(&read_); }
  void CloseWrite() { Close(&write_); }

 private:
  Pipe(int read, int write) : read_(read), write_(write) {}
  static void Close(int* fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }

  int read_;
  int write_;
};

// A worker that dies early shows as its end: SIGPIPE is ignored (commands/standard_streams.h).
void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return;
    done += static_cast<size_t>(wrote);
  }
}

// The request as it is sent. InvalidArgument if a path in it is not UTF-8, which JSON cannot hold.
absl::StatusOr<std::string> TextOf(nlohmann::json request) {
  request["version"] = Version();
  try {
    return request.dump();
  } catch (const nlohmann::json::type_error& wrong) {
    return absl::InvalidArgumentError(
        absl::StrCat("a path is not UTF-8: rename the file (", wrong.what(), ")"));
  }
}

absl::Status EndOf(ChildProcess& child) {
  std::optional<int> status;
  for (int waited = 0; !(status = child.Ended()) && waited < kPatienceMs; waited += kPollMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
  }
  if (!status) status = child.Stop(0);
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return absl::OkStatus();
  return absl::InternalError(
      WIFSIGNALED(*status)
          ? absl::StrCat("weft-worker was ended by signal ", WTERMSIG(*status),
                         WTERMSIG(*status) == SIGKILL ? "; is memory short?" : "")
          : absl::StrCat("weft-worker ended with code ", WEXITSTATUS(*status), " without a word"));
}

// Whole lines out of what a pipe yields.
class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}

  // The next line, or nothing within kPollMs; at_end() tells the end of the pipe.
  std::optional<std::string> Next() {
    if (auto line = Cut()) return line;
    pollfd ready = {fd_, POLLIN, 0};
    if (poll(&ready, 1, kPollMs) <= 0) return std::nullopt;
    char buffer[1 << 14];
    const ssize_t got = read(fd_, buffer, sizeof buffer);
    if (got > 0) buffered_.append(buffer, static_cast<size_t>(got));
    at_end_ = got == 0 || (got < 0 && errno != EINTR);
    return Cut();
  }
  bool at_end() const { return at_end_; }

 private:
  std::optional<std::string> Cut() {
    const size_t end = buffered_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = buffered_.substr(0, end);
    buffered_.erase(0, end + 1);
    return line;
  }

  int fd_;
  bool at_end_ = false;
  std::string buffered_;
};

absl::Status Follow(const InferenceRun& run, ChildProcess& child, int events,
                    const std::function<void(const nlohmann::json& event)>& take) {
  Lines lines(events);
  Clock::time_point heard = Clock::now();
  while (true) {
    if (run.stop != nullptr && *run.stop) {
      child.Stop(kPatienceMs);
      return absl::CancelledError("stopped");
    }
    const std::optional<std::string> line = lines.Next();
    if (!line) {
      if (lines.at_end()) return EndOf(child);
      if (Clock::now() - heard > kLongestSilence) {
        child.Stop(kPatienceMs);
        return absl::DeadlineExceededError("weft-worker was silent for 30 minutes");
      }
      continue;
    }
    heard = Clock::now();
    const nlohmann::json event = ParseJson(*line).value_or(nullptr);
    if (!event.is_object() || !event.contains("event")) continue;  // a library's remark
    try {
      const std::string kind = event["event"];
      if (kind == "error") {
        return {static_cast<absl::StatusCode>(event.value("code", 2)),
                event.value("message", std::string())};
      }
      if (kind != "loading") take(event);
    } catch (const nlohmann::json::exception& wrong) {
      child.Stop(kPatienceMs);
      return absl::InternalError(absl::StrCat("weft-worker reported ", *line, ": ", wrong.what()));
    }
  }
}

}  // namespace

absl::Status CheckMemory(const ModelShape& model, const InferenceExtents& extents,
                         BackendKind backend, absl::string_view knob) {
  if (backend != BackendKind::kCpu) return absl::OkStatus();
  const int64_t needed = PlanInferenceMemory(model, extents).total_bytes();
  const std::optional<int64_t> available = AvailableMemoryBytes();
  if (!available || needed <= *available) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("memory: ", needed, " bytes are needed, ",
                                                    *available, " are free; use a smaller ", knob));
}

void DescribeWeights(const FoundWeights& found, nlohmann::json* request) {
  (*request)["weights"] = found.path;
  (*request)["model"] = ParseJson(ModelJson(found.model)).value();
}

nlohmann::json DocumentsJson(const CheckpointData& data) {
  const auto id = [](const std::optional<int64_t>& mark) {
    return mark ? nlohmann::json(*mark) : nlohmann::json();
  };
  return {{"bos_token_id", id(data.bos_token_id)},
          {"eos_token_id", id(data.eos_token_id)},
          {"reset_attention_mask", data.reset_attention_mask},
          {"reset_position_ids", data.reset_position_ids}};
}

absl::Status RunInference(const InferenceRun& run,
                          const std::function<void(const nlohmann::json& event)>& take) {
  ASSIGN_OR_RETURN(const std::string text, TextOf(run.request));
  ASSIGN_OR_RETURN(Pipe request, Pipe::Open());
  ASSIGN_OR_RETURN(Pipe events, Pipe::Open());
  ChildOptions options;
  options.argv = {Beside("weft-worker"), "--infer"};
  options.env = {{"OMP_NUM_THREADS", absl::StrCat(run.threads)},
                 {"OPENBLAS_NUM_THREADS", absl::StrCat(run.threads)}};
  options.stdin_fd = request.read_end();
  options.stdout_fd = events.write_end();
  options.stderr_fd = STDERR_FILENO;
  absl::StatusOr<ChildProcess> child = ChildProcess::Start(options);
  if (absl::IsNotFound(child.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(child.status().message(), "; it lies beside weft"));
  }
  RETURN_IF_ERROR(child.status());
  request.CloseRead();
  events.CloseWrite();
  WriteAll(request.write_end(), text);
  request.CloseWrite();
  return Follow(run, *child, events.read_end(), take);
}

}  // namespace weft
