#include "data/prepare/prepare.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/prepare/encode_threads.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "xxhash.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProgressMs = 200;
constexpr std::chrono::milliseconds kBetweenCommits(1000);
constexpr int64_t kBytesWithoutCommit = int64_t{1} << 30;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Says whether a stream is one of the first `inputs`. If they were read by work before, another
// stream that is given in its place cannot be told from it.
bool HasStream(const std::vector<InputStamp>& stamps, int64_t inputs) {
  return std::any_of(stamps.begin(), stamps.begin() + inputs,
                     [](const InputStamp& stamp) { return !stamp.is_regular; });
}

absl::Status NoDocument(const PrepareRequest& request, const PrepareCounts& counts) {
  const auto others = std::ssize(request.inputs) - 1;
  return absl::InvalidArgumentError(
      absl::StrCat(request.inputs[0].path, others > 0 ? absl::StrCat(" and ", others, " more") : "",
                   ": no document was found",
                   counts.empty > 0 ? absl::StrCat(", but ", counts.empty, " empty ones") : "",
                   "; expected at least one with a text"));
}

absl::Status IsOfAStream(const std::string& what) {
  return absl::AlreadyExistsError(absl::StrCat(
      what, ": is of a stream that was read before, and whether this one holds the same is not ",
      "known; name another --output, or let --force begin anew"));
}

// PrepareWork is one process's share of the work: from where the files are to the end of the texts.
class PrepareWork {
 public:
  PrepareWork(const Tokenizer& tokenizer, const PrepareRequest& request,
              const std::vector<InputStamp>& stamps, PreparedFiles* files)
      : request_(request),
        stamps_(stamps),
        files_(files),
        checked_input_(files->state().next.input),
        reader_(request.inputs, files->state().next,
                {.cut = request.rules.documents,
                 .chunk_bytes = request.chunk_bytes,
                 .stop = &is_over_}),
        threads_(request.threads, &request.inputs, &tokenizer, &request.rules, &reader_) {
    int64_t before = 0;
    for (const InputStamp& stamp : stamps) {
      stored_before_.push_back(before);
      before += stamp.input.stored_bytes;
    }
    progress_.all_stored_bytes = before;
  }
  // The reader may stand at a pipe that gives nothing: it is not waited for.
  ~PrepareWork() { is_over_ = true; }
  PrepareWork(const PrepareWork&) = delete;
  PrepareWork& operator=(const PrepareWork&) = delete;

  absl::Status Run() {
    absl::Status status = RunToEnd();
    progress_.is_over = true;
    if (request_.on_progress) request_.on_progress(progress_);
    // Chunks that were put before an error of reading, a bad row or a stop are good, and are kept;
    // the first error is the one that counts.
    if (!status.ok() && !files_failed_) Commit().IgnoreError();
    return status;
  }

 private:
  // Tokens count only while the texts that they are of are what they were.
  absl::Status Commit() {
    const int64_t last = std::min<int64_t>(files_->state().next.input, std::ssize(stamps_) - 1);
    RETURN_IF_ERROR(CheckUnchanged(stamps_, std::min(checked_input_, last), last));
    checked_input_ = last;
    return files_->Commit();
  }

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
    files_failed_ = true;
    RETURN_IF_ERROR(files_->Append(chunk));
    files_failed_ = false;
    progress_.text_bytes += chunk.text_bytes;
    progress_.stored_bytes = stored_before_[static_cast<size_t>(chunk.input)] + chunk.stored_bytes;
    progress_.tokens = files_->state().counts.tokens;
    const bool is_due =
        files_->bytes_since_commit() >= request_.commit_bytes &&
        (Clock::now() - committed_ >= kBetweenCommits ||
         files_->bytes_since_commit() >= kBytesWithoutCommit || request_.commit_bytes == 0);
    if (!is_due) return absl::OkStatus();
    committed_ = Clock::now();
    files_failed_ = true;
    RETURN_IF_ERROR(Commit());
    files_failed_ = false;
    return absl::OkStatus();
  }

  // A chunk with a row too many is not put into the files: the row may be mended.
  absl::Status CheckBadRows(const EncodedChunk& chunk) {
    if (files_->is_dropping(chunk)) return absl::OkStatus();  // one bad row, which was told
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
  const std::vector<InputStamp>& stamps_;
  PreparedFiles* const files_;
  int64_t checked_input_;               // those before it were unchanged when they had been read
  bool files_failed_ = false;           // and what is in them is not known
  std::vector<int64_t> stored_before_;  // of the inputs before each
  PrepareProgress progress_;
  Clock::time_point committed_ = Clock::now(), told_ = Clock::now();
  std::atomic<bool> is_over_{false};  // read by the threads
  ChunkReader reader_;
  EncodeThreads threads_;
};

}  // namespace

