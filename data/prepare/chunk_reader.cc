#include "data/prepare/chunk_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/prepare/text_cuts.h"
#include "plan/errors.h"
#include "xxhash.h"

namespace weft {
namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

ChunkReader::ChunkReader(std::vector<TextInput> inputs, const TextPosition& begin,
                         const ChunkOptions& options)
    : inputs_(std::move(inputs)), options_(options), at_(begin), hash_(XXH3_createState()) {
  CHECK(hash_ != nullptr && options_.chunk_bytes > 0);
}

ChunkReader::~ChunkReader() {
  XXH3_freeState(hash_);
}

bool ChunkReader::is_whole_file() const {
  return options_.cut == DocumentCut::kFile &&
         inputs_[static_cast<size_t>(at_.input)].format == TextFormat::kText;
}

// Takes bytes off the front of carried_: the place moves behind them.
void ChunkReader::Consume(size_t bytes) {
  if (is_hashed_) {
    XXH3_64bits_update(hash_, carried_.data(), bytes);
    at_.hash = XXH3_64bits_digest(hash_);
  }
  at_.byte += static_cast<int64_t>(bytes);
  at_.line += std::count(carried_.begin(), carried_.begin() + static_cast<ptrdiff_t>(bytes), '\n');
  carried_.erase(0, bytes);
}

absl::Status ChunkReader::OpenInput() {
  const TextPosition place = at_;
  ASSIGN_OR_RETURN(source_,
                   ByteSource::Open(inputs_[static_cast<size_t>(at_.input)].path, options_.stop));
  is_hashed_ = !source_->is_seekable();
  XXH3_64bits_reset(hash_);
  carried_.clear();
  at_ = {.input = place.input};
  is_within_ = is_whole_file() && place.byte > 0;
  if (place.byte > 0) return SkipTo(place);
  RETURN_IF_ERROR(source_->Append(kByteOrderMark.size(), &carried_));
  if (carried_ == kByteOrderMark) Consume(carried_.size());
  return absl::OkStatus();
}

absl::Status ChunkReader::SkipTo(const TextPosition& place) {
  if (!is_hashed_) {
    at_ = place;
    return source_->Seek(place.byte);
  }
  while (at_.byte < place.byte && !source_->at_end()) {
    const int64_t left = place.byte - at_.byte;
    RETURN_IF_ERROR(
        source_->Append(static_cast<size_t>(std::min<int64_t>(left, int64_t{1} << 20)), &carried_));
    Consume(carried_.size());
  }
  if (at_ == place) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(inputs_[static_cast<size_t>(at_.input)].path,
                   ": is not what it was when this work began; --force begins it anew"));
}

size_t ChunkReader::LastCut(absl::string_view text) const {
  if (is_whole_file()) return EndOfLastPart(text);
  const bool is_text = inputs_[static_cast<size_t>(at_.input)].format == TextFormat::kText;
  return is_text && options_.cut == DocumentCut::kParagraph ? EndOfLastParagraph(text)
                                                            : EndOfLastLine(text);
}

// Returns how many of the carried bytes are the next chunk; 0: nothing is left (*ends), or the row
// is too long.
absl::StatusOr<size_t> ChunkReader::FindCut(bool* ends) {
  const size_t most = is_whole_file() ? kMostPartBytes : size_t{kMostRowBytes};
  size_t wanted = std::min(is_whole_file() ? kPartBytes : options_.chunk_bytes, most);
  while (true) {
    // A byte more than is wanted tells whether the text ends here.
    if (carried_.size() <= wanted) {
      RETURN_IF_ERROR(source_->Append(wanted + 1 - carried_.size(), &carried_));
    }
    *ends = carried_.size() <= wanted;
    if (*ends) return carried_.size();
    const absl::string_view text = absl::string_view(carried_).substr(0, wanted);
    const size_t cut = LastCut(text);
    if (cut > 0) return cut;
    if (wanted == most) return is_whole_file() ? CutAnywhere(text) : 0;
    wanted = std::min(2 * wanted, most);
  }
}

absl::Status ChunkReader::SkipRow(TextChunk* chunk) {
  chunk->is_too_long = true;
  while (true) {
    const size_t newline = carried_.find('\n');
    if (newline != std::string::npos) {
      Consume(newline + 1);
      return absl::OkStatus();
    }
    Consume(carried_.size());
    if (source_->at_end()) return absl::OkStatus();
    RETURN_IF_ERROR(source_->Append(kChunkBytes, &carried_));
  }
}

absl::StatusOr<std::optional<TextChunk>> ChunkReader::Next() {
  while (at_.input < std::ssize(inputs_)) {
    if (!source_) RETURN_IF_ERROR(OpenInput());
    TextChunk chunk;
    chunk.input = at_.input;
    chunk.first_line = at_.line;
    chunk.begins = !is_within_;
    bool ends = false;
    ASSIGN_OR_RETURN(const size_t cut, FindCut(&ends));
    chunk.ends = !is_whole_file() || ends;
    is_within_ = !chunk.ends;
    if (cut == 0 && !ends) {
      RETURN_IF_ERROR(SkipRow(&chunk));
    } else {
      chunk.bytes = carried_.substr(0, cut);
      Consume(cut);
    }
    chunk.stored_bytes = source_->stored_bytes_read();
    if (ends) {
      source_.reset();
      at_ = {.input = at_.input + 1};
    }
    chunk.after = at_;
    if (cut == 0 && ends && chunk.begins) continue;  // an empty input
    return chunk;
  }
  return std::nullopt;
}

}  // namespace weft
