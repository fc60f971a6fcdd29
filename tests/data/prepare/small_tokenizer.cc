#include "tests/data/prepare/small_tokenizer.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

namespace weft {
namespace {

// GPT-2's characters for bytes: those that print stand for themselves, the others follow U+00FF.
std::string CharacterOfByte(int byte) {
  static int next = 0;
  if (byte == 0) next = 0;
  const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const int code = prints ? byte : 256 + next++;
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

void WriteSmallTokenizer(const std::string& path) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[CharacterOfByte(byte)] = byte;
  vocab["th"] = 256;
  vocab["the"] = 257;
  const nlohmann::json tokenizer = {
      {"version", "1.0"},
      {"added_tokens",
       {{{"id", kEndOfTextForTest},
         {"content", "<|endoftext|>"},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h", "th e"}}}}};
  std::ofstream(path) << tokenizer.dump();
}

TextFolder::TextFolder() {
  std::string name = "/dev/shm/weft-text-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    name = "/tmp/weft-text-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) abort();
  }
  path_ = name;
  WriteSmallTokenizer(tokenizer());
}

TextFolder::~TextFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string TextFolder::Write(const std::string& name, const std::string& bytes) const {
  std::ofstream(At(name), std::ios::binary) << bytes;
  return At(name);
}

std::string TextFolder::Read(const std::string& name) const {
  std::ifstream file(At(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Gzipped(const std::string& bytes) {
  z_stream stream = {};
  if (deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) abort();
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

std::string Zstandard(const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3);
  if (ZSTD_isError(size) != 0) abort();
  packed.resize(size);
  return packed;
}

std::string RowsForTest(int rows, unsigned seed) {
  std::mt19937 random(seed);
  const char* const words[] = {"the ",  "weft ",       "threads \n", "naïve ",
                               "日本 ", "\"quoted\" ", "1234 "};
  std::string all;
  for (int row = 0; row < rows; ++row) {
    std::string text;
    for (unsigned i = 0; i < 1 + random() % 40; ++i) text += words[random() % std::size(words)];
    all += nlohmann::json{{"id", row}, {"text", text}}.dump() + "\n";
  }
  return all;
}

}  // namespace weft
