#include "data/prepare/prepare.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/prepare/encode_threads.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "xxhash.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProgressMs = 200;
constexpr std::chrono::milliseconds kBetweenCommits(1000);
constexpr int64_t kBytesWithoutCommit = int64_t{1} << 30;

// Files of a folder that a tokenizer may be read from.
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",   "tekken.json", "tokenizer.model",         "vocab.json",
    "merges.txt",       "config.json", "special_tokens_map.json", "tokenizer_config.json",
    "added_tokens.json"};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

absl::StatusOr<std::vector<InputStamp>> StampsOf(const std::vector<TextInput>& inputs) {
  std::vector<InputStamp> stamps;
  for (const TextInput& input : inputs) {
    struct stat info = {};
    InputStamp stamp{.input = input};
    if (input.path != kStandardInput) {
      if (stat(input.path.c_str(), &info) != 0) {
        return absl::ErrnoToStatus(errno, absl::StrCat(input.path, ": cannot be read"));
      }
      if (S_ISREG(info.st_mode)) {
        stamp.input.stored_bytes = info.st_size;
        stamp.changed_ns = info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
      }
    }
    stamps.push_back(std::move(stamp));
  }
  return stamps;
}

// PrepareWork is one process's share of the work: from where the files are to the end of the texts.
class PrepareWork {
 public:
  PrepareWork(const Tokenizer& tokenizer, const PrepareRequest& request,
              const std::vector<InputStamp>& stamps, PreparedFiles* files)
      : request_(request),
        files_(files),
        reader_(request.inputs, files->state().next,
                {.cut = request.rules.documents,
                 .chunk_bytes = request.chunk_bytes,
                 .stop = request.stop}),
        threads_(request.threads, &request.inputs, &tokenizer, &request.rules, &reader_) {
    int64_t before = 0;
    for (const InputStamp& stamp : stamps) {
      stored_before_.push_back(before);
      before += stamp.input.stored_bytes;
    }
    progress_.all_stored_bytes = before;
  }

  absl::Status Run() {
    absl::Status status = RunToEnd();
    progress_.is_over = true;
    if (request_.on_progress) request_.on_progress(progress_);
    // All that is good is kept, whatever ended it; the first error is the one that counts.
    if (!status.ok() && !absl::IsResourceExhausted(status)) files_->Commit().IgnoreError();
    return status;
  }

 private:
  absl::Status RunToEnd() {
    EncodedChunk chunk;
    while (true) {
      if (request_.stop != nullptr && *request_.stop) return absl::CancelledError("stopped");
      ASSIGN_OR_RETURN(const EncodeThreads::Turn turn, threads_.Take(kProgressMs, &chunk));
      if (turn == EncodeThreads::Turn::kEnd) return absl::OkStatus();
      if (turn == EncodeThreads::Turn::kChunk) RETURN_IF_ERROR(Put(chunk));
      TellProgress();
    }
  }

  absl::Status Put(const EncodedChunk& chunk) {
    RETURN_IF_ERROR(CheckBadRows(chunk));
    RETURN_IF_ERROR(files_->Append(chunk));
    progress_.text_bytes += chunk.text_bytes;
    progress_.stored_bytes = stored_before_[static_cast<size_t>(chunk.input)] + chunk.stored_bytes;
    progress_.tokens = files_->state().counts.tokens;
    const bool is_due =
        files_->bytes_since_commit() >= request_.commit_bytes &&
        (Clock::now() - committed_ >= kBetweenCommits ||
         files_->bytes_since_commit() >= kBytesWithoutCommit || request_.commit_bytes == 0);
    if (!is_due) return absl::OkStatus();
    committed_ = Clock::now();
    return files_->Commit();
  }

  // A chunk with a row too many is not put into the files: the row may be mended.
  absl::Status CheckBadRows(const EncodedChunk& chunk) {
    int64_t count = files_->state().counts.bad_rows;
    for (const BadRow& row : chunk.bad_rows) {
      const std::string where =
          absl::StrCat(request_.inputs[static_cast<size_t>(row.input)].path, ":", row.line);
      if (++count > request_.most_bad_rows) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, ": ", row.why, "; ", request_.bad_row_cure));
      }
      if (request_.on_bad_row) request_.on_bad_row(where, row.why);
    }
    return absl::OkStatus();
  }

  void TellProgress() {
    if (!request_.on_progress || Clock::now() - told_ < std::chrono::milliseconds(kProgressMs)) {
      return;
    }
    told_ = Clock::now();
    request_.on_progress(progress_);
  }

  const PrepareRequest& request_;
  PreparedFiles* const files_;
  std::vector<int64_t> stored_before_;  // of the inputs before each
  PrepareProgress progress_;
  Clock::time_point committed_ = Clock::now(), told_ = Clock::now();
  ChunkReader reader_;
  EncodeThreads threads_;
};

}  // namespace

absl::StatusOr<std::string> TokenizerHash(const std::string& path) {
  std::error_code error;
  std::vector<std::string> files = {path};
  if (std::filesystem::is_directory(path, error)) {
    files.clear();
    for (const char* const name : kTokenizerFiles) {
      const std::string file = absl::StrCat(path, "/", name);
      if (std::filesystem::exists(file, error)) files.push_back(file);
    }
  }
  std::string hashes;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kMostIndexBytes));
    absl::StrAppend(&hashes, std::filesystem::path(file).filename().string(), ":",
                    absl::Hex(XXH3_64bits(text.data(), text.size()), absl::kZeroPad16), "\n");
  }
  return absl::StrFormat("%016x", XXH3_64bits(hashes.data(), hashes.size()));
}

absl::StatusOr<PrepareResult> Prepare(const Tokenizer& tokenizer, const PrepareRequest& request) {
  CHECK(request.threads >= 1);
  const Clock::time_point begin = Clock::now();
  ASSIGN_OR_RETURN(const std::string hash, TokenizerHash(request.tokenizer));
  ASSIGN_OR_RETURN(const std::vector<InputStamp> stamps, StampsOf(request.inputs));
  const std::string work =
      request.work.empty()
          ? WorkHash(hash, request.place.format, request.rules, stamps, request.place.seq_len)
          : request.work;
  ASSIGN_OR_RETURN(const std::optional<PrepareCounts> done, FindPrepared(request.place, work));
  if (done) return PrepareResult{.counts = *done, .was_there = true};
  ASSIGN_OR_RETURN(const std::unique_ptr<PreparedFiles> files,
                   PreparedFiles::Open(request.place, work));
  const int64_t before = files->state().counts.documents;
  if (!files->state().is_complete) {
    RETURN_IF_ERROR(PrepareWork(tokenizer, request, stamps, files.get()).Run());
  }
  const PrepareCounts& counts = files->state().counts;
  if (counts.documents == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no document was found in ", request.inputs.size(),
                     request.inputs.size() == 1 ? " input" : " inputs",
                     counts.empty > 0 ? absl::StrCat(", but ", counts.empty, " empty ones") : "",
                     "; expected at least one with a text"));
  }
  nlohmann::ordered_json record = {{"tokenizer", request.tokenizer}, {"tokenizer_hash", hash}};
  record["format"] = std::string(WordOf(request.place.format));
  record["item_bytes"] = request.place.item_bytes;
  record["bytes"] = files->bytes();
  record["vocab_size"] = tokenizer.vocab_size();
  record["counts"] = CountsJson(counts);
  RETURN_IF_ERROR(files->Publish(record));
  return PrepareResult{.counts = counts, .documents_before = before, .took_s = SecondsSince(begin)};
}

}  // namespace weft
