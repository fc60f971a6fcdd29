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
#include "absl/strings/string_view.h"
#include "data/prepare/cache_folder.h"
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
constexpr int kCacheVersion = 3;
constexpr size_t kNameDigits = 16;  // of a file's hash
constexpr char kNotes[] = "stamps";
constexpr size_t kHashedBytes = size_t{1} << 20;
constexpr std::chrono::milliseconds kBetweenLooks(100);
constexpr std::chrono::hours kMostWait(48);
// A token of a text takes some 3 to 5 bytes of it; a packed text is some 4 times as long.
constexpr int64_t kLeastBytesOfToken = 3;
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
  std::string buffer(kHashedBytes, '\0');
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

std::optional<CachedTokens> FindCached(const std::string& output) {
  const std::optional<std::string> text =
      ReadTrustedFile(output + ".prepared.json", kMostJobTextBytes);
  if (!text || !IsTrustedFile(output + ".bin")) return std::nullopt;
  const absl::StatusOr<nlohmann::json> json = ParseJson(*text, {.most_bytes = kMostJobTextBytes});
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto bytes = json->find("bytes"), item = json->find("item_bytes"),
             vocab = json->find("vocab_size");
  for (const auto& each : {bytes, item, vocab}) {
    if (each == json->end() || !each->is_number_integer()) return std::nullopt;
  }
  std::error_code error;
  const auto found = fs::file_size(output + ".bin", error);
  if (error || static_cast<int64_t>(found) != bytes->get<int64_t>()) return std::nullopt;
  return CachedTokens{.path = output + ".bin",
                      .item_bytes = item->get<int64_t>(),
                      .vocab_size = vocab->get<int64_t>()};
}

// The files of a text that are there and are not taken are said, and never replaced.
absl::Status CheckFiles(const std::string& output) {
  for (const char* const ending : {".prepared.json", ".bin"}) {
    const absl::Status status = CheckTrustedFile(output + ending);
    if (absl::IsPermissionDenied(status)) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<DocumentEnds> EndsByRules(const Tokenizer& tokenizer, const CacheRules& rules,
                                         const CacheWords& words) {
  const auto word = [](const std::optional<int64_t>& id) {
    return id ? absl::StrCat(*id) : std::string(kEndsOfTokenizer);
  };
  absl::StatusOr<DocumentEnds> ends =
      EndsOfDocuments(tokenizer, TokenOutput::kNanogpt, word(rules.bos), word(rules.eos));
  if (ends.ok()) return ends;
  std::string why = absl::StrReplaceAll(
      ends.status().message(), {{"name the token with --end, or --end none", words.end_cure},
                                {"--end", words.end},
                                {"--begin", words.begin}});
  const size_t cure = why.find("; use the text of one");
  if (cure != std::string::npos) why = absl::StrCat(why.substr(0, cure), "; ", words.id_cure);
  return absl::InvalidArgumentError(why);
}

// Tokens that work before has left have their room already.
absl::Status CheckRoom(const std::string& folder, const PrepareRequest& request,
                       const CacheWords& words) {
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) return absl::OkStatus();
  const auto free_bytes = static_cast<int64_t>(info.f_bavail * info.f_frsize);
  const TextInput& input = request.inputs[0];
  std::error_code error;
  const auto left = fs::file_size(UnfinishedTokens(request.place.output), error);
  const int64_t needed =
      RoomForTokens(input.stored_bytes, IsNamedPacked(input.path), request.rules.item_bytes) -
      (error ? 0 : static_cast<int64_t>(left));
  if (free_bytes >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(folder, ": has ", free_bytes, " bytes free, and the tokens of ", input.path,
                   " may take ", needed, "; make room, or name another folder with ", words.cache));
}

// OthersWork watches a folder of another user's work. It cannot be looked into; that it changes
// tells that the work goes on.
class OthersWork {
 public:
  OthersWork(std::string folder, std::chrono::milliseconds most_idle)
      : folder_(std::move(folder)), most_idle_(most_idle) {}

  bool GoesOn() {
    struct stat info = {};
    // It may have gone since it was in the way; or it was never there, and something else was.
    if (lstat(folder_.c_str(), &info) != 0) return std::exchange(may_be_gone_, false);
    if (!S_ISDIR(info.st_mode) || info.st_uid == geteuid()) return false;
    const auto now = std::chrono::steady_clock::now();
    const std::pair<int64_t, int64_t> time(info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    if (time != time_) changed_ = now;
    time_ = time;
    user_ = info.st_uid;
    may_be_gone_ = true;
    return now - changed_ < most_idle_;
  }
  // "FOLDER: the user 12 is preparing it"; empty: nobody was seen.
  std::string Text() const {
    return user_ ? absl::StrCat(folder_, ": the user ", *user_, " is preparing it") : "";
  }

 private:
  const std::string folder_;
  const std::chrono::milliseconds most_idle_;
  std::chrono::steady_clock::time_point changed_;
  std::pair<int64_t, int64_t> time_;
  std::optional<uid_t> user_;
  bool may_be_gone_ = true;
};

// Prepares, or waits for who does.
absl::Status PrepareOrWait(const Tokenizer& tokenizer, const CacheRequest& cache,
                           PrepareRequest* request) {
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  PreparedPlace& place = request->place;
  OthersWork others(place.output + kFolderEnding, cache.most_idle);
  bool is_told = false;
  while (true) {
    const absl::Status status = Prepare(tokenizer, *request).status();
    if (absl::IsAlreadyExists(status) && !place.may_replace) {
      RETURN_IF_ERROR(CheckFiles(place.output));
      place.may_replace = true;  // a file of ours that was cut or left by another version
      continue;
    }
    // The work that was left is damaged, or of a text that is another now.
    if ((absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) && !place.begin_anew) {
      place.begin_anew = true;
      continue;
    }
    const bool is_stopped = request->stop != nullptr && *request->stop;
    if (is_stopped || std::chrono::steady_clock::now() > end) return status;
    const bool is_others = absl::IsPermissionDenied(status) && others.GoesOn();
    if (!absl::IsUnavailable(status) && !is_others) {
      return absl::Status(
          status.code(),
          absl::StrReplaceAll(status.message(),
                              {{"name another --output",
                                absl::StrCat("name another folder with ", cache.words.cache)}}));
    }
    const absl::string_view message = status.message();
    const std::string waits =
        is_others ? others.Text() : std::string(message.substr(0, message.rfind("; ")));
    if (!waits.empty() && !std::exchange(is_told, true) && request->on_progress) {
      request->on_progress({.waits = waits});
    }
    std::this_thread::sleep_for(kBetweenLooks);
    place.may_replace = place.begin_anew = false;  // who works now may leave it whole
  }
}

}  // namespace

std::string DefaultTokenCache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/weft/tokens");
  if (home != nullptr && home[0] == '/') return absl::StrCat(home, "/.cache/weft/tokens");
  return "";
}

