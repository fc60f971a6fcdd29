#include "coordinator/service/logs_stream.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "plan/errors.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(200);

// Files appear one by one as ranks start.
void AddNew(std::vector<LogFile> found, std::vector<LogFile>& files) {
  for (LogFile& each : found) {
    const bool is_known = std::any_of(
        files.begin(), files.end(), [&](const LogFile& known) { return known.path == each.path; });
    if (!is_known) files.push_back(std::move(each));
  }
}

}  // namespace

LogsStream::LogsStream(AskForJob ask, CallLimits::Held held, v1::LogsRequest request)
    : ask_(std::move(ask)), held_(std::move(held)), request_(std::move(request)) {
  thread_ = std::thread([this] { Run(); });
}

void LogsStream::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  written_ = true;
  gone_ = gone_ || !ok;
  changed_.notify_all();
}

void LogsStream::OnCancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  gone_ = true;
  changed_.notify_all();
}

void LogsStream::OnDone() {
  // gRPC may call this from within Finish.
  if (std::this_thread::get_id() == thread_.get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
  delete this;  // gRPC's callback API: a reactor owns itself
}

void LogsStream::Run() {
  absl::Status told;
  const absl::Status tried = Caught("Logs", [&] { told = Tell(); });
  Finish(ToGrpc(tried.ok() ? told : tried));
}

absl::Status LogsStream::Tell() {
  if (request_.tail_lines() < 0 || request_.generation() < 0) {
    return absl::InvalidArgumentError("tail_lines and generation: have to be 0 or more");
  }
  ASSIGN_OR_RETURN(v1::Job job, Job());
  LogQuestion question{.run_folder = job.run_folder(),
                       .ranks = {request_.ranks().begin(), request_.ranks().end()},
                       .generation = request_.generation(),
                       .tail_lines = request_.tail_lines(),
                       .since_unix_ms = request_.since_unix_ms()};
  std::vector<LogFile> files;
  while (true) {
    const bool is_over = job.ended_unix_ms() > 0;
    const int64_t newest = request_.generation() > 0 ? request_.generation() : job.generation();
    if (std::exchange(question.generation, newest) != newest) files.clear();
    AddNew(FindLogs(question), files);
    question.tail_lines = 0;  // whatever comes later is new
    if (!TellFiles(newest, files, is_over || !request_.follow())) return absl::OkStatus();
    if (is_over || !request_.follow()) return absl::OkStatus();
    if (!Rest()) return absl::OkStatus();
    const absl::StatusOr<v1::Job> now = Job();
    // A weftd that closes has told all that there is.
    if (!now.ok() && !TellFiles(newest, files, /*to_end=*/true)) return absl::OkStatus();
    if (!now.ok()) return now.status();
    job = *now;
  }
}

bool LogsStream::TellFiles(int64_t generation, std::vector<LogFile>& files, bool to_end) {
  for (LogFile& file : files) {
    for (std::string text = ReadLines(file, to_end); !text.empty();
         text = ReadLines(file, to_end)) {
      v1::LogsReply reply;
      reply.set_rank(file.rank);
      reply.set_generation(generation);
      reply.set_file(file.name);
      reply.set_text(std::move(text));
      if (!Write(std::move(reply))) return false;
    }
  }
  return true;
}

bool LogsStream::Write(v1::LogsReply reply) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (gone_) return false;
  reply_ = std::move(reply);
  written_ = false;
  StartWrite(&reply_);
  changed_.wait(lock, [this] { return written_; });
  return !gone_;
}

absl::StatusOr<v1::Job> LogsStream::Job() {
  auto answer = std::make_shared<std::promise<absl::StatusOr<v1::Job>>>();
  v1::GetRequest request;
  request.set_job_id(request_.job_id());
  ask_(request, [answer](const absl::StatusOr<v1::Job>& job) { answer->set_value(job); });
  return answer->get_future().get();
}

bool LogsStream::Rest() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, kLookEvery, [this] { return gone_; });
  return !gone_;
}

}  // namespace weft
