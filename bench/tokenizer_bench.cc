// Times a tokenizer: opening it, and encoding a file cut into documents, by the processor time of
// this thread, so that other load on the machine counts little.
//   tokenizer_bench TOKENIZER FILE [--document-bytes 4096] [--rounds 3]
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace weft {
namespace {

double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Documents end where lines do.
std::vector<std::string> Documents(const std::string& text, size_t document_bytes) {
  std::vector<std::string> documents;
  for (size_t begin = 0; begin < text.size();) {
    const size_t line = text.find('\n', std::min(text.size() - 1, begin + document_bytes));
    const size_t end = line == std::string::npos ? text.size() : line + 1;
    documents.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return documents;
}

int Bench(const std::string& path, const std::string& file, size_t document_bytes, int rounds) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  const std::vector<std::string> documents = Documents(text.str(), document_bytes);
  const double begin_s = ProcessorSeconds();
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Open(path);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  std::printf("open: %.3f s, %lld tokens\n", ProcessorSeconds() - begin_s,
              static_cast<long long>(tokenizer->vocab_size()));
  const EncodeOptions options = {.invalid_utf8 = InvalidUtf8::kReplace, .adds_ends = false};
  for (int round = 0; round < rounds; ++round) {
    TokenizerScratch scratch;
    std::vector<int32_t> ids;
    size_t bytes = 0, tokens = 0;
    const double start_s = ProcessorSeconds();
    for (const std::string& document : documents) {
      ids.clear();
      const absl::Status encoded = tokenizer->Encode(document, options, &scratch, &ids);
      if (!encoded.ok()) {
        std::fprintf(stderr, "%s\n", encoded.ToString().c_str());
        return 1;
      }
      bytes += document.size();
      tokens += ids.size();
    }
    const double took_s = ProcessorSeconds() - start_s;
    std::printf("encode: %.1f MB/s, %.2f Mtokens/s, %zu documents, %.1f MB, %zu tokens\n",
                static_cast<double>(bytes) / took_s / 1e6,
                static_cast<double>(tokens) / took_s / 1e6, documents.size(),
                static_cast<double>(bytes) / 1e6, tokens);
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  CLI::App app("times a tokenizer");
  std::string path, file;
  size_t document_bytes = 4096;
  int rounds = 3;
  app.add_option("tokenizer", path)->required();
  app.add_option("file", file)->required();
  app.add_option("--document-bytes", document_bytes);
  app.add_option("--rounds", rounds);
  CLI11_PARSE(app, argc, argv);
  return weft::Bench(path, file, document_bytes, rounds);
}
