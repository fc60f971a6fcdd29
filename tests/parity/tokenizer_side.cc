// weft's half of tokenizer_compare.py: ids of texts, and texts of ids again.
//   weft_tokenizer_side TOKENIZER [text|parse] < texts > answers
// Numbers are 32 bits, little endian. In: for each text its size and its bytes. Out: for each the
// number of its ids (-1: refused, the reason on stderr), the ids, the size of the text of these ids
// and that text.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {
namespace {

void Put(int32_t number) {
  std::fwrite(&number, sizeof(number), 1, stdout);
}

int AnswerAll(const Tokenizer& tokenizer, const EncodeOptions& options) {
  TokenizerScratch scratch;
  std::vector<int32_t> ids;
  std::string text;
  for (uint32_t size = 0; std::fread(&size, sizeof(size), 1, stdin) == 1;) {
    text.resize(size);
    if (std::fread(text.data(), 1, size, stdin) != size) return 1;
    ids.clear();
    const absl::Status encoded = tokenizer.Encode(text, options, &scratch, &ids);
    if (!encoded.ok()) {
      std::fprintf(stderr, "%s\n", encoded.ToString().c_str());
      Put(-1);
      continue;
    }
    Put(static_cast<int32_t>(ids.size()));
    std::fwrite(ids.data(), sizeof(ids[0]), ids.size(), stdout);
    const std::string decoded = tokenizer.Decode(ids);
    Put(static_cast<int32_t>(decoded.size()));
    std::fwrite(decoded.data(), 1, decoded.size(), stdout);
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const absl::StatusOr<weft::Tokenizer> tokenizer = weft::Tokenizer::Open(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  weft::EncodeOptions options;
  options.adds_ends = false;
  const bool parses = argc > 2 && absl::string_view(argv[2]) == "parse";
  options.specials = parses ? weft::Specials::kParse : weft::Specials::kText;
  return weft::AnswerAll(*tokenizer, options);
}
