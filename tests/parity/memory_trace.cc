#include "tests/parity/memory_trace.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/parity/allocations.h"

namespace weft {
namespace {

using Json = nlohmann::json;

std::string PathOf(const std::string& folder, int rank) {
  return absl::StrCat(folder, "/memory/rank-", rank, ".json");
}

// proc(5), statm: size and resident set in pages. Plain reads: a stream would allocate.
int64_t ResidentBytes() {
  std::array<char, 128> text = {};
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t bytes = read(fd, text.data(), text.size() - 1);
  close(fd);
  if (bytes <= 0) return -1;
  char* rest = nullptr;
  (void)std::strtoll(text.data(), &rest, 10);
  return std::strtoll(rest, nullptr, 10) * getpagesize();
}

}  // namespace

absl::StatusOr<MemoryRecorder> MemoryRecorder::Create(int64_t steps) {
  MemoryRecorder recorder;
  recorder.read_ =
      reinterpret_cast<WeftReadAllocationsFunction*>(dlsym(RTLD_DEFAULT, kReadAllocations));
  if (recorder.read_ == nullptr) {
    return absl::FailedPreconditionError("allocations are not counted: preload the library");
  }
  recorder.trace_.steps.reserve(static_cast<size_t>(steps));
  recorder.trace_.base_rss_bytes = ResidentBytes();
  return recorder;
}

void MemoryRecorder::StepDone() {
  WeftAllocations now = {};
  read_(&now);
  trace_.steps.push_back({.calls = now.calls - calls_,
                          .live_bytes = now.live_bytes,
                          .peak_bytes = now.peak_bytes,
                          .mapped_bytes = now.mapped_bytes,
                          .rss_bytes = ResidentBytes()});
  calls_ = now.calls;
}

absl::Status MemoryRecorder::Write(const std::string& folder, int rank, int64_t arena_bytes) const {
  Json json = {{"base_rss_bytes", trace_.base_rss_bytes},
               {"arena_bytes", arena_bytes},
               {"steps", Json::array()}};
  for (const MemoryTrace::Step& step : trace_.steps) {
    json["steps"].push_back(
        {step.calls, step.live_bytes, step.peak_bytes, step.mapped_bytes, step.rss_bytes});
  }
  const std::string path = PathOf(folder, rank);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::ofstream file(path);
  file << json.dump() << "\n";
  file.close();
  return file ? absl::OkStatus() : absl::InternalError(absl::StrCat(path, ": not written"));
}

absl::StatusOr<std::vector<MemoryTrace>> ReadMemoryTraces(const std::string& folder,
                                                          int world_size) {
  std::vector<MemoryTrace> traces;
  for (int rank = 0; rank < world_size; ++rank) {
    std::ifstream file(PathOf(folder, rank));
    const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      return absl::InternalError(absl::StrCat(PathOf(folder, rank), " is not JSON"));
    }
    MemoryTrace& trace = traces.emplace_back();
    trace.base_rss_bytes = json.at("base_rss_bytes");
    trace.arena_bytes = json.at("arena_bytes");
    for (const Json& step : json.at("steps")) {
      trace.steps.push_back({step.at(0), step.at(1), step.at(2), step.at(3), step.at(4)});
    }
  }
  return traces;
}

}  // namespace weft
