// weft eval: the loss of a checkpoint on held-out data, in one process.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "data/prepare/cache_folder.h"
#include "data/prepare/text_kind.h"
#include "data/prepare/token_cache.h"
#include "data/sampling.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer_files.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/inference_options.h"
#include "launcher/commands/option_checks.h"
#include "launcher/commands/prepare_progress.h"
#include "launcher/inference/checkpoint_target.h"
#include "launcher/inference/inference_run.h"
#include "launcher/job_file/hub_cache.h"
#include "launcher/machine/machine.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/memory/inference_memory.h"
#include "process/signals.h"

namespace weft {
namespace {

struct EvalArguments {
  InferenceOptions options;
  std::vector<std::string> data;
  std::string dtype_name, tokenizer;
  std::optional<std::string> text_key;
  std::optional<int64_t> seq_len, steps;
  int64_t batch = 0;  // 0: as the run
  bool json = false;

  std::optional<TokenDtype> dtype() const {  // nullopt: as the run
    const absl::StatusOr<TokenDtype> named = ParseTokenDtype(dtype_name);
    return named.ok() ? std::optional(*named) : std::nullopt;
  }
};

// The file's content, which must be what `fingerprint` says if it says anything.
absl::Status CheckFile(const std::string& path, const TokenEncoding& encoding,
                       absl::string_view fingerprint) {
  const absl::StatusOr<std::unique_ptr<TokenFile>> file = TokenFile::Open(path, encoding);
  if (!file.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.status().message(), "; name files to evaluate with --data"));
  }
  const std::string now = (*file)->Fingerprint();
  if (fingerprint.empty() || absl::EndsWith(fingerprint, absl::StrCat(" ", now))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": its content is not what the run read: ", fingerprint, ", now ", now,
                   "; restore it, or name files to evaluate with --data"));
}

// Sequences of `seq_len` tokens that `files` hold out.
absl::StatusOr<int64_t> HeldOut(const std::vector<std::string>& files, double split,
                                const CheckpointData& own, const ModelShape& model) {
  JobSpec job;
  job.model = model;
  job.training.seq_len = own.seq_len;
  job.data.format = *own.format;
  job.data.dtype = own.dtype;
  job.data.split = split;
  auto& sources = split > 0 ? job.data.train : job.data.valid;
  for (const std::string& file : files) sources.push_back({file});
  const absl::StatusOr<Dataset> data = Dataset::Open(job, /*train=*/false);
  if (data.ok()) return data->windows();
  // A file that is too short is a wrong choice of file here, no lack of room.
  return absl::InvalidArgumentError(
      absl::StrReplaceAll(data.status().message(), {{"training.seq_len", "--seq-len"}}));
}

// Returns how many of `windows` sequences to evaluate; 0: all of them once.
absl::StatusOr<int64_t> SequencesOf(const EvalArguments& arguments, const CheckpointData& own,
                                    int64_t windows) {
  if (arguments.steps) {
    const int64_t most = windows / own.global_batch_size;
    if (*arguments.steps <= most) return *arguments.steps * own.global_batch_size;
    return absl::InvalidArgumentError(absl::StrCat(
        "--steps: ", *arguments.steps, " of ", own.global_batch_size, " sequences each is beyond ",
        "the data, which holds ", windows, "; use ",
        most > 0 ? absl::StrCat("1 to ", most, ", or ") : "", "0 for all of them once"));
  }
  if (!arguments.data.empty()) return 0;
  // The run validated on so many sequences, and began anew where the data ends.
  return own.validation_steps * own.global_batch_size;
}

