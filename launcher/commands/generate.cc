// weft generate: continues a prompt with a checkpoint's model, token by token.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "data/text_ends.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/whole_file.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/inference_options.h"
#include "launcher/commands/option_checks.h"
#include "launcher/inference/checkpoint_target.h"
#include "launcher/inference/inference_run.h"
#include "launcher/inference/token_text.h"
#include "plan/errors.h"
#include "plan/memory/inference_memory.h"
#include "process/signals.h"

namespace weft {
namespace {

struct GenerateArguments {
  InferenceOptions options;
  std::optional<std::string> prompt, prompt_file, prompt_ids;
  int64_t max_tokens = 128;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t seed = 0;
  bool greedy = false;
  bool echo = false;
  std::string tokenizer;
  std::string specials = "text", invalid_utf8 = "refuse";
};

absl::StatusOr<std::string> PromptText(const GenerateArguments& arguments,
                                       const std::atomic<bool>& stop) {
  if (arguments.prompt) return *arguments.prompt;
  const std::string& path = *arguments.prompt_file;
  absl::StatusOr<std::string> text =
      path == "-" ? ReadWholeStream(STDIN_FILENO, "stdin", kMostPromptBytes, stop)
                  : ReadWholeFile(path, kMostPromptBytes);
  if (text.ok() || absl::IsCancelled(text.status())) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("--prompt-file: ", text.status().message(), "; - is stdin"));
}

// The text of the model's ids. A Hugging Face directory may hold the tokenizer itself.
absl::StatusOr<TokenText> OpenText(const GenerateArguments& arguments, const FoundWeights& found,
                                   std::optional<TokenFormat> format) {
  std::string tokenizer = arguments.tokenizer;
  const bool may_be_beside =
      tokenizer.empty() && !found.manifest && !format && !arguments.prompt_ids;
  if (may_be_beside && HoldsTokenizer(found.path)) tokenizer = found.path;
  absl::StatusOr<TokenText> text = TokenText::Open(format, tokenizer);
  if (text.ok() || arguments.tokenizer == tokenizer) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(text.status().message(), "; or give the prompt as --prompt-ids"));
}

absl::StatusOr<std::vector<int32_t>> GivenIds(const GenerateArguments& arguments,
                                              const TokenText& text,
                                              std::optional<TokenFormat> format,
                                              const std::atomic<bool>& stop) {
  ASSIGN_OR_RETURN(const EncodeOptions options,
                   ParseEncodeOptions(arguments.specials, arguments.invalid_utf8));
  if (arguments.prompt_ids) {
    absl::StatusOr<std::vector<int32_t>> ids = ParseIds(*arguments.prompt_ids);
    if (ids.ok()) return ids;
    return absl::InvalidArgumentError(absl::StrCat("--prompt-ids: ", ids.status().message()));
  }
  if (!text.has_text()) {
    const std::string why =
        format ? absl::StrCat("this model was trained on ", WordOf(*format), " token ids")
               : std::string("this Hugging Face directory holds no tokenizer");
    return absl::InvalidArgumentError(
        absl::StrCat(why,
                     "; name the tokenizer that made them with --tokenizer, or give the prompt as "
                     "--prompt-ids",
                     format ? "" : ", or, of a model on bytes, --format bytes"));
  }
  ASSIGN_OR_RETURN(const std::string prompt, PromptText(arguments, stop));
  absl::StatusOr<std::vector<int32_t>> ids = text.Encode(prompt, options);
  if (ids.ok()) return ids;
  return absl::InvalidArgumentError(absl::StrCat("the prompt: ", ids.status().message()));
}

// The ids that end a text: what the tokenizer's files state, and what the model's own do, which
// know more of them (a chat model's end of a turn).
absl::StatusOr<std::set<int32_t>> EndsOfText(const GenerateArguments& arguments,
                                             const FoundWeights& found, const TokenText& text) {
  std::set<int32_t> ends = text.ends_of_text();
  std::vector<std::string> folders = {arguments.tokenizer};
  if (!found.manifest) folders.push_back(found.path);
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    ASSIGN_OR_RETURN(const std::set<int32_t> stated, ReadStatedEnds(folder));
    ends.insert(stated.begin(), stated.end());
  }
  return ends;
}

