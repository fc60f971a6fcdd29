#include "data/prepare/prepared_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "data/megatron_index.h"
#include "data/token_judge.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "process/failpoint.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr int64_t kMostTokensOfLength = std::numeric_limits<int32_t>::max();
constexpr size_t kLengthsBuffer = size_t{1} << 16;

constexpr size_t kMostHolder = 65;  // a host's name, and an end

// Files of the folder, and where they go.
constexpr char kTokens[] = "tokens", kLengths[] = "lengths", kState[] = "state.json",
               kNewState[] = "state.new", kIndex[] = "index", kRecord[] = "record",
               kLock[] = "lock";

struct Published {
  const char* inside;
  const char* ending;
};
constexpr Published kPublished[] = {
    {kTokens, ".bin"}, {kIndex, ".idx"}, {kRecord, ".prepared.json"}};

absl::Status DiskError(int error, const std::string& path, absl::string_view what) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": ", what, ": ", std::strerror(error),
        "; make room and give the same command again, without --force: it goes on from where ",
        "it was"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": ", what));
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::Status SyncDirectory(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(folder, ": cannot be opened"));
  const int code = fsync(fd);
  const int error = errno;
  close(fd);
  return code == 0 ? absl::OkStatus() : DiskError(error, folder, "cannot be written to disk");
}

// The state that a file holds, or that a record of finished work holds under "state".
std::optional<PrepareState> StateIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path, kMostJobTextBytes);
  if (!text.ok()) return std::nullopt;
  absl::StatusOr<PrepareState> state = ParseState(*text);
  if (state.ok()) return *std::move(state);
  const absl::StatusOr<nlohmann::json> json = ParseJson(*text, {.most_bytes = kMostJobTextBytes});
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto inner = json->find("state");
  if (inner == json->end() || !inner->is_string()) return std::nullopt;
  state = ParseState(inner->get<std::string>());
  return state.ok() ? std::optional(*std::move(state)) : std::nullopt;
}

}  // namespace

std::string UnfinishedTokens(const std::string& output) {
  return absl::StrCat(output, kFolderEnding, "/", kTokens);
}

absl::StatusOr<std::optional<PrepareCounts>> FindPrepared(const PreparedPlace& place,
                                                          const std::string& work) {
  std::string there;
  for (const Published& file : kPublished) {
    const std::string path = absl::StrCat(place.output, file.ending);
    if (IsThere(path)) there = path;
  }
  if (there.empty() || place.may_replace) return std::nullopt;
  // Work that was cut short goes on by its state, also where it was putting files in their places.
  // What somebody else has put there since it began is no work of ours.
  const auto left = StateIn(absl::StrCat(place.output, kFolderEnding, "/", kState));
  const bool goes_on = left && left->work == work && !place.begin_anew;
  if (goes_on && (left->is_complete || left->may_replace)) return std::nullopt;
  const auto done = StateIn(absl::StrCat(place.output, kPublished[2].ending));
  if (done && done->work == work) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(place.output + kPublished[0].ending, error);
    const int64_t header = place.format == TokenOutput::kLlmc ? kLlmcHeaderBytes : 0;
    const int64_t expected = header + done->counts.tokens * place.item_bytes;
    if (!error && static_cast<int64_t>(bytes) == expected) return done->counts;
  }
  return absl::AlreadyExistsError(absl::StrCat(
      there, ": is there already, of other texts or other options; name another --output, or let ",
      "--force replace it"));
}

PreparedFiles::PreparedFiles(PreparedPlace place)
    : place_(std::move(place)), folder_(place_.output + kFolderEnding) {}

PreparedFiles::~PreparedFiles() {
  for (const int fd : {folder_fd_, lock_fd_, tokens_fd_, lengths_fd_}) {
    if (fd >= 0) close(fd);
  }
}

std::string PreparedFiles::Inside(const char* name) const {
  return absl::StrCat(folder_, "/", name);
}

