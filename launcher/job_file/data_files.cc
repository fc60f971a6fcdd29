#include "launcher/job_file/data_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "data/file_pattern.h"
#include "data/prepare/text_kind.h"
#include "data/token_file.h"
#include "data/token_judge.h"
#include "launcher/job_file/run_paths.h"
#include "plan/keys/key_field.h"
#include "plan/keys/value_reader.h"

namespace weft {
namespace {

constexpr absl::string_view kListForm = "expected a file, or a list of files: [corpus.txt]";

// Why a file cannot be trained on; nullopt: it can.
struct Unusable {
  std::string why;
  bool is_harmless = false;  // where a pattern has met it beside others
};
std::optional<Unusable> WhyUnusable(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Unusable{absl::StrCat(path, " is a folder; name files, for example ", path, "/*.txt"),
                    true};
  }
  if (access(path.c_str(), R_OK) != 0) {
    return Unusable{absl::StrCat("cannot read ", path, " (", std::strerror(errno), ")")};
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return Unusable{absl::StrCat(path, " is a device, pipe or socket; name files")};
  }
  if (std::filesystem::file_size(path, error) == 0 || error) {
    return Unusable{absl::StrCat(path, " is empty; training needs tokens"), true};
  }
  return std::nullopt;
}

void CheckWeights(const std::vector<std::pair<Place, double>>& weights, absl::string_view key,
                  Issues* issues) {
  for (const auto& [place, weight] : weights) {
    if (weight == 1.0) continue;
    issues->Add(place, absl::StrCat(key, ".weight"),
                absl::StrCat(NumberText(weight),
                             " is not supported yet; use 1 or leave it out: files are sampled in "
                             "proportion to their size"));
  }
}

void AddFiles(const std::string& given, const Value& where, absl::string_view key,
              const DataFileOptions& options, Issues* issues, std::vector<DataSource>* sources,
              std::vector<std::string>* notes) {
  const std::string pattern = AbsolutePath(given, options.job_folder);
  const absl::StatusOr<std::vector<std::string>> files = ExpandFilePattern(pattern);
  if (!files.ok()) {
    issues->Add(where.place, absl::StrCat(key, ".path"), files.status().message());
    return;
  }
  if (files->empty() && !options.check_files) {
    sources->push_back({pattern});
    return;
  }
  if (files->empty()) {
    const bool is_glob = given.find_first_of("*?[") != std::string::npos;
    issues->Add(where.place, absl::StrCat(key, ".path"),
                absl::StrCat(is_glob ? "no file matches " : "no such file: ", pattern,
                             "; paths are relative to the job file (weft plan --without-data plans "
                             "all the same)"));
  }
  const size_t first = sources->size();
  std::vector<std::string> passed_over;
  for (const std::string& file : *files) {
    const std::optional<Unusable> unusable = options.check_files ? WhyUnusable(file) : std::nullopt;
    if (unusable && unusable->is_harmless && files->size() > 1) {
      passed_over.push_back(unusable->why);
      continue;
    }
    if (unusable) issues->Add(where.place, absl::StrCat(key, ".path"), unusable->why);
    sources->push_back({file});
  }
  if (passed_over.empty()) return;
  const bool has_others = sources->size() > first;
  if (!has_others) return issues->Add(where.place, absl::StrCat(key, ".path"), passed_over[0]);
  notes->push_back(absl::StrCat(key, ": ", passed_over.size(), " of the ", files->size(), " that ",
                                pattern, " matches are passed over: ", passed_over[0]));
}

// A file's name may stand for {path: NAME}, as other systems have it. A number, or a flag, is
// rather a slip.
bool IsPath(const Value& value) {
  if (!value.is_scalar() || value.scalar.empty()) return false;
  return value.quoted ||
         !(ParseNumber(value.scalar) || value.word() == "true" || value.word() == "false");
}

// A list of files, and the keys of their rows where such are given: in pairs.
struct NamedSources {
  std::vector<DataSource> files;
  std::vector<Value> text_keys;  // null: none is given

