#include "launcher/job_file/text_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/prepare/token_cache.h"
#include "data/sampling.h"
#include "data/tokenizer/tokenizer_files.h"
#include "launcher/job_file/data_files.h"
#include "launcher/job_file/hub_cache.h"
#include "launcher/job_file/run_paths.h"
#include "plan/errors.h"

namespace weft {
namespace {

// Steps of a job whose epochs cannot be counted where it is planned.
constexpr int64_t kAssumedSteps = 1000;

// Looks each text of a list up. Of a text that has no tokens yet its own path stays.
class TextList {
 public:
  // `stated`: the format of all of them; else as their names say.
  TextList(const TextDataOptions& options, std::optional<TextFormat> stated, CacheRequest request,
           const ValueReader& values)
      : options_(options), stated_(stated), cache_(std::move(request)), values_(values) {}

  void Replace(absl::string_view key, Value* list) {
    for (Value& item : list->items) {
      Value* const path = item.is_map() ? item.Find("path") : &item;
      if (path != nullptr && path->is_scalar()) ReplaceOne(key, item.Find(kTextKey), path);
    }
  }

  bool has_all() const { return has_all_; }
  int64_t item_bytes() const { return item_bytes_; }
  int64_t made() const { return made_; }

 private:
  void ReplaceOne(absl::string_view key, const Value* text_key, Value* path) {
    const absl::StatusOr<TextFormat> format =
        stated_ ? absl::StatusOr<TextFormat>(*stated_)
                : FormatOfName(path->scalar, "data.format text or jsonl");
    if (!format.ok()) {
      return Wrong(key, absl::StrCat(path->scalar, ": ", format.status().message()));
    }
    NamedText text = {.path = path->scalar, .format = *format};
    if (text_key != nullptr && *format == TextFormat::kText) {
      return Wrong(absl::StrCat(key, ".", kTextKey),
                   absl::StrCat(path->scalar,
                                " is text, which has no keys; leave it out, or state "
                                "data.format jsonl"));
    }
    if (text_key != nullptr) text.text_key = text_key->scalar;
    if (!options_.check_files) {
      has_all_ = false;
      return;
    }
    const absl::StatusOr<std::optional<CachedTokens>> tokens = TokensOf(text);
    if (!tokens.ok()) return Wrong(key, tokens.status().message());
    if (!*tokens) {
      has_all_ = false;
      return;
    }
    if (!CheckVocabulary((*tokens)->vocab_size)) return;
    item_bytes_ = (*tokens)->item_bytes;
    path->scalar = (*tokens)->path;
  }

  // Nothing is worked at whose ids the model would not have.
  absl::StatusOr<std::optional<CachedTokens>> TokensOf(const NamedText& text) {
    ASSIGN_OR_RETURN(const std::optional<CachedTokens> found, cache_.Find(text));
    if (found || !options_.may_work || !has_all_) return found;
    ASSIGN_OR_RETURN(const int64_t vocab_size, cache_.VocabSize());
    if (!CheckVocabulary(vocab_size)) return std::nullopt;
    ASSIGN_OR_RETURN(const CachedTokens made, cache_.Make(text));
    ++made_;
    return made;
  }

  bool CheckVocabulary(int64_t vocab_size) {
    if (vocab_size <= options_.vocab_size || options_.vocab_size == 0) return true;
    Wrong("data.tokenizer",
          absl::StrCat(options_.tokenizer, " has ids up to ", vocab_size - 1,
                       ", and model.vocab_size is ", options_.vocab_size,
                       "; name the model's own tokenizer, or a larger vocab_size"));
    return false;
  }

  // A broken rule is said once, of all texts.
  void Wrong(absl::string_view key, absl::string_view message) {
    has_all_ = false;
    values_.Wrong(key, message);
  }