int PreparedFiles::OpenInside(const char* name, int flags) const {
  return openat(folder_fd_, name, flags | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool PreparedFiles::IsInside(const char* name) const {
  struct stat info = {};
  return fstatat(folder_fd_, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

absl::Status PreparedFiles::DiskFailed(int error, const std::string& path, absl::string_view what) {
  broken_ = true;
  return DiskError(error, path, what);
}

absl::StatusOr<std::unique_ptr<PreparedFiles>> PreparedFiles::Open(const PreparedPlace& place,
                                                                   const std::string& work,
                                                                   const std::string& stamp) {
  std::unique_ptr<PreparedFiles> files(new PreparedFiles(place));
  RETURN_IF_ERROR(files->Lock());
  RETURN_IF_ERROR(files->ReadState(work, stamp));
  if (!files->state_.is_complete) RETURN_IF_ERROR(files->OpenFiles());
  return files;
}

absl::Status PreparedFiles::OpenFolder() {
  const bool is_made = mkdir(folder_.c_str(), 0700) == 0;
  if (!is_made && errno != EEXIST) return DiskError(errno, folder_, "cannot be made");
  struct stat info = {};
  // A disk may give what is made on it to another user.
  const auto is_foreign = [&] { return !is_made && info.st_uid != geteuid(); };
  const auto foreign = [&] {
    return absl::PermissionDeniedError(
        absl::StrCat(folder_, ": is of the user ", info.st_uid, ", expected ", geteuid(),
                     "; let that user go on with it or remove it, or name another --output"));
  };
  const bool is_folder = lstat(folder_.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (is_folder && is_foreign()) return foreign();
  if (folder_fd_ >= 0) close(folder_fd_);
  folder_fd_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder_fd_ < 0 && (errno == ELOOP || errno == ENOTDIR)) {
    return absl::PermissionDeniedError(
        absl::StrCat(folder_, ": is no folder of weft's; remove it, or name another --output"));
  }
  if (folder_fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat(folder_, ": cannot open"));
  if (fstat(folder_fd_, &info) != 0) return DiskError(errno, folder_, "cannot be read");
  if (is_foreign()) return foreign();
  constexpr mode_t kOfOthers = 022;
  if ((info.st_mode & kOfOthers) != 0 && fchmod(folder_fd_, 0700) != 0) {
    return DiskError(errno, folder_, "is writable by others, which cannot be changed");
  }
  return absl::OkStatus();
}

// Who holds the lock is noted in it for those who wait; without the note they wait as well.
void PreparedFiles::NoteHolder() const {
  char host[kMostHolder] = {};
  if (gethostname(host, sizeof host - 1) != 0) return;
  const std::string text = absl::StrCat(getpid(), " on ", host);
  if (ftruncate(lock_fd_, 0) != 0 || pwrite(lock_fd_, text.data(), text.size(), 0) < 0) return;
}

// " (123 on a-host)", or "".
std::string PreparedFiles::Holder() const {
  char text[2 * kMostHolder] = {};
  const ssize_t got = pread(lock_fd_, text, sizeof text - 1, 0);
  const bool is_shown = got > 0 && std::all_of(text, text + got, absl::ascii_isprint);
  return is_shown ? absl::StrCat(" (", text, ")") : "";
}

// A folder or a lock that its last holder has removed meanwhile is made again.
absl::Status PreparedFiles::Lock() {
  constexpr int kTries = 10;
  const auto is_same = [](const struct stat& a, const struct stat& b) {
    return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
  };
  for (int i = 0; i < kTries; ++i) {
    RETURN_IF_ERROR(OpenFolder());
    if (lock_fd_ >= 0) close(lock_fd_);
    lock_fd_ = OpenInside(kLock, O_RDWR | O_CREAT);
    if (lock_fd_ < 0 && errno == ENOENT) continue;
    if (lock_fd_ < 0) return DiskError(errno, Inside(kLock), "cannot be written");
    if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return absl::UnavailableError(absl::StrCat(folder_, ": another process", Holder(),
                                                   " is preparing it; wait for it, or end it"));
      }
      return absl::FailedPreconditionError(
          absl::StrCat(Inside(kLock), ": cannot be locked: ", std::strerror(errno),
                       "; name an output on a disk that has locks"));
    }
    struct stat folder = {}, named_folder = {}, lock = {}, named_lock = {};
    if (fstat(folder_fd_, &folder) == 0 && lstat(folder_.c_str(), &named_folder) == 0 &&
        fstat(lock_fd_, &lock) == 0 &&
        fstatat(folder_fd_, kLock, &named_lock, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_same(folder, named_folder) && is_same(lock, named_lock)) {
      NoteHolder();
      return absl::OkStatus();
    }
  }
  return absl::UnavailableError(absl::StrCat(folder_, ": others make and remove it"));
}

// Files that complete work has left would be put in their places beside the new.
void PreparedFiles::BeginAnew() {
  for (const char* const name : {kState, kNewState, kIndex, kRecord}) unlinkat(folder_fd_, name, 0);
}

absl::Status PreparedFiles::ReadState(const std::string& work, const std::string& stamp) {
  state_.work = work;
  state_.stamp = stamp;
  state_.may_replace = place_.may_replace;
  if (!IsInside(kState) || place_.begin_anew) {
    BeginAnew();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(Inside(kState), kMostJobTextBytes));
  const absl::StatusOr<PrepareState> left = ParseState(text);
  const bool is_same = left.ok() && left->work == work;
  // Complete work was of texts that had not changed at its end.
  if (is_same && (left->is_complete || left->stamp == stamp)) {
    state_ = *left;
    state_.may_replace = left->may_replace || place_.may_replace;
    return absl::OkStatus();
  }
  const bool is_nothing = left.ok() && left->next == TextPosition{} && !left->is_complete;
  if (is_same || place_.may_replace || is_nothing) {
    BeginAnew();
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat(
      folder_, ": holds unfinished work on other texts, or with other options or another ",
      "tokenizer",
      left.ok() ? absl::StrCat(" (", left->counts.documents, " documents)") : std::string(),
      "; give the command that it is of again, or let --force begin anew"));
}

int64_t PreparedFiles::bytes() const {
  const int64_t header = place_.format == TokenOutput::kLlmc ? kLlmcHeaderBytes : 0;
  return header + (state_.counts.tokens + state_.open_tokens) * place_.item_bytes;
}

absl::Status PreparedFiles::OpenFiles() {
  struct {
    int* fd;
    const char* name;
    int64_t bytes;
  } files[] = {
      {&tokens_fd_, kTokens, bytes()},
      {&lengths_fd_, kLengths, state_.counts.documents * int64_t{4}},
  };
  for (const auto& file : files) {
    const std::string path = Inside(file.name);
    *file.fd = OpenInside(file.name, O_RDWR | O_CREAT);
    if (*file.fd < 0) return DiskError(errno, path, "cannot be written");
    const bool is_begun = state_.next != TextPosition{};
    struct stat info = {};
    if (fstat(*file.fd, &info) != 0) return DiskError(errno, path, "cannot be read");
    if (is_begun && info.st_size < file.bytes) {
      return absl::DataLossError(absl::StrCat(path, ": found ", info.st_size, " bytes, expected ",
                                              file.bytes, "; let --force begin anew"));
    }
    if (ftruncate(*file.fd, file.bytes) != 0) return DiskError(errno, path, "cannot be cut");
    if (lseek(*file.fd, 0, SEEK_END) < 0) return DiskError(errno, path, "cannot be written");
  }
  return Commit();
}

absl::Status PreparedFiles::Write(int fd, const std::string& path, absl::string_view bytes) {
  bytes_since_commit_ += std::ssize(bytes);
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return DiskFailed(errno, path, "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

absl::Status PreparedFiles::Flush() {
  RETURN_IF_ERROR(Write(lengths_fd_, Inside(kLengths), lengths_));
  lengths_.clear();
  return absl::OkStatus();
}

// `longest`: the tokens of the longest document.
absl::Status PreparedFiles::Fits(const PrepareState& state, int64_t longest) const {
  if (longest > kMostTokensOfLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("a document of ", longest, " tokens: at most ", kMostTokensOfLength,
                     " fit into a file of tokens; cut it, for example with --documents paragraph"));
  }
  if (place_.format != TokenOutput::kLlmc || state.counts.tokens <= kMostTokensOfLength) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("llm.c's files hold at most ", kMostTokensOfLength,
                   " tokens; prepare the texts in parts, or use --format megatron"));
}

// A document with a bad part is left out as a whole. The state that knows nothing of its tokens is
// on the disk before they go, so that whoever goes on from there finds no fewer than it counts.
absl::Status PreparedFiles::DropPart(const EncodedChunk& chunk) {
  const bool is_first = !std::exchange(state_.is_dropping, !chunk.ends);
  state_.next = chunk.after;
  if (!is_first) return absl::OkStatus();
  state_.counts.bad_rows += std::ssize(chunk.bad_rows);
  state_.counts.text_bytes -= std::exchange(state_.open_text_bytes, 0);
  if (std::exchange(state_.open_tokens, 0) == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Commit());
  if (ftruncate(tokens_fd_, bytes()) != 0 || lseek(tokens_fd_, 0, SEEK_END) < 0) {
    return DiskFailed(errno, Inside(kTokens), "cannot be cut");
  }
  return absl::OkStatus();
}

// The state is the new one once everything that it counts is written.
absl::Status PreparedFiles::Append(const EncodedChunk& chunk) {
  Failpoint("prepare.append");
  if (chunk.is_bad || is_dropping(chunk)) return DropPart(chunk);
  PrepareState state = state_;
  std::string lengths;
  int64_t longest = 0;
  for (size_t i = 0; i < chunk.lengths.size(); ++i) {
    state.open_tokens += chunk.lengths[i];
    if (!chunk.ends && i + 1 == chunk.lengths.size()) break;
    const int64_t tokens = std::exchange(state.open_tokens, 0);
    longest = std::max(longest, tokens);
    if (tokens == 0) continue;
    state.counts.Add(tokens, place_.seq_len);
    const auto length = static_cast<int32_t>(tokens);
    lengths.append(reinterpret_cast<const char*>(&length), sizeof length);
  }
  state.open_text_bytes = chunk.ends ? 0 : state.open_text_bytes + chunk.text_bytes;
  state.counts.text_bytes += chunk.text_bytes;
  state.counts.empty += chunk.empty;
  state.counts.bad_rows += std::ssize(chunk.bad_rows);
  state.next = chunk.after;
  RETURN_IF_ERROR(Fits(state, longest));
  RETURN_IF_ERROR(Write(tokens_fd_, Inside(kTokens), chunk.ids));
  lengths_ += lengths;
  if (lengths_.size() >= kLengthsBuffer) RETURN_IF_ERROR(Flush());
  state_ = std::move(state);
  return absl::OkStatus();
}

absl::Status PreparedFiles::Commit() {
  if (broken_) return absl::OkStatus();
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(SyncFile(tokens_fd_, Inside(kTokens)));
  RETURN_IF_ERROR(SyncFile(lengths_fd_, Inside(kLengths)));
  Failpoint("prepare.synced");
  RETURN_IF_ERROR(WriteWhole(kNewState, StateText(state_)));
  if (renameat(folder_fd_, kNewState, folder_fd_, kState) != 0 || fsync(folder_fd_) != 0) {
    return DiskFailed(errno, Inside(kState), "cannot be written");
  }
  bytes_since_commit_ = 0;
  Failpoint("prepare.committed");
  return absl::OkStatus();
}

absl::Status PreparedFiles::SyncFile(int fd, const std::string& path) {
  if (fsync(fd) == 0) return absl::OkStatus();
  return DiskFailed(errno, path, "cannot be written to disk");
}

absl::Status PreparedFiles::WriteWhole(const char* name, absl::string_view text) {
  const std::string path = Inside(name);
  const int fd = OpenInside(name, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd < 0) return DiskFailed(errno, path, "cannot be written");
  absl::Status status = Write(fd, path, text);
  if (status.ok()) status = SyncFile(fd, path);
  close(fd);
  return status;
}

absl::Status PreparedFiles::WriteIndex() {
  const std::string path = Inside(kIndex);
  const int fd = OpenInside(kIndex, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd < 0) return DiskFailed(errno, path, "cannot be written");
  std::vector<int32_t> block(size_t{1} << 16);
  int64_t first = 0, in_block = 0;  // the block holds the lengths [first, first + in_block)
  const auto length = [&](int64_t i) -> absl::StatusOr<int32_t> {
    if (i < first || i >= first + in_block) {
      const ssize_t got = pread(lengths_fd_, block.data(), block.size() * 4, i * 4);
      if (got < 4) return DiskError(got < 0 ? errno : EIO, Inside(kLengths), "cannot be read");
      first = i;
      in_block = got / 4;
    }
    return block[static_cast<size_t>(i - first)];
  };
  absl::Status status =
      WriteMegatronIndex(state_.counts.documents, place_.item_bytes, length,
                         [&](absl::string_view bytes) { return Write(fd, path, bytes); });
  if (status.ok()) status = SyncFile(fd, path);
  close(fd);
  return status;
}

absl::Status PreparedFiles::WriteHeader() {
  int32_t header[kLlmcHeaderBytes / 4] = {};
  header[0] = place_.item_bytes == 2 ? kLlmcGpt2Magic : kLlmcLlamaMagic;
  header[1] = place_.item_bytes == 2 ? 1 : 7;
  header[2] = static_cast<int32_t>(state_.counts.tokens);
  if (pwrite(tokens_fd_, header, sizeof header, 0) != sizeof header) {
    return DiskFailed(errno, Inside(kTokens), "cannot be written");
  }
  return absl::OkStatus();
}

absl::Status PreparedFiles::Publish(const nlohmann::ordered_json& record) {
  CHECK(!broken_);
  if (!state_.is_complete) {
    RETURN_IF_ERROR(Flush());
    if (place_.format == TokenOutput::kMegatron) RETURN_IF_ERROR(WriteIndex());
    if (place_.format == TokenOutput::kLlmc) RETURN_IF_ERROR(WriteHeader());
    nlohmann::ordered_json whole = record;
    whole["state"] = StateText(state_);
    RETURN_IF_ERROR(WriteWhole(
        kRecord,
        whole.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
    state_.is_complete = true;
    RETURN_IF_ERROR(Commit());
  }
  return PutInPlace();
}

// A umask may let everybody write to a file, or the group of a shared cache not read it.
absl::Status PreparedFiles::GiveToReaders(const char* name) const {
  if (!place_.is_of_cache) return absl::OkStatus();
  struct stat info = {};
  if (fstatat(folder_fd_, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return DiskError(errno, Inside(name), "cannot be looked at");
  }
  constexpr mode_t kAll = 0777, kOfOthers = 022, kOfGroup = 040;
  mode_t mode = info.st_mode & kAll & ~kOfOthers;
  if (place_.group) {
    if (info.st_gid != *place_.group && fchownat(folder_fd_, name, static_cast<uid_t>(-1),
                                                 *place_.group, AT_SYMLINK_NOFOLLOW) != 0) {
      return DiskError(errno, Inside(name), "cannot be given to the group of its folder");
    }
    mode |= kOfGroup;
  }
  if (fchmodat(folder_fd_, name, mode, 0) == 0) return absl::OkStatus();
  return DiskError(errno, Inside(name), "cannot be kept from others");
}

// Each step may have been done before a crash.
absl::Status PreparedFiles::PutInPlace() {
  const std::string record = absl::StrCat(place_.output, kPublished[2].ending);
  // Beside a record that is not of this work, half of the new files would pass for the old ones;
  // and an index that is not of this work would be read with its tokens.
  if (IsInside(kTokens) && unlink(record.c_str()) != 0 && errno != ENOENT) {
    return DiskError(errno, record, "cannot be removed");
  }
  const std::string index = absl::StrCat(place_.output, kPublished[1].ending);
  if (place_.format != TokenOutput::kMegatron && unlink(index.c_str()) != 0 && errno != ENOENT) {
    return DiskError(errno, index, "cannot be removed");
  }
  for (const Published& file : kPublished) {
    Failpoint("prepare.publish");
    const std::string path = absl::StrCat(place_.output, file.ending);
    if (!IsInside(file.inside)) continue;
    RETURN_IF_ERROR(GiveToReaders(file.inside));
    if (renameat(folder_fd_, file.inside, AT_FDCWD, path.c_str()) != 0) {
      return DiskError(errno, path, "cannot be written");
    }
  }
  RETURN_IF_ERROR(SyncDirectory(ParentOf(place_.output)));
  Failpoint("prepare.published");
  Discard();
  return absl::OkStatus();
}

// The state goes first: without it nothing goes on from files that are gone. The lock goes last.
void PreparedFiles::Discard() {
  for (const char* const name : {kState, kNewState, kTokens, kLengths, kIndex, kRecord, kLock}) {
    unlinkat(folder_fd_, name, 0);
  }
  rmdir(folder_.c_str());
}

}  // namespace weft
