// weft data prepare: files of text to files of tokens.
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "data/prepare/document_ends.h"
#include "data/prepare/prepare.h"
#include "data/prepare/text_inputs.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/unicode.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/option_checks.h"
#include "launcher/commands/prepare_progress.h"
#include "launcher/job_file/hub_cache.h"
#include "launcher/machine/machine.h"
#include "plan/errors.h"
#include "process/signals.h"

namespace weft {
namespace {

constexpr int64_t kMostThreads = 1024;
constexpr int64_t kBadRowsShown = 20;

struct PrepareArguments {
  std::vector<std::string> inputs;
  std::string tokenizer, output;
  std::string format = "megatron";
  std::string input_format;
  std::string text_key = "text";
  std::string documents = "file";
  std::string begin = kEndsOfTokenizer, end = kEndsOfTokenizer;
  std::string specials = "text", invalid_utf8 = "refuse";
  int64_t seq_len = 0, max_bad_rows = 0, threads = 0;
  bool force = false, json = false;
};

constexpr std::pair<const char*, Specials> kSpecials[] = {
    {"refuse", Specials::kRefuse}, {"text", Specials::kText}, {"parse", Specials::kParse}};

std::vector<std::string> Listed(Words words) {
  return {words.begin(), words.end()};
}

absl::StatusOr<PrepareRequest> RequestOf(const PrepareArguments& arguments,
                                         const Tokenizer& tokenizer) {
  PrepareRequest request;
  std::optional<TextFormat> input_format;
  if (!arguments.input_format.empty()) {
    ASSIGN_OR_RETURN(input_format, ParseWord<TextFormat>(arguments.input_format, "a format"));
  }
  std::vector<std::string> notes;
  ASSIGN_OR_RETURN(request.inputs, FindTextInputs(arguments.inputs, input_format, &notes));
  for (const std::string& note : notes) std::cerr << "note: " << Printable(note) << "\n";
  PreparedPlace& place = request.place;
  ASSIGN_OR_RETURN(place.format, ParseWord<TokenOutput>(arguments.format, "a format"));
  place.output = std::string(absl::StripSuffix(arguments.output, ".bin"));
  place.item_bytes = ItemBytes(place.format, tokenizer.vocab_size());
  place.seq_len = arguments.seq_len;
  place.may_replace = place.begin_anew = arguments.force;
  EncodeRules& rules = request.rules;
  rules.item_bytes = place.item_bytes;
  rules.text_key = arguments.text_key;
  ASSIGN_OR_RETURN(rules.documents, ParseWord<DocumentCut>(arguments.documents, "a kind of cut"));
  for (const auto& [word, specials] : kSpecials) {
    if (arguments.specials == word) rules.specials = specials;
  }
  if (arguments.invalid_utf8 == "replace") rules.invalid_utf8 = InvalidUtf8::kReplace;
  ASSIGN_OR_RETURN(DocumentEnds ends,
                   EndsOfDocuments(tokenizer, place.format, arguments.begin, arguments.end));
  rules.before = std::move(ends.before);
  rules.after = std::move(ends.after);
  request.tokenizer = arguments.tokenizer;
  request.threads = static_cast<int>(arguments.threads > 0 ? arguments.threads : UsableCores());
  request.most_bad_rows = arguments.max_bad_rows;
  request.bad_row_cure =
      arguments.max_bad_rows == 0
          ? "mend it, or leave up to N bad rows out with --max-bad-rows N"
          : absl::StrCat("one bad row more than --max-bad-rows ", arguments.max_bad_rows);
  return request;
}

std::string FilesText(const PreparedPlace& place) {
  return absl::StrCat(place.output, place.format == TokenOutput::kMegatron ? ".{bin,idx}" : ".bin");
}

void PrintSummary(const Tokenizer& tokenizer, const PrepareRequest& request,
                  const PrepareResult& result) {
  const PrepareCounts& counts = result.counts;
  const auto documents = static_cast<double>(counts.documents);
  const auto tokens = static_cast<double>(counts.tokens);
  const auto text_bytes = static_cast<double>(counts.text_bytes);
  std::cout << FilesText(request.place) << (result.was_there ? ", which were there already" : "")
            << "\n"
            << absl::StrFormat("  documents    %d", counts.documents)
            << (counts.empty > 0 ? absl::StrCat(", and ", counts.empty, " empty ones left out")
                                 : "")
            << (counts.bad_rows > 0 ? absl::StrCat(", and ", counts.bad_rows, " bad rows") : "")
            << "\n"
            << absl::StrFormat("  tokens       %d of %d bits; %.3f bytes of text each\n",
                               counts.tokens, 8 * request.place.item_bytes, text_bytes / tokens)
            << absl::StrFormat("  lengths      %.1f tokens a document, %d to %d\n",
                               tokens / documents, counts.shortest, counts.longest)
            << "  begin, end   " << Printable(TokensText(tokenizer, request.rules.before)) << "; "
            << Printable(TokensText(tokenizer, request.rules.after)) << "\n";
  if (request.place.seq_len > 0) {
    std::cout << absl::StrFormat(
        "  seq_len      %d: %.2f %% of the documents are longer, %.2f %% of the tokens lie "
        "beyond\n",
        request.place.seq_len, 100 * static_cast<double>(counts.cut_documents) / documents,
        100 * static_cast<double>(counts.cut_tokens) / tokens);
  }
  if (result.was_there) return;
  if (result.documents_before > 0) {
    std::cout << "  went on      after " << result.documents_before
              << " documents of a run before\n";
  } else {
    std::cout << absl::StrFormat("  took         %.1f s, %.1f MB/s of text\n", result.took_s,
                                 text_bytes / result.took_s * 1e-6);
  }
}

void PrintJson(const PrepareRequest& request, const PrepareResult& result) {
  nlohmann::ordered_json json = {{"output", request.place.output},
                                 {"format", std::string(WordOf(request.place.format))},
                                 {"item_bytes", request.place.item_bytes},
                                 {"before", request.rules.before},
                                 {"after", request.rules.after},
                                 {"was_there", result.was_there},
                                 {"documents_before", result.documents_before},
                                 {"took_s", result.took_s},
                                 {"counts", CountsJson(result.counts)}};
  std::cout << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

int DataPrepare(PrepareArguments arguments) {
  std::atomic<bool> stop{false};
  const SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&stop](int) { stop = true; });
  const absl::StatusOr<std::string> local = LocalModel(arguments.tokenizer, arguments.tokenizer);
  if (!local.ok()) return Fail(local.status());
  arguments.tokenizer = *local;
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Open(arguments.tokenizer);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  absl::StatusOr<PrepareRequest> request = RequestOf(arguments, *tokenizer);
  if (!request.ok()) return Fail(request.status());
  PrepareProgressLine line;
  int64_t bad_rows = 0;
  request->stop = &stop;
  request->on_progress = [&line](const PrepareProgress& now) { line.Show(now); };
  request->on_bad_row = [&](const std::string& where, const std::string& why) {
    if (++bad_rows > kBadRowsShown) return;
    line.End();
    std::cerr << Printable(absl::StrCat(where, ": ", why)) << "; left out\n"
              << (bad_rows == kBadRowsShown ? "further bad rows are counted and not shown\n" : "");
  };
  const absl::StatusOr<PrepareResult> result = Prepare(*tokenizer, *request);
  line.End();
  if (absl::IsCancelled(result.status())) {
    std::cerr << "weft: stopped; the same command goes on from here"
              << (arguments.force ? " without --force" : "") << "\n";
    return kExitInterrupted;
  }
  if (!result.ok()) return Fail(result.status());
  if (arguments.json) {
    PrintJson(*request, *result);
  } else {
    PrintSummary(*tokenizer, *request, *result);
  }
  return kExitOk;
}

void AddTextOptions(CLI::App* prepare, PrepareArguments* arguments) {
  prepare
      ->add_option("--input-format", arguments->input_format,
                   "of all inputs; default: as their names say, and jsonl from a stream")
      ->check(CLI::IsMember(Listed(WordsOf(TextFormat{}))));
  prepare->add_option("--text-key", arguments->text_key,
                      "key of a row that holds the text; default: text");
  prepare
      ->add_option("--documents", arguments->documents,
                   "what of a text file is a document: the file, each paragraph, each line; "
                   "default: file")
      ->check(CLI::IsMember(Listed(WordsOf(DocumentCut{}))));
  prepare->add_option("--begin", arguments->begin,
                      "token before each document: its text, its id, none; default: the "
                      "tokenizer's; llmc: its end of text");
  prepare->add_option("--end", arguments->end,
                      "token behind each document: its text, its id, none; default: the "
                      "tokenizer's end of text; llmc: none");
  prepare
      ->add_option("--specials", arguments->specials,
                   "special tokens within a text: refuse, text (as any other) or parse (become "
                   "the token); default: text")
      ->check(CLI::IsMember({"refuse", "text", "parse"}));
  prepare
      ->add_option("--invalid-utf8", arguments->invalid_utf8,
                   "bytes that are no UTF-8: refuse (a bad row) or replace (U+FFFD); default: "
                   "refuse")
      ->check(CLI::IsMember({"refuse", "replace"}));
}

}  // namespace

