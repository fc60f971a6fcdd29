#include "launcher/commands/ended_run.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/run/run_folder.h"
#include "launcher/service/job_view.h"
#include "plan/errors.h"
#include "process/run_lock.h"
#include "process/run_logs.h"
#include "proto/run_text.h"
#include "text/json_lines.h"

namespace weft {
namespace {

// 0: there is none.
int64_t NewestGeneration(const std::string& logs) {
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(logs, error)) {
    const std::string name = entry.path().filename();
    absl::string_view number = name;
    int64_t generation = 0;
    if (absl::ConsumePrefix(&number, "generation-") && absl::SimpleAtoi(number, &generation)) {
      newest = std::max(newest, generation);
    }
  }
  return newest;
}

}  // namespace

absl::StatusOr<std::optional<RunPaths>> FindEndedRun(const std::string& name) {
  std::error_code error;
  if (IsJobId(name) || !std::filesystem::exists(name, error)) return std::nullopt;
  ASSIGN_OR_RETURN(RunPaths paths, FindRun(name));
  if (IsRunning(paths.folder)) return std::nullopt;
  return std::optional(std::move(paths));
}

absl::Status ReadEndedEvents(const RunPaths& paths,
                             const std::function<void(const v1::Event&)>& on_event) {
  std::error_code error;
  if (!std::filesystem::exists(paths.events(), error)) {
    return absl::NotFoundError(
        absl::StrCat("nothing has happened in ", paths.folder, ": it holds no events.jsonl"));
  }
  const LinesLeftOut left_out =
      ForEachJsonLine(LinesOfRun(paths.events()), {}, [&](const nlohmann::ordered_json& line) {
        if (const std::optional<v1::Event> event = EventOf(line)) on_event(*event);
      });
  if (left_out.count > 0) std::cerr << "weft: " << left_out.Text() << "\n";
  return absl::OkStatus();
}

absl::Status ReadEndedLogs(const RunPaths& paths, const v1::LogsRequest& request,
                           const std::function<bool(const v1::LogsReply&)>& on_piece) {
  const int64_t newest = NewestGeneration(paths.logs());
  const int64_t generation = request.generation() > 0 ? request.generation() : newest;
  std::vector<LogFile> files = FindLogs({.run_folder = paths.folder,
                                         .ranks = {request.ranks().begin(), request.ranks().end()},
                                         .generation = generation,
                                         .tail_lines = request.tail_lines(),
                                         .since_unix_ms = request.since_unix_ms()});
  if (files.empty() && request.since_unix_ms() == 0) {
    return absl::NotFoundError(
        absl::StrCat(paths.logs(), ": holds no such log of generation ", generation,
                     newest > 0 ? absl::StrCat("; the newest generation there is ", newest) : ""));
  }
  for (LogFile& file : files) {
    for (std::string text = ReadLines(file, true); !text.empty(); text = ReadLines(file, true)) {
      v1::LogsReply piece;
      piece.set_rank(file.rank);
      piece.set_generation(generation);
      piece.set_file(file.name);
      piece.set_text(std::move(text));
      if (!on_piece(piece)) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
