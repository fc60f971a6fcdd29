// Seeded damage to what people write: job files, profiles, config.json, command lines. The same
// seed damages in the same way on every machine. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace weft {

// SplitMix64 (Steele et al., OOPSLA'14): a sequence by seed, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // 0 to size - 1. REQUIRES: size >= 1.
  size_t Below(size_t size) { return static_cast<size_t>(Next() % size); }
  bool Once(size_t in) { return Below(in) == 0; }
  template <typename T>
  const T& Of(absl::Span<const T> values) {
    return values[Below(values.size())];
  }

 private:
  uint64_t state_;
};

// A Word says where a word stands in a text of YAML or JSON.
struct Word {
  size_t begin = 0;
  size_t size = 0;
};
// The plain values of keys and of list items; of them those that are numbers.
std::vector<Word> ValuesIn(const std::string& text);
std::vector<Word> NumbersIn(const std::string& text);
// The keys of maps.
std::vector<Word> KeysIn(const std::string& text);

std::string WithWord(const std::string& text, Word word, const std::string& other);

// Returns what stands for a number where none can be meant: words, lists, what is not finite.
absl::Span<const std::string> NoNumbers();

// A value that is legal somewhere, and seldom here.
std::string StrangeValue(Random& random);

// `text` with one to three damages: of bytes, of lines, of keys, of values, of its nesting.
std::string Damaged(std::string text, Random& random);

// `words`, a command line, with one or two damages: a word lost, doubled, moved, or replaced.
// `others`: words of the same program.
std::vector<std::string> DamagedCommand(std::vector<std::string> words,
                                        absl::Span<const std::string> others, Random& random);

}  // namespace weft