void AddData(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<PrepareArguments>();
  CLI::App* data = app.add_subcommand("data", "make files of tokens");
  data->require_subcommand(1);
  CLI::App* prepare = data->add_subcommand("prepare", "turn files of text into files of tokens");
  prepare
      ->add_option(
          "inputs", arguments->inputs,
          absl::StrCat("files, folders or patterns of ", KnownEndings(), "; - is standard input"))
      ->required();
  prepare
      ->add_option("--tokenizer", arguments->tokenizer,
                   absl::StrCat("a folder with ", TokenizerFileNames(), "; or such a file"))
      ->required();
  prepare->add_option("--output", arguments->output, "the files to write, without .bin")
      ->required();
  prepare
      ->add_option("--format", arguments->format,
                   "of the output: megatron (.bin and .idx), nanogpt or llmc (.bin); default: "
                   "megatron")
      ->check(CLI::IsMember(Listed(WordsOf(TokenOutput{}))));
  AddTextOptions(prepare, arguments.get());
  prepare
      ->add_option("--seq-len", arguments->seq_len,
                   "tokens of a sequence: the summary says what is longer")
      ->check(WholeNumber(1, int64_t{1} << 30));
  prepare
      ->add_option("--max-bad-rows", arguments->max_bad_rows,
                   "bad rows that are left out and said; one more ends the work; default: 0")
      ->check(WholeNumber(0));
  prepare->add_option("--threads", arguments->threads, "default: every core")
      ->check(WholeNumber(1, kMostThreads));
  prepare->add_flag("--force", arguments->force,
                    "replace an output that is there, and begin unfinished work anew");
  prepare->add_flag("--json", arguments->json, "one JSON object instead of the summary");
  prepare->callback([arguments, exit_code] { *exit_code = DataPrepare(*arguments); });
  AddDataCache(*data, exit_code);
}

}  // namespace weft
