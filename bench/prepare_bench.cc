// Times `weft data prepare`'s work without the command: from a file of text to files of tokens, by
// the processor time of all its threads, so that other load on the machine counts little.
//   prepare_bench TOKENIZER FILE OUTPUT [--threads 1] [--rounds 3]
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "data/prepare/prepare.h"
#include "data/prepare/text_inputs.h"

namespace weft {
namespace {

rusage Used() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

double ProcessorSeconds(const rusage& usage) {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

absl::Status Bench(const std::string& path, const std::string& file, const std::string& output,
                   int threads, int rounds) {
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Open(path);
  if (!tokenizer.ok()) return tokenizer.status();
  std::vector<std::string> notes;
  const auto inputs = FindTextInputs({file}, std::nullopt, &notes);
  if (!inputs.ok()) return inputs.status();
  PrepareRequest request;
  request.inputs = *inputs;
  request.rules.item_bytes = ItemBytes(TokenOutput::kMegatron, tokenizer->vocab_size());
  request.place = {.output = output, .item_bytes = request.rules.item_bytes, .may_replace = true};
  request.tokenizer = path;
  request.threads = threads;
  const auto stored = static_cast<double>(inputs->front().stored_bytes);
  for (int round = 0; round < rounds; ++round) {
    const double begin_s = ProcessorSeconds(Used());
    const absl::StatusOr<PrepareResult> result = Prepare(*tokenizer, request);
    if (!result.ok()) return result.status();
    const double cpu_s = ProcessorSeconds(Used()) - begin_s;
    const auto text = static_cast<double>(result->counts.text_bytes);
    std::printf(
        "prepare: %.1f MB/s of file a core (%.1f of text), %.2f s of processor, %.2f s, "
        "%d threads, %lld documents, %lld tokens, at most %ld MiB\n",
        stored / cpu_s * 1e-6, text / cpu_s * 1e-6, cpu_s, result->took_s, threads,
        static_cast<long long>(result->counts.documents),
        static_cast<long long>(result->counts.tokens), Used().ru_maxrss / 1024);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  CLI::App app("times the preparing of text");
  std::string path, file, output;
  int threads = 1, rounds = 3;
  app.add_option("tokenizer", path)->required();
  app.add_option("file", file)->required();
  app.add_option("output", output)->required();
  app.add_option("--threads", threads);
  app.add_option("--rounds", rounds);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = weft::Bench(path, file, output, threads, rounds);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