std::string CacheOfTokens(const std::string& path) {
  const fs::path file(path);
  const std::string stem = file.stem().string();
  const size_t dash = stem.rfind('-');
  std::error_code error;
  const bool is_of_cache = file.extension() == ".bin" && dash != std::string::npos &&
                           stem.size() - dash - 1 == kNameDigits &&
                           fs::is_directory(file.parent_path() / kNotes, error);
  return is_of_cache ? file.parent_path().string() : "";
}

int64_t RoomForTokens(int64_t stored_bytes, bool is_packed, int64_t item_bytes) {
  return stored_bytes * (is_packed ? kUnpackedBytes : 1) / kLeastBytesOfToken * item_bytes;
}

absl::Status TokenCache::OpenTokenizer() {
  if (tokenizer_) return absl::OkStatus();
  ASSIGN_OR_RETURN(tokenizer_, Tokenizer::Open(request_.rules.tokenizer));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TokenCache::VocabSize() {
  RETURN_IF_ERROR(OpenTokenizer());
  return tokenizer_->vocab_size();
}

// The hash of a text's bytes. It is noted beside the cache, so that a text that has not been
// touched is not read again; not of a text whose next change its stamp may not show.
absl::StatusOr<std::optional<std::string>> TokenCache::ContentHash(
    const std::string& path, const std::vector<InputStamp>& stamps) {
  const std::string stamp = StampHash(stamps);
  if (const auto known = contents_.find(stamp); known != contents_.end()) return known->second;
  const std::string notes = absl::StrCat(request_.folder, "/", kNotes);
  const std::string note = absl::StrCat(notes, "/", stamp);
  constexpr size_t kHashDigits = 32;
  if (stamps[0].is_settled && CheckCacheFolder(notes, /*makes=*/false).ok()) {
    const std::optional<std::string> noted = ReadTrustedFile(note, kHashDigits);
    if (noted && noted->size() == kHashDigits) return *noted;
  }
  if (!request_.may_work) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string hash, HashOfFile(path, request_.stop));
  RETURN_IF_ERROR(CheckUnchanged(stamps, 0, 0));
  contents_[stamp] = hash;
  // A note that cannot be written costs the next start some time.
  if (!stamps[0].is_settled || !CheckCacheFolder(notes, /*makes=*/true).ok()) return hash;
  const std::string aside = absl::StrCat(note, ".", getpid());
  std::error_code error;
  if (!WriteWholeFile(aside, hash).ok()) return hash;
  fs::permissions(aside, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove,
                  error);
  fs::rename(aside, note, error);
  return hash;
}

