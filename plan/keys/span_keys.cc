#include "plan/keys/span_keys.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr absl::string_view kSpans = "layer_types";
constexpr absl::string_view kTurns = "no_rope_layers";
constexpr absl::string_view kWindow = "sliding_window";
constexpr absl::string_view kUse = "use_sliding_window";
constexpr int64_t kMostBlocks = int64_t{1} << 16;  // CheckModel refuses more

const Value* SaidIn(const Value& tree, absl::string_view key) {
  const Value* const node = tree.Find(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

// The number of a rule; `silent` where nothing is said, or nothing that makes sense.
int64_t NumberOf(const Value& tree, absl::string_view key, int64_t silent, Issues* issues) {
  const Value* const node = SaidIn(tree, key);
  if (node == nullptr) return silent;
  const std::optional<int64_t> number =
      node->is_scalar() && !node->quoted ? ParseWholeNumber(node->scalar) : std::nullopt;
  if (number && *number >= 0) return *number;
  issues->Add(node->place, absl::StrCat("model.", key),
              absl::StrCat("found ", node->Found(), "; expected a whole number, 0 or more"));
  return silent;
}

// Takes the window away if that is said. A file and a person may say one half each.
void ReadSwitch(const Value& tree, const ModelType& type, Issues* issues, ModelShape* model) {
  const std::string key = absl::StrCat("model.", kUse);
  const Value* const window = tree.Find(kWindow);
  const Value* const node = SaidIn(tree, kUse);
  if (node == nullptr) return;
  const std::string word(node->is_scalar() ? node->word() : absl::string_view());
  if (word != "true" && word != "false") {
    issues->Add(node->place, key,
                absl::StrCat("found ", node->Found(), "; expected true or false"));
  } else if (word == "true" && window == nullptr && HasWord(type.reads, kUse)) {
    issues->Add(
        node->place, key,
        absl::StrCat("true without ", kWindow, "; say how many keys a token sees, or null"));
  } else if (word == "false" && model->window > 0 && window != nullptr &&
             window->place.source != node->place.source &&
             absl::EndsWith(node->place.source, ".json")) {
    issues->Add(window->place, absl::StrCat("model.", kWindow),
                absl::StrCat(window->Found(), " is switched off by ", kUse, ": false of ",
                             node->place.Text(), "; use --set ", key, "=true, too"));
  }
  if (word == "false") model->window = 0;
}

// A model with fewer blocks than the one that the list was written for has the first of them.
template <typename T>
void CutDown(const Value& list, const Value& tree, int64_t num_blocks, std::vector<T>& values) {
  const Value* const blocks = tree.Find("num_hidden_layers");
  const bool is_cut = blocks != nullptr && blocks->place.source != list.place.source;
  if (is_cut && std::ssize(values) > num_blocks) values.resize(static_cast<size_t>(num_blocks));
}

// The file has 1 or 0 for each block.
std::vector<bool> TurnsIn(const Value& node, Issues* issues) {
  std::vector<bool> turns;
  for (const Value& item : node.items) {
    const std::string word(item.is_scalar() ? item.word() : absl::string_view());
    if (word != "1" && word != "0") break;
    turns.push_back(word == "1");
  }
  if (node.is_list() && turns.size() == node.items.size()) return turns;
  issues->Add(node.place, absl::StrCat("model.", kTurns),
              absl::StrCat("found ", node.Found(), "; expected a list with 1 for each block with ",
                           "rotary positions and 0 for each without"));
  return {};
}

std::vector<AttentionSpan> SpansIn(const Value& node, Issues* issues) {
  std::vector<AttentionSpan> spans;
  std::string wrong = node.is_list() ? "" : node.Found();
  for (const Value& item : node.items) {
    const auto span = ParseWord<AttentionSpan>(item.is_scalar() ? item.scalar : "", "a span");
    if (span.ok()) {
      spans.push_back(*span);
    } else if (wrong.empty()) {
      wrong = absl::StrCat(item.Found(), " in it");
    }
  }
  if (wrong.empty()) return spans;
  issues->Add(node.place, absl::StrCat("model.", kSpans),
              absl::StrCat("found ", wrong, ", which is not supported yet; expected a list of ",
                           Alternatives(WordsOf(AttentionSpan{})), ", one a block"));
  return {};
}

// A SpanRule has the numbers by which types say which blocks slide.
struct SpanRule {
  int64_t first = 0;    // of kFrom
  int64_t pattern = 0;  // of kAllButEvery
};

AttentionSpan SpanOf(const ModelType& type, int64_t block, const SpanRule& rule,
                     const ModelShape& model) {
  switch (type.slides) {
    case SlidingBlocks::kAll:
      return AttentionSpan::kSliding;
    case SlidingBlocks::kFrom:
      return block >= rule.first ? AttentionSpan::kSliding : AttentionSpan::kFull;
    case SlidingBlocks::kUnturned:
      return model.turns_in(block) ? AttentionSpan::kFull : AttentionSpan::kSliding;
    case SlidingBlocks::kAllButEvery:
      return rule.pattern > 0 && (block + 1) % rule.pattern == 0 ? AttentionSpan::kFull
                                                                 : AttentionSpan::kSliding;
  }
  return AttentionSpan::kSliding;
}

void ReadTurns(const Value& tree, const ModelType& type, Issues* issues, ModelShape* model) {
  const int64_t interval = NumberOf(tree, "no_rope_layer_interval", 4, issues);
  if (const Value* const list = SaidIn(tree, kTurns)) {
    model->turns = TurnsIn(*list, issues);
    CutDown(*list, tree, model->num_blocks, model->turns);
  } else if (type.has_unturned && interval > 0) {
    for (int64_t block = 0; block < model->num_blocks; ++block) {
      model->turns.push_back((block + 1) % interval != 0);
    }
  }
}

// REQUIRES: there is a span for each block, or a file's wrong list.
void TurnSlidingBlocks(const Value& tree, const ModelType& type, Issues* issues,
                       ModelShape* model) {
  if (model->window == 0) {
    issues->Add(tree.place, "model.sliding_window",
                absl::StrCat("missing; a ", type.name(),
                             " has positions in blocks with a window alone, and would have none; ",
                             "those that are published have 4096"));
  }
  const bool is_said = !model->turns.empty();  // and, if otherwise, another type's
  if (is_said || (std::ssize(model->spans) != model->num_blocks && !model->spans.empty())) return;
  for (int64_t block = 0; block < model->num_blocks; ++block) {
    model->turns.push_back(model->window_of(block) > 0);
  }
}

}  // namespace

void ReadSpans(const Value& tree, const ModelType& type, Issues* issues, ModelShape* model) {
  if (model->num_blocks < 1 || model->num_blocks > kMostBlocks) return;
  ReadTurns(tree, type, issues, model);
  const SpanRule rule = {.first = NumberOf(tree, "max_window_layers", 28, issues),
                         .pattern = NumberOf(tree, "sliding_window_pattern", type.every, issues)};
  ReadSwitch(tree, type, issues, model);
  const bool has_turns = model->turns.empty() || std::ssize(model->turns) == model->num_blocks;
  if (const Value* const list = SaidIn(tree, kSpans)) {
    model->spans = SpansIn(*list, issues);
    CutDown(*list, tree, model->num_blocks, model->spans);
  } else if (model->window > 0 && has_turns) {
    for (int64_t block = 0; block < model->num_blocks; ++block) {
      model->spans.push_back(SpanOf(type, block, rule, *model));
    }
  }
  if (type.turns_sliding) TurnSlidingBlocks(tree, type, issues, model);
  // Lists of another length are CheckModel's to refuse.
  if (has_turns && (model->spans.empty() || std::ssize(model->spans) == model->num_blocks)) {
    SettleSpans(*model);
  }
}

Value SpansValue(const ModelShape& model, const ModelType& type) {
  const bool is_silence_full = type.slides != SlidingBlocks::kAllButEvery;
  if (model.window == 0 && is_silence_full) return {};
  if (model.spans.empty() && type.slides == SlidingBlocks::kAll) return {};
  std::vector<Value> items;
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    const bool slides = model.window_of(block) > 0;
    const AttentionSpan span = slides ? AttentionSpan::kSliding : AttentionSpan::kFull;
    items.push_back(Value::Scalar(WordOf(span)));
  }
  return Value::List(std::move(items));
}

Value TurnsValue(const ModelShape& model, const ModelType& type) {
  if (type.turns_sliding || (model.turns.empty() && !type.has_unturned)) return {};
  std::vector<Value> items;
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    items.push_back(Value::Whole(model.turns_in(block) ? 1 : 0));
  }
  return Value::List(std::move(items));
}

}  // namespace weft
