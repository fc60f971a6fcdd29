#include "data/prepare/token_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "data/prepare/document_ends.h"
#include "data/prepare/input_stamp.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "text/json.h"
#include "xxhash.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Another version makes other tokens of the same text.
constexpr int kVersion = 1;
constexpr size_t kReadBytes = size_t{1} << 20;
constexpr std::chrono::milliseconds kBetweenLooks(100);
constexpr std::chrono::hours kMostWait(48);
// A token of a text takes some 3 to 5 bytes of it; a packed text is some 4 times as long.
constexpr int64_t kLeastBytesOfToken = 2;
constexpr int64_t kUnpackedBytes = 4;

std::string Hex(XXH128_hash_t hash) {
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

std::string HashOf(const std::string& text) {
  return Hex(XXH3_128bits(text.data(), text.size()));
}

absl::Status NoFile(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ": is no regular file, expected a file of text; write a stream into files "
                   "of tokens with weft data prepare, and name those"));
}

// A pipe that a name leads to is refused, and nothing waits for its writer.
absl::StatusOr<std::string> HashOfFile(const std::string& path, const std::atomic<bool>* stop) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  struct stat info = {};
  absl::Status status =
      fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? absl::OkStatus() : NoFile(path);
  std::string buffer(kReadBytes, '\0');
  XXH3_state_t* const state = XXH3_createState();
  CHECK(state != nullptr);
  XXH3_128bits_reset(state);
  while (status.ok()) {
    if (stop != nullptr && *stop) status = absl::CancelledError("stopped");
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
    if (got <= 0) break;
    XXH3_128bits_update(state, buffer.data(), static_cast<size_t>(got));
  }
  const std::string hash = Hex(XXH3_128bits_digest(state));
  XXH3_freeState(state);
  close(fd);
  if (!status.ok()) return status;
  return hash;
}

// The hash of a text's bytes. It is noted beside the cache, so that a text that has not been
// touched is not read again.
absl::StatusOr<std::optional<std::string>> ContentHash(const std::string& path,
                                                       const std::vector<InputStamp>& stamps,
                                                       const CacheRequest& request) {
  const std::string notes = absl::StrCat(request.folder, "/stamps");
  const std::string note = absl::StrCat(notes, "/", StampHash(stamps));
  constexpr size_t kHashDigits = 32;
  const absl::StatusOr<std::string> noted = ReadWholeFile(note, kHashDigits);
  if (noted.ok() && noted->size() == kHashDigits) return *noted;
  if (!request.may_work) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string hash, HashOfFile(path, request.stop));
  RETURN_IF_ERROR(CheckUnchanged(stamps, 0, 0));
  // A note that cannot be written costs the next start some time.
  std::error_code error;
  fs::create_directories(notes, error);
  const std::string aside = absl::StrCat(note, ".", getpid());
  if (WriteWholeFile(aside, hash).ok()) fs::rename(aside, note, error);
  return hash;
}

absl::StatusOr<std::optional<CachedTokens>> FindCached(const std::string& output) {
  const std::string record = output + ".prepared.json";
  std::error_code error;
  if (!fs::exists(record, error)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(record, kMostJobTextBytes));
  const absl::StatusOr<nlohmann::json> json = ParseJson(text, {.most_bytes = kMostJobTextBytes});
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto bytes = json->find("bytes"), item = json->find("item_bytes"),
             vocab = json->find("vocab_size");
  for (const auto& each : {bytes, item, vocab}) {
    if (each == json->end() || !each->is_number_integer()) return std::nullopt;
  }
  const auto found = fs::file_size(output + ".bin", error);
  if (error || static_cast<int64_t>(found) != bytes->get<int64_t>()) return std::nullopt;
  return CachedTokens{.path = output + ".bin",
                      .item_bytes = item->get<int64_t>(),
                      .vocab_size = vocab->get<int64_t>()};
}

absl::StatusOr<DocumentEnds> EndsByRules(const Tokenizer& tokenizer, const CacheRules& rules) {
  const auto word = [&](const std::optional<int64_t>& id) {
    if (id) return absl::StrCat(*id);
    return std::string(rules.bos || rules.eos ? kNoEnd : kEndsOfTokenizer);
  };
  absl::StatusOr<DocumentEnds> ends =
      EndsOfDocuments(tokenizer, TokenOutput::kNanogpt, word(rules.bos), word(rules.eos));
  if (ends.ok()) return ends;
  return absl::InvalidArgumentError(absl::StrReplaceAll(
      ends.status().message(),
      {{"name the token with --end, or --end none", "name the token's id with data.eos_token_id"},
       {"--end", "data.eos_token_id"},
       {"--begin", "data.bos_token_id"}}));
}