absl::StatusOr<std::optional<TokenCache::Place>> TokenCache::PlaceOf(const NamedText& text) {
  const CacheRules& rules = request_.rules;
  Place place;
  ASSIGN_OR_RETURN(place.stamps, StampInputs({{text.path, text.format}}));
  if (!place.stamps[0].is_regular) return NoFile(text.path);
  ASSIGN_OR_RETURN(const std::optional<std::string> content, ContentHash(text.path, place.stamps));
  if (!content) return std::nullopt;
  if (tokenizer_hash_.empty()) {
    ASSIGN_OR_RETURN(tokenizer_hash_, TokenizerHash(rules.tokenizer));
  }
  place.key = HashOf(absl::StrCat(kCacheVersion, "\n", *content, "\n", tokenizer_hash_, "\n",
                                  WordOf(text.format), "\n", text.text_key, "\n",
                                  rules.bos.value_or(-1), "\n", rules.eos.value_or(-1)));
  place.output = absl::StrCat(request_.folder, "/", fs::path(text.path).filename().string(), "-",
                              place.key.substr(0, kNameDigits));
  return place;
}

absl::StatusOr<std::optional<CachedTokens>> TokenCache::Find(const NamedText& text) {
  const bool is_private = request_.folder == DefaultTokenCache();
  RETURN_IF_ERROR(
      CheckCacheFolder(request_.folder, request_.may_work, is_private, request_.words.cache));
  ASSIGN_OR_RETURN(const std::optional<Place> place, PlaceOf(text));
  return place ? FindCached(place->output) : std::nullopt;
}

absl::StatusOr<CachedTokens> TokenCache::Make(const NamedText& text) {
  CHECK(request_.may_work);
  RETURN_IF_ERROR(OpenTokenizer());
  ASSIGN_OR_RETURN(const std::optional<Place> place, PlaceOf(text));
  RETURN_IF_ERROR(CheckFiles(place->output));
  PrepareRequest work;
  work.inputs = {place->stamps[0].input};
  work.stamps = place->stamps;
  ASSIGN_OR_RETURN(DocumentEnds ends, EndsByRules(*tokenizer_, request_.rules, request_.words));
  work.rules.before = std::move(ends.before);
  work.rules.after = std::move(ends.after);
  work.rules.text_key = text.text_key;
  work.rules.text_key_option = request_.words.text_key;
  work.rules.item_bytes = ItemBytes(TokenOutput::kNanogpt, tokenizer_->vocab_size());
  work.place = {.output = place->output,
                .format = TokenOutput::kNanogpt,
                .item_bytes = work.rules.item_bytes,
                .is_of_cache = true,
                .group = GroupOfCacheFolder(request_.folder)};
  work.work = place->key;
  work.tokenizer = request_.rules.tokenizer;
  work.tokenizer_hash = tokenizer_hash_;
  work.threads = request_.threads;
  work.discards_bad = true;
  work.on_progress = request_.on_progress;
  work.stop = request_.stop;
  RETURN_IF_ERROR(CheckRoom(request_.folder, work, request_.words));
  RETURN_IF_ERROR(PrepareOrWait(*tokenizer_, request_, &work));
  const std::optional<CachedTokens> made = FindCached(place->output);
  if (made) return *made;
  RETURN_IF_ERROR(CheckFiles(place->output));
  return absl::UnavailableError(absl::StrCat(
      place->output, ".bin: is gone or another since it was made; give the command again"));
}

}  // namespace weft
