#include "launcher/slurm/gpu_type.h"

#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

constexpr size_t kLeastDigits = 2;       // of a number that letters stand right before
constexpr size_t kLeastDigitsAlone = 4;  // of another

// "rtx4090ti" is {"rtx", "4090", "ti"}.
struct GpuModel {
  std::string before;
  std::string number;
  std::string after;
  bool is_one_word = true;  // `before` stands right there
};

bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

bool IsLetter(char c) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c));
}

// Takes what `is` holds for from the front of `text`.
std::string TakeWhile(bool (*is)(char), absl::string_view* text) {
  size_t size = 0;
  while (size < text->size() && is((*text)[size])) ++size;
  std::string taken(text->substr(0, size));
  text->remove_prefix(size);
  return taken;
}

// The model that one word names, if it is nothing but letters, a number, and letters.
std::optional<GpuModel> ModelIn(absl::string_view word) {
  // The only models with a single digit; of other words one says nothing ("v2").
  const bool is_short = word == "t4" || word == "l4";
  GpuModel model;
  model.before = TakeWhile(&IsLetter, &word);
  model.number = TakeWhile(&IsDigit, &word);
  model.after = TakeWhile(&IsLetter, &word);
  model.is_one_word = !model.before.empty();
  const size_t least = model.is_one_word ? kLeastDigits : kLeastDigitsAlone;
  if (!word.empty() || (model.number.size() < least && !is_short)) return std::nullopt;
  return model;
}

std::optional<GpuModel> ModelOf(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  std::string last;  // the word before
  for (const absl::string_view word : absl::StrSplit(lower, absl::ByAnyChar("-_ "))) {
    std::optional<GpuModel> model = ModelIn(word);
    if (model && !model->is_one_word) model->before = last;
    if (model) return model;
    last = std::string(word);
  }
  return std::nullopt;
}

}  // namespace

GpuMatch MatchGpu(absl::string_view type, absl::string_view device) {
  const std::optional<GpuModel> there = ModelOf(type), planned = ModelOf(device);
  if (!there || !planned) return GpuMatch::kUnknown;
  if (there->number != planned->number) return GpuMatch::kOther;
  if (there->before != planned->before) {
    if (there->is_one_word && planned->is_one_word) return GpuMatch::kOther;
    if (!there->before.empty() && !planned->before.empty()) return GpuMatch::kUnknown;
  }
  return there->after == planned->after ? GpuMatch::kSame : GpuMatch::kUnknown;
}

}  // namespace weft
