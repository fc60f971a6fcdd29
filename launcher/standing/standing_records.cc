#include "launcher/standing/standing_records.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/whole_file.h"
#include "launcher/machine/leftovers.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;
constexpr int kLookEveryMs = 10;
constexpr char kLock[] = "/lock";
constexpr char kPrefix[] = "allocation-";
constexpr char kSuffix[] = ".json";

std::string TextOf(const std::filesystem::path& path) {
  return ReadWholeFile(path, kMostJsonBytes).value_or("");
}

Json EndJson(const AllocationEnd& end) {
  return {{"exit_code", end.exit_code}, {"signal", end.signal}, {"last_words", end.last_words}};
}

}  // namespace

std::string RecordText(const AllocationRecord& record, const std::string& machine) {
  const AllocationOrder& order = record.order;
  Json json = {{"format_version", kFormatVersion},
               {"machine", machine},
               {"job_id", order.job_id},
               {"allocation", order.allocation},
               {"run_id", order.run_id},
               {"run_folder", order.run_folder},
               {"host_slots", order.host_slots},
               {"slots", order.slots},
               {"ranks_user", order.ranks_user},
               {"ranks_uid", order.ranks_uid},
               {"words", record.words},
               {"words_from", record.words_from}};
  if (record.end) json["end"] = EndJson(*record.end);
  // The words of an agent may be cut inside a character.
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

std::optional<AllocationRecord> ParseRecord(const std::string& text, const std::string& machine) {
  const Json json = ParseOrderedJson(text).value_or(nullptr);
  if (!json.is_object()) return std::nullopt;
  try {
    if (json.at("format_version") != kFormatVersion || json.at("machine") != machine) {
      return std::nullopt;
    }
    AllocationRecord record;
    AllocationOrder& order = record.order;
    json.at("job_id").get_to(order.job_id);
    json.at("allocation").get_to(order.allocation);
    json.at("run_id").get_to(order.run_id);
    json.at("run_folder").get_to(order.run_folder);
    json.at("host_slots").get_to(order.host_slots);
    json.at("slots").get_to(order.slots);
    if (json.contains("ranks_user")) {  // written since there is one
      json.at("ranks_user").get_to(order.ranks_user);
      json.at("ranks_uid").get_to(order.ranks_uid);
    }
    json.at("words").get_to(record.words);
    json.at("words_from").get_to(record.words_from);
    if (json.contains("end")) {
      AllocationEnd end;
      json.at("end").at("exit_code").get_to(end.exit_code);
      json.at("end").at("signal").get_to(end.signal);
      json.at("end").at("last_words").get_to(end.last_words);
      record.end = std::move(end);
    }
    return CheckOrder(order).ok() ? std::optional(std::move(record)) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

absl::StatusOr<StandingRecords> StandingRecords::Open(const std::string& folder,
                                                      const std::string& machine, int patience_ms) {
  StandingRecords records(folder, machine);
  const std::string path = folder + kLock;
  for (int waited = 0;; waited += kLookEveryMs) {
    ASSIGN_OR_RETURN(const bool taken, records.TryLock());
    if (taken) break;
    if (waited >= patience_ms) {
      std::string pid = TextOf(path);
      return absl::UnavailableError(absl::StrCat(
          "another standing agent of this host runs already, process ",
          pid.empty() ? "unknown" : pid, "; end that one, or give this one another --name"));
    }
    usleep(kLookEveryMs * 1000);
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(records.lock_.get(), 0) != 0 ||
      pwrite(records.lock_.get(), pid.data(), pid.size(), 0) < 0) {
    return absl::ErrnoToStatus(errno, path);
  }
  return records;
}

absl::StatusOr<bool> StandingRecords::TryLock() {
  RETURN_IF_ERROR(MakePrivateFolder(folder_));
  const std::string path = folder_ + kLock;
  lock_ = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_.valid()) {
    if (errno == ENOENT) return false;  // the folder has gone in between
    return absl::ErrnoToStatus(errno, path);
  }
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return false;
    return absl::ErrnoToStatus(errno, path);
  }
  // Whoever had it may have removed the file since it was opened.
  struct stat held = {};
  struct stat named = {};
  return fstat(lock_.get(), &held) == 0 && stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void StandingRecords::RemoveIfEmpty() const {
  if (!Read().empty()) return;
  unlink((folder_ + kLock).c_str());
  rmdir(folder_.c_str());  // not if anything else is there
}

std::string StandingRecords::PathOf(int64_t allocation) const {
  return absl::StrCat(folder_, "/", kPrefix, allocation, kSuffix);
}

std::vector<AllocationRecord> StandingRecords::Read() const {
  std::vector<AllocationRecord> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, kPrefix)) continue;
    std::optional<AllocationRecord> record = ParseRecord(TextOf(entry.path()), machine_);
    if (record && entry.path() == PathOf(record->order.allocation)) {
      found.push_back(*std::move(record));
    } else {
      unlink(entry.path().c_str());
    }
  }
  return found;
}

absl::Status StandingRecords::Write(const AllocationRecord& record) const {
  const std::string path = PathOf(record.order.allocation);
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << RecordText(record, machine_) << std::flush;
  if (!file)
    return absl::UnavailableError(absl::StrCat("cannot write ", part, "; make room there"));
  file.close();
  // The file is for whoever comes after this process, not after the machine: it is not synced.
  if (rename(part.c_str(), path.c_str()) != 0) return absl::ErrnoToStatus(errno, path);
  return absl::OkStatus();
}

void StandingRecords::Remove(const AllocationRecord& record) const {
  unlink(PathOf(record.order.allocation).c_str());
  if (absl::StartsWith(record.words, folder_ + "/")) unlink(record.words.c_str());
}

}  // namespace weft
