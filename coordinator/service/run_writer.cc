#include "coordinator/service/run_writer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "coordinator/service/control_messages.h"
#include "plan/errors.h"
#include "plan/keys/resolved_job.h"
#include "process/folder_entry.h"
#include "process/log.h"
#include "process/run_files.h"
#include "proto/job_text.h"
#include "proto/run_text.h"
#include "proto/wire.h"
#include "text/json_lines.h"

namespace weft {
namespace {

constexpr int64_t kFilesWatch = 2;                // the writer's stream of a Driver's events
constexpr int64_t kTailBytes = int64_t{4} << 20;  // of events.jsonl
constexpr int64_t kTryEveryMs = 1000;
constexpr int64_t kMaxWaitingBytes = int64_t{64} << 20;

// resolved.yaml of the generation that `status` tells of. InvalidArgument: the job's text or the
// layout is none.
absl::StatusOr<std::string> ResolvedTextOf(const proto::SubmitJobRequest& request,
                                           const proto::JobStatus& status,
                                           const std::string& weft_version) {
  ASSIGN_OR_RETURN(const JobSpec job, ParseJobText(request.job()));
  ASSIGN_OR_RETURN(const Layout layout, FromProto(status.layout()));
  const RunRecord record{
      .run_id = request.run().id(),
      .generation = status.generation(),
      .weft_version = weft_version,
      .planned_bytes = status.planned_bytes(),
      .predicted_step_s = status.predicted_step_s(),
      .data = {request.data().begin(), request.data().end()},
      .accepted = {request.run().accepted().begin(), request.run().accepted().end()}};
  return ResolvedText(Resolve(job, layout), record);
}

// Ranks have said that it is there; whoever looks for it finds it, or not.
absl::Status CheckEnd(const proto::JobStatus& status) {
  if (status.phase() != PhaseName(Phase::kCompleted)) return absl::OkStatus();
  const std::string folder = status.saved().empty() ? "" : status.saved(0).folder();
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("its ranks say that it is through, but its last checkpoint is not there: ",
                   folder.empty() ? "none was committed" : folder));
}

// Returns the revision up to which events.jsonl has the allocation's. Others write into the folder
// of a run, too: lines that cannot be read are said, and change nothing.
int64_t NewestRevision(const RunWriter::Run& run) {
  int64_t newest = 0;
  const std::string path = EventsPath(run.request.run_folder());
  const OpenedEntry events = OpenEntry(EntryOf(path), EntryUse::kRead);
  const LinesLeftOut left_out =
      ForEachJsonLine(OpenedLines{path, events.descriptor, events.error, events.why},
                      {.most_bytes = kTailBytes}, [&](const nlohmann::ordered_json& line) {
                        newest = std::max(newest, RevisionIn(line, run.job_id, run.allocation));
                      });
  if (left_out.count > 0) LogWarning(absl::StrCat(run.job_id, ": ", left_out.Text()));
  return newest;
}

}  // namespace

struct RunWriter::Writing {
  Run run;
  std::unique_ptr<RunFiles> files;
  proto::JobStatus stands;
};

RunWriter::RunWriter() : queue_(kMaxWaitingBytes), thread_([this] { Loop(); }) {}

RunWriter::~RunWriter() {
  Close();
}

void RunWriter::Close() {
  queue_.Close();
  if (thread_.joinable()) thread_.join();
}

void RunWriter::Loop() {
  while (queue_.Wait(kTryEveryMs)) {
    for (const TaskQueue::Task& task : queue_.Take()) {
      Caught("writing files of a run", task).IgnoreError();
    }
    for (const std::shared_ptr<Writing>& each : writing_) each->files->TryAgain();
  }
  writing_.clear();
}

void RunWriter::Begin(Run run) {
  const auto writing = std::make_shared<Writing>();
  writing->run = std::move(run);
  const auto begin = [this, writing] {
    const Run& begun = writing->run;
    const std::string folder = begun.request.run_folder();
    const int64_t after = NewestRevision(begun);
    writing->files = std::make_unique<RunFiles>(folder, begun.warn, begun.reader);
    writing_.insert(writing);
    Watch(writing, after);
    writing->run.driver.reset();
  };
  queue_.Post(begin, 0, TaskQueue::Room::kAlways);
}

void RunWriter::Watch(const std::shared_ptr<Writing>& writing, int64_t after_revision) {
  proto::WatchRequest request;
  request.set_after_revision(after_revision);
  WatcherPort port;
  port.stands = [this, writing](const proto::JobStatus& status) {
    queue_.Post([writing, status] { writing->stands = status; }, 0, TaskQueue::Room::kAlways);
  };
  port.send = [this, writing](const std::vector<proto::JobEvent>& events) {
    if (std::all_of(events.begin(), events.end(), [](const auto& each) { return each.has_step(); }))
      return;
    const auto take = [writing, events] {
      for (const proto::JobEvent& each : events) Take(*writing, each);
    };
    queue_.Post(take, 0, TaskQueue::Room::kAlways);
  };
  port.close = [this, writing](const absl::Status&) {
    const auto finish = [this, writing] {
      writing->files.reset();
      writing_.erase(writing);
      writing->run.done(CheckEnd(writing->stands));
    };
    queue_.Post(finish, 0, TaskQueue::Room::kAlways);
  };
  writing->run.driver->Watch(kFilesWatch, std::move(request), std::move(port));
}

void RunWriter::Take(Writing& writing, const proto::JobEvent& event) {
  std::optional<v1::Event> told = EventMessage(event);
  if (!told) return;
  told->set_revision(event.revision());
  writing.files->WriteEvent(EventLine(*told, writing.run.job_id, writing.run.allocation));
  if (!event.has_phase() || event.phase().phase() != "STARTING") return;
  const absl::StatusOr<std::string> text =
      ResolvedTextOf(writing.run.request, writing.stands, writing.run.version);
  if (text.ok()) writing.files->WriteResolved(*text).IgnoreError();
}

}  // namespace weft