absl::Status CheckRoom(const std::string& folder, const PrepareRequest& request) {
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) return absl::OkStatus();
  const auto free_bytes = static_cast<int64_t>(info.f_bavail * info.f_frsize);
  const TextInput& input = request.inputs[0];
  const bool is_packed = IsNamedPacked(input.path);
  const int64_t text_bytes = input.stored_bytes * (is_packed ? kUnpackedBytes : 1);
  const int64_t needed = text_bytes / kLeastBytesOfToken * request.rules.item_bytes;
  if (free_bytes >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(folder, ": has ", free_bytes, " bytes free, and the tokens of ", input.path,
                   " may take ", needed, "; make room, or name another folder with data.cache"));
}

// Prepares, or waits for who does.
absl::Status PrepareOrWait(const Tokenizer& tokenizer, PrepareRequest* request) {
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  while (true) {
    const absl::Status status = Prepare(tokenizer, *request).status();
    PreparedPlace& place = request->place;
    if (absl::IsAlreadyExists(status) && !place.may_replace) {
      place.may_replace = true;  // a file of ours that was cut or left by another version
      continue;
    }
    // The work that was left is damaged, or of a text that is another now.
    if ((absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) && !place.begin_anew) {
      place.begin_anew = true;
      continue;
    }
    const bool is_stopped = request->stop != nullptr && *request->stop;
    if (!absl::IsUnavailable(status) || is_stopped || std::chrono::steady_clock::now() > end) {
      return status;
    }
    std::this_thread::sleep_for(kBetweenLooks);
    place.may_replace = place.begin_anew = false;  // who works now may leave it whole
  }
}

// The user's own cache is nobody else's; one that data.cache names may be a group's.
absl::Status MakeCache(const std::string& folder) {
  std::error_code error;
  const bool is_made = fs::create_directories(folder, error);
  if (!error && is_made && folder == DefaultTokenCache()) {
    fs::permissions(folder, fs::perms::owner_all, error);
  }
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(folder, ": cannot be made: ", error.message(),
                                                 "; name another with data.cache"));
}

}  // namespace

std::string DefaultTokenCache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/weft/tokens");
  if (home != nullptr && home[0] == '/') return absl::StrCat(home, "/.cache/weft/tokens");
  return "";
}

absl::StatusOr<std::optional<CachedTokens>> TokensOfText(const std::string& text, TextFormat format,
                                                         const CacheRequest& request) {
  const CacheRules& rules = request.rules;
  if (request.may_work) RETURN_IF_ERROR(MakeCache(request.folder));
  ASSIGN_OR_RETURN(const std::vector<InputStamp> stamps, StampInputs({{text, format}}));
  if (!stamps[0].is_regular) return NoFile(text);
  ASSIGN_OR_RETURN(const std::optional<std::string> content, ContentHash(text, stamps, request));
  if (!content) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string tokenizer_hash, TokenizerHash(rules.tokenizer));
  const std::string key =
      HashOf(absl::StrCat(kVersion, "\n", *content, "\n", tokenizer_hash, "\n", WordOf(format),
                          "\n", rules.bos.value_or(-1), "\n", rules.eos.value_or(-1)));
  const std::string output =
      absl::StrCat(request.folder, "/", fs::path(text).filename().string(), "-", key.substr(0, 16));
  ASSIGN_OR_RETURN(const std::optional<CachedTokens> there, FindCached(output));
  if (there || !request.may_work) return there;

  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Open(rules.tokenizer));
  PrepareRequest work;
  work.inputs = {stamps[0].input};
  work.stamps = stamps;
  ASSIGN_OR_RETURN(DocumentEnds ends, EndsByRules(tokenizer, rules));
  work.rules.before = std::move(ends.before);
  work.rules.after = std::move(ends.after);
  work.rules.item_bytes = ItemBytes(TokenOutput::kNanogpt, tokenizer.vocab_size());
  work.place = {
      .output = output, .format = TokenOutput::kNanogpt, .item_bytes = work.rules.item_bytes};
  work.work = key;
  work.tokenizer = rules.tokenizer;
  work.threads = request.threads;
  work.on_progress = request.on_progress;
  work.stop = request.stop;
  RETURN_IF_ERROR(CheckRoom(request.folder, work));
  RETURN_IF_ERROR(PrepareOrWait(tokenizer, &work));
  ASSIGN_OR_RETURN(std::optional<CachedTokens> made, FindCached(output));
  if (!made) return absl::InternalError(absl::StrCat(output, ": is not there after it was made"));
  made->was_there = false;
  return made;
}

}  // namespace weft
