#include "launcher/inference/export_form.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/whole_file.h"
#include "launcher/job_file/model_config.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;  // sorted, as transformers writes it

// Files of a directory that say nothing about weights and stay true after training.
constexpr const char* kBesides[] = {
    "generation_config.json",  "tokenizer.json",  "tokenizer_config.json",
    "special_tokens_map.json", "vocab.json",      "merges.txt",
    "added_tokens.json",       "tokenizer.model", "chat_template.jinja",
    "chat_template.json"};

// Number formats by transformers' names.
constexpr std::pair<absl::string_view, absl::string_view> kDtypes[] = {
    {"float32", "F32"}, {"bfloat16", "BF16"}, {"float16", "F16"}};

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// "bfloat16" of the config's dtype, as transformers 5 calls it, or torch_dtype; "": neither.
std::string DtypeOf(const Json& config) {
  for (const char* const key : {"dtype", "torch_dtype"}) {
    const Json value = config.value(key, Json());
    if (value.is_string()) return value.get<std::string>();
  }
  return "";
}

// Tells whether the directory's model is a wrapper of this text model, which is written by itself
// (plan/keys/config_json.h, TextConfigOf).
bool IsOfAWrapper(const Json& theirs, const ModelShape& model) {
  const absl::string_view wrapper = WrapperOf(model);
  return !wrapper.empty() && theirs.value("model_type", Json()) == std::string(wrapper);
}

// weft's own config.json, with what `theirs` says of the type and of texts.
Json OwnLike(const Json& theirs, const ModelShape& model) {
  Json own = ParseJson(HuggingFaceConfig(model)).value_or(Json::object());
  for (const char* const key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (theirs.contains(key)) own[key] = theirs[key];
  }
  if (IsOfAWrapper(theirs, model)) return own;
  for (const char* const key : {"architectures", "model_type"}) {
    if (theirs.contains(key)) own[key] = theirs[key];
  }
  return own;
}

// Manifests of before architectures were told apart call all of these llama.
bool IsSameShape(ModelShape own, const ModelShape& model) {
  own.architecture = model.architecture;
  return own == model;
}

}  // namespace

std::string SourceOf(const Manifest& manifest) {
  const auto fact = manifest.facts.find(absl::StrCat(kMathematicsFact, "model.init_from"));
  if (fact == manifest.facts.end()) return "";
  const absl::StatusOr<Json> value = ParseJson(fact->second);
  const bool is_quoted = value.ok() && value->is_string();
  const std::string folder = is_quoted ? value->get<std::string>() : fact->second;
  return IsFile(folder + "/config.json") ? folder : "";
}

absl::StatusOr<HuggingFaceForm> FormLike(const std::string& source, const ModelShape& model,
                                         const std::string& dtype) {
  HuggingFaceForm form;
  Json config = ParseJson(HuggingFaceConfig(model)).value_or(Json::object());
  std::string wanted = dtype;
  if (!source.empty()) {
    const std::string path = source + "/config.json";
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostSpecBytes));
    Json theirs = ParseJson(text, {.most_bytes = kMostSpecBytes}).value_or(Json());
    if (!theirs.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is no JSON object"));
    }
    if (wanted.empty()) wanted = DtypeOf(theirs);
    const absl::StatusOr<ModelShape> own = ModelOfDirectory(source);
    const bool is_whole = own.ok() && IsSameShape(*own, model) && !IsOfAWrapper(theirs, model);
    config = is_whole ? std::move(theirs) : OwnLike(theirs, model);
    for (const char* const name : kBesides) {
      if (IsFile(absl::StrCat(source, "/", name))) {
        form.besides.push_back(absl::StrCat(source, "/", name));
      }
    }
  }
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = "float32";
  for (const auto& [theirs, ours] : kDtypes) {
    if (wanted != theirs) continue;
    form.dtype = std::string(ours);
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = wanted;
  }
  form.config = config.dump(2) + "\n";
  return form;
}

}  // namespace weft
