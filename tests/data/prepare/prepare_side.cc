// The preparing of files of rows, as a process of its own that a test can kill: small chunks, and
// a commit after each.
//   prepare_side TOKENIZER OUTPUT THREADS INPUT...
#include <cstdio>
#include <cstdlib>

#include "data/prepare/document_ends.h"
#include "data/prepare/prepare.h"
#include "data/prepare/text_inputs.h"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const auto tokenizer = weft::Tokenizer::Open(argv[1]);
  if (!tokenizer.ok()) return 2;
  std::vector<std::string> notes;
  const auto inputs =
      weft::FindTextInputs(std::vector<std::string>(argv + 4, argv + argc), std::nullopt, &notes);
  if (!inputs.ok()) return 2;
  weft::PrepareRequest request;
  request.inputs = *inputs;
  request.rules.after = {258};
  request.place = {.output = argv[2]};
  request.tokenizer = argv[1];
  request.threads = std::atoi(argv[3]);
  request.chunk_bytes = 1200;
  request.commit_bytes = 0;
  const auto result = weft::Prepare(*tokenizer, request);
  if (result.ok()) return 0;
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  return 1;
}