absl::StatusOr<std::string> TokenizerHash(const std::string& path) {
  std::string hashes;
  for (const std::string& file : FilesOfTokenizer(path)) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kMostIndexBytes));
    absl::StrAppend(&hashes, std::filesystem::path(file).filename().string(), ":",
                    absl::Hex(XXH3_64bits(text.data(), text.size()), absl::kZeroPad16), "\n");
  }
  return absl::StrFormat("%016x", XXH3_64bits(hashes.data(), hashes.size()));
}

absl::StatusOr<PrepareResult> Prepare(const Tokenizer& tokenizer, const PrepareRequest& request) {
  CHECK(request.threads >= 1 && !request.inputs.empty());
  const Clock::time_point begin = Clock::now();
  std::string hash = request.tokenizer_hash;
  if (hash.empty()) {
    ASSIGN_OR_RETURN(hash, TokenizerHash(request.tokenizer));
  }
  std::vector<InputStamp> stamps = request.stamps;
  if (stamps.empty()) {
    ASSIGN_OR_RETURN(stamps, StampInputs(request.inputs));
  }
  const std::string work =
      request.work.empty()
          ? WorkHash(hash, request.place.format, request.rules, stamps, request.place.seq_len)
          : request.work;
  ASSIGN_OR_RETURN(const std::optional<PrepareCounts> done, FindPrepared(request.place, work));
  if (done && HasStream(stamps, std::ssize(stamps))) {
    return IsOfAStream(request.place.output);
  }
  if (done) return PrepareResult{.counts = *done, .was_there = true};
  ASSIGN_OR_RETURN(const std::unique_ptr<PreparedFiles> files,
                   PreparedFiles::Open(request.place, work, StampHash(stamps)));
  const PrepareState& state = files->state();
  const int64_t all = std::ssize(stamps);
  if (HasStream(stamps, state.is_complete ? all : std::min(state.next.input, all))) {
    return IsOfAStream(absl::StrCat(request.place.output, kFolderEnding));
  }
  const int64_t before = state.counts.documents;
  if (!state.is_complete) {
    const absl::Status status = PrepareWork(tokenizer, request, stamps, files.get()).Run();
    if (absl::IsCancelled(status)) return status;
    // Whatever else it was, tokens of a text that is no more are of no use.
    const absl::Status unchanged = CheckUnchanged(stamps, 0, all - 1);
    if (!unchanged.ok()) {
      files->Discard();
      return unchanged;
    }
    const bool is_bad = absl::IsInvalidArgument(status) || absl::IsDataLoss(status);
    if (is_bad && request.discards_bad) {
      files->Discard();
      // DataLoss is left for what lies in the folder.
      return absl::InvalidArgumentError(status.message());
    }
    RETURN_IF_ERROR(status);
  }
  if (state.counts.documents == 0) {
    files->Discard();
    return NoDocument(request, state.counts);
  }
  nlohmann::ordered_json record = {{"tokenizer", request.tokenizer}, {"tokenizer_hash", hash}};
  record["format"] = std::string(WordOf(request.place.format));
  record["item_bytes"] = request.place.item_bytes;
  record["bytes"] = files->bytes();
  record["vocab_size"] = tokenizer.vocab_size();
  record["counts"] = CountsJson(state.counts);
  RETURN_IF_ERROR(files->Publish(record));
  return PrepareResult{
      .counts = state.counts, .documents_before = before, .took_s = SecondsSince(begin)};
}

}  // namespace weft
