#include "worker/probe/folder_relay.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(2);

}  // namespace

FolderRelay::FolderRelay(std::string folder, int rank) : folder_(std::move(folder)), rank_(rank) {}

std::string FolderRelay::PathOf(const char* topic, int from) const {
  return absl::StrCat(folder_, "/", topic, ".", from);
}

BackendStatus FolderRelay::Send(const char* topic, const int* /*to*/, int /*count*/,
                                const void* data, int bytes) {
  const std::string path = PathOf(topic, rank_);
  const std::string part = absl::StrCat(path, ".part");
  std::ofstream stream(part, std::ios::binary);
  stream.write(static_cast<const char*>(data), bytes);
  stream.close();
  std::error_code error;
  if (stream.good()) std::filesystem::rename(part, path, error);
  if (stream.good() && !error) return {};
  return Failure(kUnavailable, "%.150s cannot be written; is there room in its folder?",
                 path.c_str());
}

BackendStatus FolderRelay::Receive(const char* topic, int from, int64_t timeout_ms, void* data,
                                   int bytes) {
  using Clock = std::chrono::steady_clock;
  const std::string path = PathOf(topic, from);
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  std::error_code error;
  while (!std::filesystem::exists(path, error)) {
    if (Clock::now() > end) {
      return Failure(kDeadlineExceeded, "rank %d did not send its %s within %lld ms", from, topic,
                     static_cast<long long>(timeout_ms));
    }
    std::this_thread::sleep_for(kPoll);
  }
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  const std::string value = text.str();
  if (value.size() != static_cast<size_t>(bytes)) {
    return Failure(kInternal, "the %s of rank %d has %zu bytes instead of %d", topic, from,
                   value.size(), bytes);
  }
  std::memcpy(data, value.data(), value.size());
  return {};
}

}  // namespace weft