// Returns the request: to read the run's own validation, or what `arguments` name.
absl::StatusOr<nlohmann::json> RequestOf(const EvalArguments& arguments, const CheckpointData& own,
                                         const ModelShape& model) {
  std::vector<std::string> files;
  const bool given = !arguments.data.empty();
  if (!own.format) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a Hugging Face directory does not say how token files are kept; name it with --format: ",
        Alternatives(WordsOf(TokenFormat{})), ", or text and its tokenizer with --tokenizer"));
  }
  if (!given && !own.files.empty() && arguments.options.format()) {
    return absl::InvalidArgumentError(
        "--format says how the files of --data are kept; name them, or leave it out");
  }
  for (const std::string& file : given ? arguments.data : own.files) {
    const std::string path = given ? file : PathOf(file);
    const TokenEncoding encoding = {*own.format, own.dtype, model.vocab_size};
    RETURN_IF_ERROR(CheckFile(path, encoding, given ? "" : file));
    files.push_back(path);
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(
        "nothing was held out for these weights; name files to evaluate with --data");
  }
  const double split = given ? 0 : own.split;
  ASSIGN_OR_RETURN(const int64_t windows, HeldOut(files, split, own, model));
  ASSIGN_OR_RETURN(const int64_t sequences, SequencesOf(arguments, own, windows));
  const int64_t batch = arguments.batch > 0 ? arguments.batch : own.micro_batch_size;
  return nlohmann::json{
      {"task", "evaluate"},
      {"files", files},
      {"format", std::string(WordOf(*own.format))},
      {"dtype", own.dtype ? std::string(WordOf(*own.dtype)) : "auto"},
      {"split", split},
      {"seq_len", own.seq_len},
      {"batch", std::min(batch, sequences > 0 ? sequences : windows)},
      {"global_batch", own.global_batch_size},
      {"sequences", sequences},
  };
}

struct EvalResult {
  double loss_sum = 0;
  int64_t tokens = 0;
  double loss() const { return loss_sum / static_cast<double>(tokens); }
};

void Print(const EvalArguments& arguments, const FoundWeights& found, const CheckpointData& own,
           const EvalResult& result) {
  const double loss = result.loss();
  const double bits = loss / std::numbers::ln2;
  const bool bytes = own.format == TokenFormat::kBytes;
  if (arguments.json) {
    nlohmann::ordered_json json = {{"checkpoint", found.path}};
    if (found.manifest) json["step"] = found.manifest->step;
    json["seq_len"] = own.seq_len;
    json["tokens"] = result.tokens;
    json["loss"] = loss;
    json["loss_hex"] = absl::StrFormat("%a", loss);
    json["perplexity"] = std::exp(loss);
    if (bytes) json["bits_per_byte"] = bits;
    std::cout << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
              << "\n";
    return;
  }
  const ModelShape& model = found.model;
  std::cout << found.path << "\n"
            << absl::StrFormat("  model       %s, %d parameters\n", ModelTypeOf(model),
                               ParameterCount(model))
            << absl::StrFormat("  loss        %.6f nats per %s\n", loss, bytes ? "byte" : "token")
            << absl::StrFormat("  perplexity  %.4f\n", std::exp(loss));
  if (bytes) std::cout << absl::StrFormat("  bits/byte   %.6f\n", bits);
  std::cout << "  tokens      " << result.tokens << ", in sequences of " << own.seq_len << "\n";
}

absl::StatusOr<EvalResult> Evaluate(const EvalArguments& arguments, const FoundWeights& found,
                                    const CheckpointData& own, const std::atomic<bool>& stop) {
  InferenceRun run;
  ASSIGN_OR_RETURN(run.request, RequestOf(arguments, own, found.model));
  run.threads = arguments.options.blas_threads();
  const InferenceExtents extents{.batch = run.request["batch"],
                                 .seq_len = own.seq_len,
                                 .masks_documents = own.reset_attention_mask,
                                 .threads = run.threads};
  ASSIGN_OR_RETURN(const BackendKind backend, ParseBackend(arguments.options.backend));
  RETURN_IF_ERROR(CheckMemory(found.model, extents, backend, "--batch"));
  run.request["documents"] = DocumentsJson(own);
  DescribeWeights(found, &run.request);
  run.request["backend"] = arguments.options.backend;
  run.request["threads"] = run.threads;
  run.stop = &stop;
  EvalResult result;
  RETURN_IF_ERROR(RunInference(run, [&](const nlohmann::json& event) {
    if (event["event"] != "loss") return;
    const std::string loss_sum = event["loss_sum_hex"];
    result = {.loss_sum = std::strtod(loss_sum.c_str(), nullptr), .tokens = event["tokens"]};
  }));
  if (result.tokens == 0) return absl::InternalError("weft-worker reported no loss");
  return result;
}

