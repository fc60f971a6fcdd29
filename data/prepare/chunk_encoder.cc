#include "data/prepare/chunk_encoder.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data/prepare/text_cuts.h"
#include "data/tokenizer/decoder.h"
#include "data/unicode.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMostDepth = 1024;
constexpr size_t kMostKeysShown = 8;
// A parser that a long row has made larger is given back.
constexpr size_t kMostKeptBytes = size_t{4} << 20;

absl::string_view KindOf(dom::element_type type) {
  switch (type) {
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::STRING:
      return "a text";
    case dom::element_type::BOOL:
      return "true or false";
    case dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

absl::Status NoKey(const dom::object& row, const EncodeRules& rules) {
  std::string keys;
  size_t shown = 0;
  for (const auto& [key, value] : row) {
    if (++shown > kMostKeysShown) break;
    absl::StrAppend(&keys, shown == 1 ? "" : ", ", Shortened({key.data(), key.size()}));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found ", shown == 0 ? "an empty object" : absl::StrCat("the keys ", keys),
                   shown > kMostKeysShown ? ", ..." : "", "; expected ", rules.text_key,
                   "; name the one that holds the text with ", rules.text_key_option));
}

// Bytes of a line without what ends it.
absl::string_view WithoutEnd(absl::string_view line) {
  absl::ConsumeSuffix(&line, "\n");
  absl::ConsumeSuffix(&line, "\r");
  return line;
}

// Calls take(line, number) for each line of a chunk.
template <typename Take>
void ForEachLine(absl::string_view text, int64_t first_line, const Take& take) {
  for (int64_t line = first_line; !text.empty(); ++line) {
    const size_t newline = text.find('\n');
    const size_t end = newline == absl::string_view::npos ? text.size() : newline + 1;
    take(text.substr(0, end), line);
    text.remove_prefix(end);
  }
}

// Returns the line of the first byte that is no UTF-8; the first one, if all of it is UTF-8.
int64_t LineOfBroken(const TextChunk& chunk) {
  int64_t line = chunk.first_line;
  for (size_t at = 0; at < chunk.bytes.size();) {
    const Character character = CharacterAt(chunk.bytes, at);
    if (character.code_point == kNoCharacter) return line;
    if (character.code_point == '\n') ++line;
    at += static_cast<size_t>(character.bytes);
  }
  return chunk.first_line;
}

template <typename T>
void PackIds(const std::vector<int32_t>& ids, std::string* bytes) {
  const size_t before = bytes->size();
  bytes->resize(before + ids.size() * sizeof(T));
  char* to = bytes->data() + before;
  for (const int32_t id : ids) {
    const T item = static_cast<T>(id);
    std::memcpy(to, &item, sizeof item);
    to += sizeof item;
  }
}

}  // namespace

struct ChunkEncoder::RowParser {
  dom::parser parser;
  std::string wide_text;  // of a row whose numbers are too large for the parser

  // `row` has simdjson::SIMDJSON_PADDING readable bytes behind it. What is returned lives until the
  // next call.
  absl::StatusOr<absl::string_view> TextOf(absl::string_view row, const EncodeRules& rules);
  absl::StatusOr<absl::string_view> WideTextOf(absl::string_view row, const std::string& text_key);
};

absl::StatusOr<absl::string_view> ChunkEncoder::RowParser::TextOf(absl::string_view row,
                                                                  const EncodeRules& rules) {
  const std::string& text_key = rules.text_key;
  if (parser.capacity() < row.size()) {
    // No more than it needs: the parser would take twice what it had.
    if (parser.allocate(std::max<size_t>(row.size(), 4096), kMostDepth) != simdjson::SUCCESS) {
      return absl::ResourceExhaustedError("no memory for the row");
    }
  }
  dom::element root;
  const auto error = parser.parse(row.data(), row.size(), false).get(root);
  if (error == simdjson::NUMBER_ERROR) return WideTextOf(row, text_key);
  if (error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found no JSON object (", simdjson::error_message(error), "); expected one a line"));
  }
  if (root.type() != dom::element_type::OBJECT) {
    return absl::InvalidArgumentError(absl::StrCat("found ", KindOf(root.type()),
                                                   ", expected an object with the key ", text_key));
  }
  const dom::object object = root.get_object();
  const dom::element* found = nullptr;
  dom::element value;
  for (const auto& field : object) {
    if (field.key != std::string_view(text_key)) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("the key ", text_key, " stands twice"));
    }
    value = field.value;
    found = &value;
  }
  if (found == nullptr) return NoKey(object, rules);
  if (value.type() != dom::element_type::STRING) {
    return absl::InvalidArgumentError(
        absl::StrCat(text_key, ": found ", KindOf(value.type()), ", expected a text"));
  }
  const std::string_view text = value.get_string();
  return absl::string_view(text.data(), text.size());
}

// Numbers beyond 64 bits beside the text are nobody's fault: read by the slower parser, to which
// they are floating-point numbers.
absl::StatusOr<absl::string_view> ChunkEncoder::RowParser::WideTextOf(absl::string_view row,
                                                                      const std::string& text_key) {
  ASSIGN_OR_RETURN(const nlohmann::json json,
                   ParseJson(row, {.most_bytes = kMostRowBytes, .is_key_told_once = true}));
  if (!json.is_object() || !json.contains(text_key) || !json[text_key].is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found no object with a text under the key ", text_key));
  }
  wide_text = json[text_key].get<std::string>();
  return absl::string_view(wide_text);
}

ChunkEncoder::ChunkEncoder(const Tokenizer* tokenizer, const EncodeRules* rules)
    : tokenizer_(tokenizer), rules_(rules), parser_(std::make_unique<RowParser>()) {}