// None of them outside the vocabulary, and not more than there are positions.
absl::Status CheckPrompt(absl::Span<const int32_t> ids, const ModelShape& model) {
  if (ids.empty()) {
    return absl::InvalidArgumentError("the prompt is empty; give at least one token to go on from");
  }
  const int32_t largest = *std::max_element(ids.begin(), ids.end());
  if (largest >= model.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt holds id ", largest, ", the model's ids are 0 to ", model.vocab_size - 1));
  }
  if (std::ssize(ids) <= model.max_positions) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the prompt has ", ids.size(),
                                                 " tokens, the model has ", model.max_positions,
                                                 " positions; use a shorter prompt"));
}

// Shows tokens as they come: as text, or as ids if that is how the prompt was given.
class Printer {
 public:
  // `text`: null for ids.
  explicit Printer(const TokenText* text) {
    if (text != nullptr) stream_.emplace(text);
  }
  void Token(int32_t id) {
    if (stream_) {
      std::cout << stream_->Take(id) << std::flush;
    } else {
      std::cout << (first_ ? "" : " ") << id << std::flush;
    }
    first_ = false;
  }
  void End() { std::cout << (stream_ ? stream_->Rest() : "") << "\n"; }

 private:
  bool first_ = true;
  std::optional<TextStream> stream_;
};

absl::Status Generate(const GenerateArguments& arguments, const FoundWeights& found,
                      std::atomic<bool>& stop) {
  const ModelShape& model = found.model;
  ASSIGN_OR_RETURN(
      const CheckpointData own,
      DataOf(found, DataChoice{.format = arguments.options.format(), .dtype = {}, .seq_len = {}}));
  ASSIGN_OR_RETURN(const TokenText text, OpenText(arguments, found, own.format));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, GivenIds(arguments, text, own.format, stop));
  RETURN_IF_ERROR(CheckPrompt(ids, model));
  InferenceExtents extents = GenerationExtents(model, std::ssize(ids), arguments.max_tokens);
  extents.masks_documents = own.reset_attention_mask;
  extents.threads = arguments.options.blas_threads();
  ASSIGN_OR_RETURN(const BackendKind backend, ParseBackend(arguments.options.backend));
  RETURN_IF_ERROR(CheckMemory(model, extents, backend, "--max-tokens"));
  const bool as_text = !arguments.prompt_ids;
  ASSIGN_OR_RETURN(const std::set<int32_t> ends, EndsOfText(arguments, found, text));
  InferenceRun run;
  run.threads = extents.threads;
  run.stop = &stop;
  run.request = {
      {"task", "generate"},
      {"documents", DocumentsJson(own)},
      {"backend", arguments.options.backend},
      {"threads", run.threads},
      {"ids", ids},
      {"max_tokens", arguments.max_tokens},
      {"stop_ids", ends},
      // A vocabulary may be wider than its text: an id without one has nothing to show.
      {"vocabulary", as_text ? std::min(text.vocabulary(), model.vocab_size) : model.vocab_size},
      {"temperature", arguments.greedy ? 0 : arguments.temperature},
      {"top_k", arguments.top_k},
      {"top_p", arguments.top_p},
      {"seed", arguments.seed}};
  DescribeWeights(found, &run.request);
  Printer printer(as_text ? &text : nullptr);
  for (const int32_t id : arguments.echo ? ids : std::vector<int32_t>()) printer.Token(id);
  std::string why;
  absl::Status status = RunInference(run, [&](const nlohmann::json& event) {
    if (event["event"] == "token") printer.Token(event["id"]);
    if (!std::cout.good()) stop = true;  // there is nowhere to write what would come
    if (event["event"] == "end") why = event["why"];
  });
  if (status.ok() || absl::IsCancelled(status)) printer.End();
  if (why == "positions") {
    std::cerr << "weft: stopped after position " << model.max_positions << ", the model's last\n";
  }
  return status;
}

