#include "data/prepare/text_kind.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

constexpr absl::string_view kByPython =
    "; write its rows as JSON lines into a pipe: python3 -c 'import sys,pyarrow.dataset as d;"
    "[print(__import__(\"json\").dumps(r)) for b in d.dataset(sys.argv[1],format=sys.argv[2])"
    ".to_batches(columns=[\"text\"]) for r in b.to_pylist()]' FILE ";
constexpr absl::string_view kIntoWeft = " | weft data prepare - ...";

struct Ending {
  absl::string_view ending;
  TextFormat format;
};
constexpr Ending kEndings[] = {
    {".jsonl", TextFormat::kJsonl}, {".ndjson", TextFormat::kJsonl}, {".txt", TextFormat::kText},
    {".text", TextFormat::kText},   {".md", TextFormat::kText},
};

constexpr absl::string_view kPackedEndings[] = {".gz", ".zst"};

// Files that people have and that are read otherwise. `arrow`: the format's name in pyarrow.
struct Stranger {
  absl::string_view ending;
  absl::string_view what;
  absl::string_view arrow = "";
  absl::string_view cure = "";
};
constexpr absl::string_view kUnpack = "; unpack it, or pack it with gzip or zstd";
constexpr absl::string_view kMakeRows = "; make it JSON lines, a row each: {\"text\": \"...\"}";
constexpr Stranger kStrangers[] = {
    {".parquet", "a Parquet file", "parquet"},
    {".arrow", "an Arrow file", "ipc"},
    {".feather", "an Arrow file", "ipc"},
    {".json", "a JSON file", "", kMakeRows},
    {".csv", "a table of comma-separated values", "", kMakeRows},
    {".tsv", "a table of tab-separated values", "", kMakeRows},
    {".bz2", "a bzip2 file", "", kUnpack},
    {".xz", "an xz file", "", kUnpack},
    {".zip", "a zip archive", "", kUnpack},
    {".tar", "a tar archive", "", kUnpack},
    {".tgz", "a tar archive", "", kUnpack},
    {".bin", "a file of tokens", "", "; it needs no preparing: name it in data.train"},
    {".idx", "a file of tokens", "", "; it needs no preparing: name it in data.train"},
    {".npy", "an array of NumPy", "", "; it needs no preparing: write it with tofile as a .bin"},
};

struct FirstBytes {
  absl::string_view bytes;
  absl::string_view ending;  // of the stranger that it is
};
constexpr FirstBytes kFirstBytes[] = {
    {"PAR1", ".parquet"},   {"ARROW1", ".arrow"}, {"\xFF\xFF\xFF\xFF", ".arrow"},
    {"\xFD\x37zXZ", ".xz"}, {"BZh", ".bz2"},      {"PK\x03\x04", ".zip"},
    {"\x93NUMPY", ".npy"},  {"MMIDIDX", ".idx"},
};

std::string CureOf(const Stranger& stranger) {
  if (stranger.arrow.empty()) return std::string(stranger.cure);
  return absl::StrCat(kByPython, stranger.arrow, kIntoWeft);
}

const Stranger* FindStranger(absl::string_view lower) {
  for (const Stranger& stranger : kStrangers) {
    if (absl::EndsWith(lower, stranger.ending)) return &stranger;
  }
  return nullptr;
}

absl::Status Refusal(const Stranger& stranger, absl::string_view or_stated = "") {
  return absl::InvalidArgumentError(absl::StrCat("is ", stranger.what,
                                                 ", expected text or JSON lines", CureOf(stranger),
                                                 stranger.cure == kMakeRows ? or_stated : ""));
}

bool IsZstd(absl::string_view first) {
  // A frame, or one that is skipped, as pzstd writes before each.
  const bool is_skipped =
      first.size() >= 4 && (first[0] & '\xF0') == '\x50' && first.substr(1, 3) == "\x2A\x4D\x18";
  return is_skipped || absl::StartsWith(first, "\x28\xB5\x2F\xFD");
}

}  // namespace

Words WordsOf(TextFormat) {
  static constexpr absl::string_view kWords[] = {"text", "jsonl"};
  return kWords;
}

Words WordsOf(DocumentCut) {
  static constexpr absl::string_view kWords[] = {"file", "paragraph", "line"};
  return kWords;
}

std::string KnownEndings() {
  std::string text;
  for (const Ending& known : kEndings)
    absl::StrAppend(&text, text.empty() ? "" : ", ", known.ending);
  return absl::StrCat(text, ", each also with .gz or .zst");
}

absl::StatusOr<TextFormat> FormatOfName(absl::string_view path, absl::string_view option) {
  const std::string lower = absl::AsciiStrToLower(path);
  absl::string_view name = lower;
  for (const absl::string_view packed : kPackedEndings) {
    if (absl::ConsumeSuffix(&name, packed)) break;
  }
  for (const Ending& known : kEndings) {
    if (absl::EndsWith(name, known.ending)) return known.format;
  }
  const std::string or_stated =
      option.empty() ? "" : absl::StrCat(", or name its format with ", option);
  if (const Stranger* const stranger = FindStranger(name)) return Refusal(*stranger, or_stated);
  return absl::InvalidArgumentError(
      absl::StrCat("has a name that does not say what it is, expected one that ends with ",
                   KnownEndings(), "; rename it", or_stated));
}

bool IsNamedPacked(absl::string_view path) {
  const std::string lower = absl::AsciiStrToLower(path);
  for (const absl::string_view packed : kPackedEndings) {
    if (absl::EndsWith(lower, packed)) return true;
  }
  return false;
}

absl::StatusOr<Packing> PackingOf(absl::string_view path, absl::string_view first_bytes) {
  if (absl::StartsWith(first_bytes, "\x1F\x8B")) return Packing::kGzip;
  if (IsZstd(first_bytes)) return Packing::kZstd;
  for (const FirstBytes& known : kFirstBytes) {
    if (absl::StartsWith(first_bytes, known.bytes)) return Refusal(*FindStranger(known.ending));
  }
  if (absl::StartsWith(first_bytes, "\xFF\xFE") || absl::StartsWith(first_bytes, "\xFE\xFF")) {
    return absl::InvalidArgumentError(
        "is UTF-16, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8");
  }
  const std::string lower = absl::AsciiStrToLower(path);
  for (const absl::string_view packed : kPackedEndings) {
    if (!first_bytes.empty() && absl::EndsWith(lower, packed)) {
      return absl::InvalidArgumentError(absl::StrCat("is named ", packed, " and does not begin as ",
                                                     "such a file; is it damaged, or not packed?"));
    }
  }
  return Packing::kNone;
}

}  // namespace weft
