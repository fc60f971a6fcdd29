// A small valid job file in a folder of its own, to be broken by tests one line at a time.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace weft {

inline constexpr char kGoodJob[] =
    "job: {name: small}\n"                  // 1
    "model:\n"                              // 2
    "  model_type: gpt2\n"                  // 3
    "  vocab_size: 256\n"                   // 4
    "  n_positions: 64\n"                   // 5
    "  n_embd: 32\n"                        // 6
    "  n_layer: 4\n"                        // 7
    "  n_head: 4\n"                         // 8
    "data:\n"                               // 9
    "  format: bytes\n"                     // 10
    "  train: [{path: corpus.txt}]\n"       // 11
    "training:\n"                           // 12
    "  seq_len: 32\n"                       // 13
    "  global_batch_size: 8\n"              // 14
    "  steps: 20\n"                         // 15
    "optimizer: {lr: 1.0e-3}\n"             // 16
    "parallelism: {dp: 2, pp: 2, tp: 1}\n"  // 17
    "cluster: {profile: cpu, slots: 4}\n";  // 18

// The good job with `from` replaced by `to` (the whole text, if `from` is empty).
inline std::string JobWith(const std::string& from, const std::string& to) {
  std::string text = kGoodJob;
  if (from.empty()) return to;
  const size_t at = text.find(from);
  if (at == std::string::npos) abort();
  return text.replace(at, from.size(), to);
}

// A folder that lives as long as this, with corpus.txt in it.
class JobFolder {
 public:
  JobFolder() {
    std::string name = "/tmp/weft-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) abort();
    path_ = name;
    std::ofstream(path_ + "/corpus.txt") << std::string(4000, 'a');
  }
  ~JobFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string job() const { return path_ + "/job.yaml"; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }

 private:
  std::string path_;
};

}  // namespace weft