// --greedy beside an option that only counts where ids are drawn.
absl::Status CheckGreedy(const GenerateArguments& arguments) {
  const GenerateArguments plain;
  if (!arguments.greedy) return absl::OkStatus();
  std::string drawn;
  if (arguments.temperature != plain.temperature && arguments.temperature != 0) {
    drawn = absl::StrCat("--temperature ", arguments.temperature);
  } else if (arguments.top_k != plain.top_k) {
    drawn = absl::StrCat("--top-k ", arguments.top_k);
  } else if (arguments.top_p != plain.top_p) {
    drawn = absl::StrCat("--top-p ", arguments.top_p);
  }
  if (drawn.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--greedy always takes the likeliest token, ",
                                                 drawn, " draws one; keep one of the two"));
}

int RunGenerate(const GenerateArguments& arguments) {
  if (!arguments.prompt && !arguments.prompt_file && !arguments.prompt_ids) {
    return Fail(absl::InvalidArgumentError(
        "no prompt; give --prompt TEXT, --prompt-file FILE (- is stdin) or --prompt-ids IDS"));
  }
  const absl::Status greedy = CheckGreedy(arguments);
  if (!greedy.ok()) return Fail(greedy);
  std::atomic<bool> stop{false};
  const SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&stop](int) { stop = true; });
  const absl::StatusOr<FoundWeights> found = FindWeights(arguments.options.target);
  if (!found.ok()) return Fail(found.status());
  for (const std::string& refused : found->refused)
    std::cerr << "weft: damaged: " << refused << "\n";
  const absl::Status status = Generate(arguments, *found, stop);
  // Why stdout failed is FlushAnswer's to say.
  if (absl::IsCancelled(status)) return std::cout.good() ? kExitInterrupted : kExitOk;
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace

void AddGenerate(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* generate =
      app.add_subcommand("generate", "continue a prompt with a checkpoint's model");
  AddInferenceOptions(generate, &arguments->options);
  // No option group: CLI11 2.1 never ends on an empty word beside one.
  CLI::Option* const prompt =
      generate->add_option("--prompt", arguments->prompt, "the text to go on with");
  CLI::Option* const file = generate->add_option("--prompt-file", arguments->prompt_file,
                                                 "a file that holds it; - is stdin");
  CLI::Option* const ids = generate->add_option("--prompt-ids", arguments->prompt_ids,
                                                "its token ids, separated by commas; prints ids");
  prompt->excludes(file)->excludes(ids);
  file->excludes(ids);
  generate->add_option("--tokenizer", arguments->tokenizer,
                       absl::StrCat("for models of token ids: a folder with ", TokenizerFileNames(),
                                    "; or such a file"));
  generate
      ->add_option("--specials", arguments->specials,
                   "special tokens in the prompt: refuse, text (as any other) or parse")
      ->capture_default_str();
  generate
      ->add_option("--invalid-utf8", arguments->invalid_utf8,
                   "bytes in the prompt that are no UTF-8: refuse or replace")
      ->capture_default_str();
  generate->add_option("--max-tokens", arguments->max_tokens, "tokens to add at most")
      ->check(WholeNumber(1, int64_t{1} << 30))
      ->capture_default_str();
  generate
      ->add_option("--temperature", arguments->temperature, "below 1: likelier tokens; 0: greedy")
      ->check(NumberWithin(0, 1e6))
      ->capture_default_str();
  generate->add_option("--top-k", arguments->top_k, "draw from the k likeliest tokens; 0: all")
      ->check(WholeNumber(0));
  generate->add_option("--top-p", arguments->top_p, "draw from the likeliest that hold this share")
      ->check(NumberAbove(0, 1))
      ->capture_default_str();
  generate->add_option("--seed", arguments->seed, "the same seed draws the same text")
      ->check(WholeNumber(0))
      ->capture_default_str();
  generate->add_flag("--greedy", arguments->greedy, "always the likeliest token");
  generate->add_flag("--echo", arguments->echo, "show the prompt first");
  generate->callback([arguments, exit_code] { *exit_code = RunGenerate(*arguments); });
}

}  // namespace weft