// The run's own cache, where its tokens lie in one that this user may write in; else this user's.
std::string CacheFolder(const FoundWeights& found) {
  if (found.manifest) {
    for (const char* const fact : {"data.valid[0]", "data.train[0]"}) {
      const auto file = found.manifest->facts.find(fact);
      if (file == found.manifest->facts.end()) continue;
      const std::string cache = CacheOfTokens(PathOf(file->second));
      const bool is_usable = !cache.empty() && CheckCacheFolder(cache, /*makes=*/false).ok() &&
                             faccessat(AT_FDCWD, cache.c_str(), W_OK, AT_EACCESS) == 0;
      if (is_usable) return cache;
    }
  }
  return DefaultTokenCache();
}

absl::Status CheckTextKey(const EvalArguments& arguments, bool are_texts) {
  if (!arguments.text_key) return absl::OkStatus();
  if (!are_texts) {
    return absl::InvalidArgumentError(
        "--text-key: is of rows of JSON lines that are tokenised; name files of them with --data, "
        "their tokenizer with --tokenizer, and no --format");
  }
  for (const std::string& file : arguments.data) {
    if (*FormatOfName(file) == TextFormat::kJsonl) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--text-key: ", arguments.data[0], " is text, which has no keys; leave it out"));
}

// Messages name options, as there is no job file here that a person could change.
CacheWords WordsOfEval(const std::string& folder) {
  return {.cache = folder == DefaultTokenCache()
                       ? "XDG_CACHE_HOME"
                       : "weft data prepare --output, whose files --data takes",
          .text_key = "--text-key",
          .begin = "the run's data.bos_token_id",
          .end = "the run's data.eos_token_id",
          .end_cure =
              "tokenise the texts with weft data prepare --end, and name those files with "
              "--data and their --format",
          .id_cure = "name the run's own tokenizer with --tokenizer"};
}

// Where --data names texts and there is a tokenizer, makes their tokens and says where they are, in
// `arguments` and `choice`. A --format says that they are no texts.
absl::Status TakeTexts(const FoundWeights& found, const std::atomic<bool>& stop,
                       EvalArguments* arguments, DataChoice* choice) {
  std::string tokenizer = arguments->tokenizer;
  if (tokenizer.empty() && !found.manifest && HoldsTokenizer(found.path)) tokenizer = found.path;
  if (!tokenizer.empty()) {
    ASSIGN_OR_RETURN(tokenizer, LocalModel(tokenizer, tokenizer));
  }
  const bool are_texts =
      !arguments->data.empty() && !choice->format &&
      std::all_of(arguments->data.begin(), arguments->data.end(),
                  [](const std::string& file) { return FormatOfName(file).ok(); });
  RETURN_IF_ERROR(CheckTextKey(*arguments, are_texts && !tokenizer.empty()));
  if (tokenizer.empty() || !are_texts) {
    if (arguments->tokenizer.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--tokenizer: is of texts; name files of them with --data, and no --format");
  }
  // Around a document stands what the run was trained on.
  ASSIGN_OR_RETURN(const CheckpointData run, DataOf(found, *choice));
  const std::string folder = CacheFolder(found);
  CacheRequest request{
      .folder = folder,
      .rules = {.tokenizer = tokenizer, .bos = run.bos_token_id, .eos = run.eos_token_id},
      .threads = UsableCores(),
      .on_progress = ShowPrepareProgress(),
      .stop = &stop,
      .words = WordsOfEval(folder)};
  if (request.folder.empty()) {
    return absl::InvalidArgumentError(
        "XDG_CACHE_HOME, HOME: neither says where the tokens may be kept; set one");
  }
  TokenCache cache(std::move(request));
  choice->format = TokenFormat::kNanogpt;
  for (std::string& file : arguments->data) {
    ASSIGN_OR_RETURN(const TextFormat format, FormatOfName(file));
    const NamedText text = {
        .path = file, .format = format, .text_key = arguments->text_key.value_or("text")};
    ASSIGN_OR_RETURN(std::optional<CachedTokens> tokens, cache.Find(text));
    if (!tokens) {
      ASSIGN_OR_RETURN(tokens, cache.Make(text));
    }
    file = tokens->path;
    choice->dtype = tokens->item_bytes == 2 ? TokenDtype::kUint16 : TokenDtype::kUint32;
  }
  return absl::OkStatus();
}

int Eval(EvalArguments arguments) {
  std::atomic<bool> stop{false};
  const SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&stop](int) { stop = true; });
  const absl::StatusOr<FoundWeights> found = FindWeights(arguments.options.target);
  if (!found.ok()) return Fail(found.status());
  for (const std::string& refused : found->refused)
    std::cerr << "weft: damaged: " << refused << "\n";
  DataChoice choice{.format = arguments.options.format(),
                    .dtype = arguments.dtype(),
                    .seq_len = arguments.seq_len};
  const absl::Status texts = TakeTexts(*found, stop, &arguments, &choice);
  if (absl::IsCancelled(texts)) return kExitInterrupted;
  if (!texts.ok()) return Fail(texts);
  const absl::StatusOr<CheckpointData> own = DataOf(*found, choice);
  if (!own.ok()) return Fail(own.status());
  const absl::StatusOr<EvalResult> result = Evaluate(arguments, *found, *own, stop);
  if (absl::IsCancelled(result.status())) return kExitInterrupted;
  if (!result.ok()) return Fail(result.status());
  Print(arguments, *found, *own, *result);
  if (std::isfinite(result->loss())) return kExitOk;
  return Fail(absl::OutOfRangeError(
      "the loss is not finite: its training has diverged, or the weights are damaged; use an "
      "earlier checkpoint"));
}

}  // namespace