  const TextDataOptions& options_;
  const std::optional<TextFormat> stated_;
  TokenCache cache_;
  const ValueReader& values_;
  bool has_all_ = true;
  int64_t item_bytes_ = 4;
  int64_t made_ = 0;
};

// Texts that stay as they are leave their rows' keys, which are none of a job's.
void RemoveTextKeys(Value* data) {
  for (const absl::string_view key : {"train", "valid"}) {
    Value* const list = data->Find(key);
    if (list == nullptr) continue;
    for (Value& item : list->items) {
      if (item.is_map()) item.Remove(kTextKey);
    }
  }
}

std::optional<int64_t> StatedId(const ValueReader& values, absl::string_view key) {
  return values.Has(key) ? values.Whole(key) : std::nullopt;
}

}  // namespace

std::optional<std::string> ModelPathAt(const ValueReader& values, absl::string_view key,
                                       const std::string& job_folder) {
  const std::optional<std::string> given = values.Text(key);
  if (!given) return std::nullopt;
  const std::string path = AbsolutePath(*given, job_folder);
  const absl::StatusOr<std::string> local = LocalModel(path, *given);
  return local.ok() ? *local : path;
}

bool CheckModelAt(const ValueReader& values, absl::string_view key, const std::string& job_folder) {
  const std::optional<std::string> given = values.Text(key);
  if (!given) return true;
  const absl::Status local = LocalModel(AbsolutePath(*given, job_folder), *given).status();
  if (!local.ok()) values.Wrong(key, local.message());
  return local.ok();
}

std::string TokenizerOf(const ValueReader& values, const std::string& job_folder) {
  if (const auto given = ModelPathAt(values, "data.tokenizer", job_folder)) return *given;
  for (const absl::string_view key : {"model.path", "model.init_from"}) {
    const auto given = ModelPathAt(values, key, job_folder);
    if (!given) continue;
    std::error_code error;
    std::filesystem::path folder = *given;
    if (!std::filesystem::is_directory(folder, error)) folder = folder.parent_path();
    if (HoldsTokenizer(folder.string())) return folder.string();
  }
  return "";
}

bool TokeniseData(const TextDataOptions& options, const ValueReader& values, Value* data,
                  Issues* issues, std::vector<std::string>* notes) {
  const Value* const format = data->Find("format");
  const absl::StatusOr<TextFormat> stated =
      ParseWord<TextFormat>(format != nullptr && format->is_scalar() ? format->word() : "", "");
  const bool is_by_name = format != nullptr && format->is_scalar() && format->word() == kTextByName;
  if (!stated.ok() && !is_by_name) {
    RemoveTextKeys(data);
    return true;
  }
  if (options.tokenizer.empty()) {
    values.Wrong("data.tokenizer",
                 "missing: data.train is text, and no tokenizer lies beside the model; name the "
                 "folder that holds one, or use data.format bytes to train on bytes");
  }
  if (options.check_files) CheckModelAt(values, "data.tokenizer", options.job_folder);
  const std::string cache = values.Text("data.cache").value_or("");
  CacheRequest request;
  const std::string folder =
      cache.empty() ? DefaultTokenCache() : AbsolutePath(cache, options.job_folder);
  request.folder = folder;
  request.rules = {options.tokenizer, StatedId(values, "data.bos_token_id"),
                   StatedId(values, "data.eos_token_id")};
  request.threads = options.threads;
  request.may_work = options.may_work;
  request.on_progress = options.on_tokens;
  if (folder.empty()) {
    values.Wrong("data.cache", "missing, and neither XDG_CACHE_HOME nor HOME says where it may be");
  }
  // An issue found so far keeps texts as they are; the rest of the job is judged by whoever lets
  // them be tokenised, before that.
  const bool is_sound = issues->empty();
  TextList lists(options, stated.ok() ? std::optional(*stated) : std::nullopt, std::move(request),
                 values);
  for (const absl::string_view key : {"train", "valid"}) {
    Value* const list = data->Find(key);
    if (is_sound && list != nullptr) lists.Replace(absl::StrCat("data.", key), list);
  }
  RemoveTextKeys(data);
  const bool has_tokens = is_sound && lists.has_all();
  data->Put("format", Value::Scalar(WordOf(TokenFormat::kNanogpt)));
  data->Put("dtype",
            Value::Scalar(WordOf(has_tokens && lists.item_bytes() == 2 ? TokenDtype::kUint16
                                                                       : TokenDtype::kUint32)));
  if (has_tokens) {
    notes->push_back(absl::StrCat("data.tokenizer: ", options.tokenizer, ", tokens of ",
                                  lists.made(), " texts made now; they are in ", folder));
  } else if (issues->empty()) {
    notes->push_back("data.train: text, which is tokenised when the job starts");
  }
  return has_tokens;
}

bool PutStepsOfEpochs(const ValueReader& values, Value* root) {
  constexpr absl::string_view kKey = "training.epochs";
  if (!values.Has(kKey)) return false;
  for (const absl::string_view other : {"training.steps", "training.tokens"}) {
    if (!values.Has(other)) continue;
    values.Wrong(kKey, absl::StrCat("stands beside ", other, " of ", values.PlaceOf(other).Text(),
                                    "; keep one of the two"));
    return false;
  }
  const std::optional<double> epochs = values.Number(kKey);
  constexpr double kMostEpochs = 1e6;
  if (epochs && !(*epochs > 0 && *epochs <= kMostEpochs)) {
    values.Wrong(kKey, absl::StrCat("found ", NumberText(*epochs), "; use more than 0, at most ",
                                    NumberText(kMostEpochs)));
  }
  root->Put("training.steps", Value::Scalar("1", values.PlaceOf(kKey)));
  return epochs.has_value();
}

int64_t StepsOfEpochs(double epochs, int64_t windows, int64_t global_batch_size) {
  // 1.1 * 400 is 440.00000000000006, and nobody means a sample more by it.
  constexpr double kRounding = 1e-12;
  const double samples = std::ceil(epochs * static_cast<double>(windows) * (1 - kRounding));
  const auto batch = static_cast<double>(global_batch_size);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(samples / batch)));
}

bool SettleEpochs(const ValueReader& values, bool has_tokens, JobSpec* job,
                  std::vector<std::string>* notes) {
  const double epochs = *values.Number("training.epochs");
  if (!has_tokens || job->training.global_batch_size < 1 || job->training.seq_len < 1) {
    // A warm-up that is longer is no mistake: the epochs may be, too.
    const int64_t steps = std::max(kAssumedSteps, job->lr_scheduler.warmup_steps);
    job->training.steps = steps;
    notes->push_back(
        absl::StrCat("training.epochs: no data is counted here; taken as ", steps, " steps"));
    return false;
  }
  const absl::StatusOr<Dataset> data = Dataset::Open(*job, /*train=*/true);
  if (!data.ok()) return true;  // it is opened again, and said, when the job is checked
  job->training.steps = StepsOfEpochs(epochs, data->windows(), job->training.global_batch_size);
  notes->push_back(absl::StrCat("training.epochs: ", NumberText(epochs), " of ", data->windows(),
                                " samples is ", job->training.steps, " steps of ",
                                job->training.global_batch_size));
  return true;
}

}  // namespace weft
