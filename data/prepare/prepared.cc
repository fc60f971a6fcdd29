#include "data/prepare/prepared.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/errors.h"
#include "plan/spec/job_spec.h"
#include "text/json.h"
#include "xxhash.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Another version cuts texts elsewhere, or writes other files: the same work is another one.
constexpr int kStateVersion = 2;
constexpr int64_t kMegatron16BitIds = 65500;

// The counts by their names, in the order in which they are written.
struct CountRow {
  const char* name;
  int64_t PrepareCounts::*count;
};
constexpr CountRow kCounts[] = {
    {"documents", &PrepareCounts::documents},
    {"tokens", &PrepareCounts::tokens},
    {"text_bytes", &PrepareCounts::text_bytes},
    {"empty_documents", &PrepareCounts::empty},
    {"bad_rows", &PrepareCounts::bad_rows},
    {"shortest_tokens", &PrepareCounts::shortest},
    {"longest_tokens", &PrepareCounts::longest},
    {"documents_longer_than_seq_len", &PrepareCounts::cut_documents},
    {"tokens_beyond_seq_len", &PrepareCounts::cut_tokens},
};

// A count of a file of ours: 0 or more, or it is none.
absl::Status ReadCount(const nlohmann::json& json, const char* name, int64_t* count) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer() || *found < 0 ||
      *found > std::numeric_limits<int64_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected a whole number, 0 or more"));
  }
  *count = found->get<int64_t>();
  return absl::OkStatus();
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Words WordsOf(TokenOutput) {
  static constexpr absl::string_view kWords[] = {"megatron", "nanogpt", "llmc"};
  return kWords;
}

int64_t ItemBytes(TokenOutput output, int64_t vocab_size) {
  if (output == TokenOutput::kMegatron) return vocab_size < kMegatron16BitIds ? 2 : 4;
  return vocab_size <= kMost16BitIds ? 2 : 4;
}

void PrepareCounts::Add(int64_t document_tokens, int64_t seq_len) {
  shortest = documents == 0 ? document_tokens : std::min(shortest, document_tokens);
  longest = std::max(longest, document_tokens);
  ++documents;
  tokens += document_tokens;
  if (seq_len == 0 || document_tokens <= seq_len) return;
  ++cut_documents;
  cut_tokens += document_tokens - seq_len;
}

Json CountsJson(const PrepareCounts& counts) {
  Json json;
  for (const CountRow& row : kCounts) json[row.name] = counts.*row.count;
  return json;
}

std::string StateText(const PrepareState& state) {
  const TextPosition& next = state.next;
  return Dump({{"version", kStateVersion},
               {"work", state.work},
               {"stamp", state.stamp},
               {"input", next.input},
               {"byte", next.byte},
               {"line", next.line},
               {"hash", absl::StrCat(absl::Hex(next.hash))},
               {"open_tokens", state.open_tokens},
               {"open_text_bytes", state.open_text_bytes},
               {"is_dropping", state.is_dropping},
               {"counts", CountsJson(state.counts)},
               {"may_replace", state.may_replace},
               {"is_complete", state.is_complete}});
}

absl::StatusOr<PrepareState> ParseState(absl::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, {.most_bytes = kMostJobTextBytes}));
  if (!json.is_object() || json.value("version", nlohmann::json()) != kStateVersion) {
    return absl::InvalidArgumentError("is of another version of weft");
  }
  PrepareState state;
  const auto work = json.find("work"), hash = json.find("hash"), counts = json.find("counts"),
             complete = json.find("is_complete");
  const bool is_whole = work != json.end() && work->is_string() && hash != json.end() &&
                        hash->is_string() && counts != json.end() && counts->is_object() &&
                        complete != json.end() && complete->is_boolean();
  if (!is_whole) return absl::InvalidArgumentError("expected work, hash, counts and is_complete");
  state.work = *work;
  state.is_complete = *complete;
  if (const auto stamp = json.find("stamp"); stamp != json.end() && stamp->is_string()) {
    state.stamp = *stamp;
  }
  state.may_replace = json.value("may_replace", nlohmann::json()) == true;
  state.is_dropping = json.value("is_dropping", nlohmann::json()) == true;
  if (!absl::SimpleHexAtoi(std::string(*hash), &state.next.hash)) {
    return absl::InvalidArgumentError("hash: expected hexadecimal digits");
  }
  RETURN_IF_ERROR(ReadCount(json, "input", &state.next.input));
  RETURN_IF_ERROR(ReadCount(json, "byte", &state.next.byte));
  RETURN_IF_ERROR(ReadCount(json, "line", &state.next.line));
  RETURN_IF_ERROR(ReadCount(json, "open_tokens", &state.open_tokens));
  RETURN_IF_ERROR(ReadCount(json, "open_text_bytes", &state.open_text_bytes));
  for (const CountRow& row : kCounts) {
    RETURN_IF_ERROR(ReadCount(*counts, row.name, &(state.counts.*row.count)));
  }
  return state;
}

std::string WorkHash(absl::string_view tokenizer, TokenOutput output, const EncodeRules& rules,
                     const std::vector<InputStamp>& inputs, int64_t seq_len) {
  Json json = {{"version", kStateVersion},
               {"tokenizer", std::string(tokenizer)},
               {"output", std::string(WordOf(output))},
               {"item_bytes", rules.item_bytes},
               {"text_key", rules.text_key},
               {"documents", std::string(WordOf(rules.documents))},
               {"specials", static_cast<int>(rules.specials)},
               {"invalid_utf8", static_cast<int>(rules.invalid_utf8)},
               {"before", rules.before},
               {"after", rules.after},
               {"seq_len", seq_len},
               {"inputs", Json::array()}};
  for (const InputStamp& stamp : inputs) {
    json["inputs"].push_back({{"path", stamp.input.path},
                              {"format", std::string(WordOf(stamp.input.format))},
                              {"bytes", stamp.input.stored_bytes},
                              {"changed_ns", stamp.changed_ns},
                              {"touched_ns", stamp.touched_ns},
                              {"inode", stamp.inode}});
  }
  const std::string text = Dump(json);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace weft