void AddEval(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<EvalArguments>();
  CLI::App* eval = app.add_subcommand("eval", "the loss of a checkpoint on held-out data");
  AddInferenceOptions(eval, &arguments->options);
  eval->add_option("--data", arguments->data,
                   "files to evaluate, all of them; default: what the run validated on");
  eval->add_option("--tokenizer", arguments->tokenizer,
                   "of texts in --data: a folder, or its file; default: the Hugging Face "
                   "directory's");
  eval->add_option("--text-key", arguments->text_key,
                   "key of a row of such a text that holds it; default: text");
  eval->add_option("--dtype", arguments->dtype_name,
                   "of an id in files without a header; default: the run's, or uint16")
      ->check(CLI::IsMember({"uint16", "uint32"}));
  eval->add_option("--seq-len", arguments->seq_len,
                   "tokens of a sequence; default: the run's, or the model's positions, at most "
                   "1024")
      ->check(WholeNumber(1, int64_t{1} << 30));
  eval->add_option("--steps", arguments->steps,
                   "how many global batches of the run (of a Hugging Face directory: sequences); "
                   "0: everything; default: as the run validated")
      ->check(WholeNumber(0));
  eval->add_option("--batch", arguments->batch, "sequences at once; default: a microbatch's")
      ->check(WholeNumber(1, 1 << 20));
  eval->add_flag("--json", arguments->json, "one JSON object instead of text");
  eval->callback([arguments, exit_code] { *exit_code = Eval(*arguments); });
}

}  // namespace weft