ChunkEncoder::~ChunkEncoder() = default;

EncodedChunk ChunkEncoder::Encode(TextChunk chunk, TextFormat format) {
  EncodedChunk encoded;
  encoded.begins = chunk.begins;
  encoded.ends = chunk.ends;
  encoded.after = chunk.after;
  encoded.input = chunk.input;
  encoded.stored_bytes = chunk.stored_bytes;
  if (chunk.is_too_long) {
    encoded.bad_rows.push_back(
        {chunk.input, chunk.first_line,
         absl::StrCat("found a row of more than ", kMostRowBytes >> 20, " MiB; cut it")});
  } else if (format == TextFormat::kJsonl) {
    EncodeRows(&chunk, &encoded);
  } else if (rules_->documents == DocumentCut::kLine) {
    EncodeLines(chunk, &encoded);
  } else if (rules_->documents == DocumentCut::kParagraph) {
    EncodeParagraphs(chunk, &encoded);
  } else {
    EncodePart(chunk, &encoded);
  }
  if (parser_->parser.capacity() > kMostKeptBytes) parser_ = std::make_unique<RowParser>();
  return encoded;
}

void ChunkEncoder::EncodeRows(TextChunk* chunk, EncodedChunk* encoded) {
  const size_t size = chunk->bytes.size();
  chunk->bytes.append(simdjson::SIMDJSON_PADDING, '\0');
  std::string replaced;
  const absl::string_view all = absl::string_view(chunk->bytes).substr(0, size);
  ForEachLine(all, chunk->first_line, [&](absl::string_view row, int64_t line) {
    if (absl::StripAsciiWhitespace(row).empty()) return;
    if (rules_->invalid_utf8 == InvalidUtf8::kReplace &&
        !simdjson::validate_utf8(row.data(), row.size())) {
      replaced = WithReplacements(row);
      row = replaced;
      replaced.append(simdjson::SIMDJSON_PADDING, '\0');
      row = absl::string_view(replaced).substr(0, replaced.size() - simdjson::SIMDJSON_PADDING);
    }
    const absl::StatusOr<absl::string_view> text = parser_->TextOf(row, *rules_);
    if (text.ok()) return EncodeDocument(*text, line, encoded);
    encoded->bad_rows.push_back({chunk->input, line, std::string(text.status().message())});
  });
}

void ChunkEncoder::EncodeLines(const TextChunk& chunk, EncodedChunk* encoded) {
  encoded->input = chunk.input;
  ForEachLine(chunk.bytes, chunk.first_line, [&](absl::string_view row, int64_t line) {
    const absl::string_view text = WithoutEnd(row);
    if (!text.empty()) EncodeDocument(text, line, encoded);
  });
}

void ChunkEncoder::EncodeParagraphs(const TextChunk& chunk, EncodedChunk* encoded) {
  absl::string_view paragraph;
  int64_t first = chunk.first_line;
  const auto flush = [&] {
    const absl::string_view text = WithoutEnd(paragraph);
    if (!text.empty()) EncodeDocument(text, first, encoded);
    paragraph = {};
  };
  ForEachLine(chunk.bytes, chunk.first_line, [&](absl::string_view row, int64_t line) {
    if (WithoutEnd(row).empty()) return flush();
    if (paragraph.empty()) first = line;
    const char* const begin = paragraph.empty() ? row.data() : paragraph.data();
    paragraph = {begin, static_cast<size_t>(row.data() + row.size() - begin)};
  });
  flush();
}

void ChunkEncoder::EncodePart(const TextChunk& chunk, EncodedChunk* encoded) {
  ids_.clear();
  if (chunk.begins) ids_ = rules_->before;
  const absl::Status status = EncodeText(chunk.bytes);
  if (!status.ok()) {
    encoded->is_bad = true;
    encoded->bad_rows.push_back({chunk.input, LineOfBroken(chunk), std::string(status.message())});
    return;
  }
  encoded->text_bytes += std::ssize(chunk.bytes);
  if (chunk.ends) ids_.insert(ids_.end(), rules_->after.begin(), rules_->after.end());
  Put(std::ssize(ids_), encoded);
}

void ChunkEncoder::EncodeDocument(absl::string_view text, int64_t line, EncodedChunk* encoded) {
  if (text.empty()) {
    ++encoded->empty;
    return;
  }
  ids_ = rules_->before;
  const absl::Status status = EncodeText(text);
  if (!status.ok()) {
    encoded->bad_rows.push_back({encoded->input, line, std::string(status.message())});
    return;
  }
  ids_.insert(ids_.end(), rules_->after.begin(), rules_->after.end());
  encoded->text_bytes += std::ssize(text);
  Put(std::ssize(ids_), encoded);
}

// Appends the ids of a text, or none.
absl::Status ChunkEncoder::EncodeText(absl::string_view text) {
  const EncodeOptions options = {
      .specials = rules_->specials, .invalid_utf8 = rules_->invalid_utf8, .adds_ends = false};
  const size_t before = ids_.size();
  const absl::Status status = ForEachPart(text, [&](absl::string_view part) {
    return tokenizer_->Encode(part, options, &scratch_, &ids_);
  });
  if (!status.ok()) ids_.resize(before);
  return status;
}

void ChunkEncoder::Put(int64_t tokens, EncodedChunk* encoded) {
  encoded->lengths.push_back(tokens);
  if (rules_->item_bytes == 2) {
    PackIds<uint16_t>(ids_, &encoded->ids);
  } else {
    PackIds<int32_t>(ids_, &encoded->ids);
  }
}

}  // namespace weft
