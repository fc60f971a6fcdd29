// A small byte-level tokenizer, and a folder for the files of a test.
#pragma once
#include <string>

namespace weft {

inline constexpr int kEndOfTextForTest = 258;  // <|endoftext|>, its one added token

// Writes tokenizer.json: 256 bytes, "th" and "the".
void WriteSmallTokenizer(const std::string& path);

// A folder that lives as long as this, with tokenizer.json in it. It is in memory where files may
// be there: preparing waits for the disk after each chunk of a test.
class TextFolder {
 public:
  TextFolder();
  ~TextFolder();
  TextFolder(const TextFolder&) = delete;
  TextFolder& operator=(const TextFolder&) = delete;

  std::string At(const std::string& name) const { return path_ + "/" + name; }
  std::string tokenizer() const { return At("tokenizer.json"); }
  // Writes a file, and returns its path.
  std::string Write(const std::string& name, const std::string& bytes) const;
  std::string Read(const std::string& name) const;

 private:
  std::string path_;
};

// `bytes` as a gzip member, and as a zstd frame.
std::string Gzipped(const std::string& bytes);
std::string Zstandard(const std::string& bytes);

// Rows of jsonl: {"text": ...} of texts that differ, of up to some 400 bytes.
std::string RowsForTest(int rows, unsigned seed);

}  // namespace weft
