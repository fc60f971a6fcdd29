// These tables say what Unicode 16 says of characters of which Unicode 14 says something else:
// PCRE2 of Debian 12 knows 14, published tokenizers were made with 16. And what parts of Hugging
// Face's tokenizers take for a class, some by older tables of their own. make_newer_unicode.py
// writes them. All are in the order of code points. Pure.
#pragma once
#include "absl/types/span.h"

namespace weft {

struct CategoryRange {
  char32_t first = 0;
  char32_t last = 0;
  const char* category = nullptr;  // two letters: "Lo"
};
struct PointRange {
  char32_t first = 0;
  char32_t last = 0;
};

// General categories that are new or other than in Unicode 14; by code point.
absl::Span<const CategoryRange> NewerCategories();

// \w of Oniguruma finds these besides letters, marks, decimal and letter numbers and connectors.
absl::Span<const PointRange> WordBesides();

// Capital letters and their small ones (first, last), where Unicode 14 knows none.
absl::Span<const PointRange> NewerLower();

absl::Span<const PointRange> NumberPoints();       // of Digits
absl::Span<const PointRange> PunctuationPoints();  // of Punctuation and BertPreTokenizer
absl::Span<const PointRange> AccentPoints();       // that StripAccents drops
absl::Span<const PointRange> BertAccentPoints();   // that BertNormalizer drops as accents
absl::Span<const PointRange> BertControlPoints();  // that BertNormalizer drops from clean texts
// Characters that NFC and the like leave as and where they are, though newer Unicode does not.
absl::Span<const PointRange> InertPoints();

}  // namespace weft