  // The list as the job has it.
  Value Printed() {
    Value list = PrintField(&files);
    for (size_t i = 0; i < files.size(); ++i) {
      if (!text_keys[i].is_null()) list.items[i].Put(kTextKey, text_keys[i]);
    }
    return list;
  }
};

NamedSources ReadSources(const Value& data, absl::string_view name, const DataFileOptions& options,
                         Issues* issues, std::vector<std::string>* notes) {
  NamedSources sources;
  const std::string key = absl::StrCat("data.", name);
  const Value* list = data.Find(name);
  if (list == nullptr || list->is_null()) return sources;
  std::vector<std::pair<Place, double>> weights;
  for (const Value& item : list->is_list() ? list->items : std::vector<Value>{*list}) {
    if (IsPath(item)) {
      AddFiles(item.scalar, item, key, options, issues, &sources.files, notes);
      sources.text_keys.resize(sources.files.size());
      continue;
    }
    if (!item.is_map()) {
      issues->Add(item.place, key, absl::StrCat("found ", item.Found(), "; ", kListForm));
      continue;
    }
    const ValueReader values(item, key, issues);
    for (const auto& [entry, node] : item.entries) {
      if (entry == "path" || entry == "weight" || entry == kTextKey) continue;
      issues->Add(node.place, absl::StrCat(key, ".", entry),
                  absl::StrCat("unknown key; known are path, ", kTextKey, ", weight"));
    }
    if (const auto weight = values.Number("weight")) weights.emplace_back(item.place, *weight);
    const std::optional<std::string> path = values.Text("path");
    if (path) AddFiles(*path, item, key, options, issues, &sources.files, notes);
    Value text_key;
    if (const auto given = values.Text(kTextKey)) {
      text_key = Value::Scalar(*given, item.Find(kTextKey)->place);
      if (given->empty())
        values.Wrong(kTextKey, "empty; name the key of a row that holds its text");
    }
    sources.text_keys.resize(sources.files.size(), text_key);
    if (!item.Find("path")) issues->Add(item.place, absl::StrCat(key, ".path"), "missing");
  }
  CheckWeights(weights, key, issues);
  return sources;
}

// Rows are tokenised; files of tokens, and bytes, have none.
void CheckTextKeys(const NamedSources& sources, absl::string_view key, const Value& format,
                   Issues* issues) {
  const bool is_text = format.is_scalar() && (format.word() == kTextByName ||
                                              ParseWord<TextFormat>(format.word(), "").ok());
  for (const Value& text_key : sources.text_keys) {
    if (is_text || text_key.is_null()) continue;
    issues->Add(text_key.place, absl::StrCat(key, ".", kTextKey),
                absl::StrCat("is of JSON lines that are tokenised, and data.format is ",
                             format.is_scalar() ? format.word() : "not known",
                             "; leave it out, or name a tokenizer with data.tokenizer"));
  }
}

// Returns what stands at data.format once the first file has been looked at; null: it cannot be
// told.
Value SettledFormat(const ValueReader& values, const std::vector<DataSource>& train,
                    const DataFileOptions& options, std::vector<std::string>* notes) {
  const Value* const given = values.Node("format");
  if (given != nullptr && ParseWord<TextFormat>(given->word(), "").ok()) {
    return Value::Scalar(given->word());
  }
  if (given != nullptr && !given->is_auto()) return *given;
  if (options.has_tokenizer && !train.empty() && FormatOfName(train[0].path).ok()) {
    notes->push_back(absl::StrCat("data.format: auto: ", train[0].path, " is text"));
    return Value::Scalar(kTextByName);
  }
  // Only plain ids have a width of their own to say.
  const Value* const dtype = values.Node("dtype");
  const bool are_ids = dtype != nullptr && !dtype->is_auto();
  if (train.empty()) return {};
  const std::string& first = train[0].path;
  std::error_code error;
  if (access(first.c_str(), R_OK) != 0 || !std::filesystem::is_regular_file(first, error)) {
    const TokenFormat taken = are_ids ? TokenFormat::kNanogpt : TokenFormat::kBytes;
    if (!options.check_files) {
      notes->push_back(absl::StrCat("data.format: auto: no file here, taken as ", WordOf(taken)));
    }
    return are_ids ? Value::Scalar(WordOf(taken)) : Value();
  }
  const absl::StatusOr<TokenFormat> sniffed = SniffFormat(first, are_ids);
  if (!sniffed.ok()) {
    values.Wrong("format", sniffed.status().message());
    return {};
  }
  notes->push_back(absl::StrCat("data.format: auto: ", first, " is read as ", WordOf(*sniffed)));
  return Value::Scalar(WordOf(*sniffed));
}

}  // namespace

Value SettledData(const Value& data, const DataFileOptions& options, Issues* issues,
                  std::vector<std::string>* notes) {
  NamedSources train = ReadSources(data, "train", options, issues, notes);
  NamedSources valid = ReadSources(data, "valid", options, issues, notes);
  Value settled = data;
  const Value format =
      SettledFormat(ValueReader(data, "data", issues), train.files, options, notes);
  CheckTextKeys(train, "data.train", format, issues);
  CheckTextKeys(valid, "data.valid", format, issues);
  const auto put = [&](absl::string_view key, Value value) {
    if (const Value* const before = data.Find(key)) value.place = before->place;
    settled.Put(key, std::move(value));
  };
  const Value* const given = data.Find("train");
  const bool is_given =
      given != nullptr && !given->is_null() && !(given->is_list() && given->items.empty());
  put("train", is_given ? Value::List(train.Printed().items) : Value());
  put("valid", valid.Printed());
  put("format", format);
  return settled;
}

absl::StatusOr<TokenFormat> SniffFormat(const std::string& path, bool are_ids) {
  std::error_code error;
  if (absl::EndsWith(path, ".idx")) {
    return absl::InvalidArgumentError(
        absl::StrCat("auto: ", path, " is the index of a .bin; name that"));
  }
  if (std::filesystem::exists(MegatronIndexOf(path), error)) return TokenFormat::kMegatron;
  char head[4] = {};
  std::ifstream stream(path, std::ios::binary);
  stream.read(head, sizeof(head));
  int32_t magic = 0;
  std::memcpy(&magic, head, sizeof(magic));
  if (magic == kLlmcGpt2Magic || magic == kLlmcLlamaMagic) return TokenFormat::kLlmc;
  if (head[0] == '{') {
    return absl::InvalidArgumentError(absl::StrCat(
        "auto: ", path,
        " begins with { (JSON lines); name their tokenizer with data.tokenizer, or use "
        "format bytes to train on its bytes"));
  }
  if (are_ids || absl::EndsWith(path, ".bin")) return TokenFormat::kNanogpt;
  return absl::InvalidArgumentError(
      absl::StrCat("auto: ", path,
                   " has no header and no name that tells its format; use bytes "
                   "(one token per byte), llmc, nanogpt or megatron, or name a tokenizer with "
                   "data.tokenizer"));
}

}  // namespace weft
