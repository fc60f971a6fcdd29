// Files of text by their names and first bytes: which can be read as documents, how each is cut
// into them, and how it is packed. A file of another kind is refused with what makes it one of
// these. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/words.h"

namespace weft {

enum class TextFormat { kText, kJsonl };
Words WordsOf(TextFormat);

// The documents of a file of text: all of it is one, each paragraph (an empty line ends it), or
// each line. A row of jsonl is always one.
enum class DocumentCut { kFile, kParagraph, kLine };
Words WordsOf(DocumentCut);

enum class Packing { kNone, kGzip, kZstd };

// Returns the format that a file's name says it has: "a.jsonl.zst" is jsonl. InvalidArgument,
// without the path, for a name of another kind: what it is, and what to do. `option`: how the
// format may be stated instead, if it may.
absl::StatusOr<TextFormat> FormatOfName(absl::string_view path, absl::string_view option = "");

bool IsNamedPacked(absl::string_view path);

// Returns how a file is packed, by its first bytes (6 are enough). InvalidArgument, without the
// path: it is of a kind that is no text, or it is named as a packed file and is none.
absl::StatusOr<Packing> PackingOf(absl::string_view path, absl::string_view first_bytes);

// The endings that FormatOfName knows, for messages: ".jsonl, .ndjson, .txt, ...".
std::string KnownEndings();

}  // namespace weft
