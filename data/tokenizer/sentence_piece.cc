#include "data/tokenizer/sentence_piece.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/unicode.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Type = SentencePieceModel::Type;

constexpr char kUnknownText[] = " \xE2\x81\x87 ";  // " ⁇ ", as sentencepiece decodes it

// A field of a message of protobuf.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a number, of 32 or 64 bits
  absl::string_view text;  // of what has a length
};

absl::Status BadMessage(size_t at) {
  return absl::InvalidArgumentError(absl::StrCat("found no message of protobuf at byte ", at,
                                                 ", expected a sentencepiece model"));
}

bool ReadVarint(absl::string_view bytes, size_t* at, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && *at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[(*at)++]);
    *value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Calls `take` for each field of a message.
absl::Status ForEachField(absl::string_view bytes,
                          const std::function<absl::Status(const Field&)>& take) {
  for (size_t at = 0; at < bytes.size();) {
    uint64_t key = 0;
    Field field;
    if (!ReadVarint(bytes, &at, &key)) return BadMessage(at);
    field.number = key >> 3;
    const uint64_t kind = key & 7;
    uint64_t size = kind == 1 ? 8 : kind == 5 ? 4 : 0;
    if (kind == 0 && !ReadVarint(bytes, &at, &field.value)) return BadMessage(at);
    if (kind == 2 && !ReadVarint(bytes, &at, &size)) return BadMessage(at);
    const bool is_known = kind == 0 || kind == 1 || kind == 2 || kind == 5;
    if (!is_known || size > bytes.size() - at) return BadMessage(at);
    if (kind == 2) field.text = bytes.substr(at, size);
    if (kind == 1 || kind == 5) std::memcpy(&field.value, bytes.data() + at, size);
    at += size;
    RETURN_IF_ERROR(take(field));
  }
  return absl::OkStatus();
}

absl::Status ReadPiece(absl::string_view bytes, SentencePieceModel* model) {
  if (std::ssize(model->pieces) >= kMostTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("found more than ", kMostTokens, " pieces, expected fewer"));
  }
  SentencePieceModel::Piece piece;
  RETURN_IF_ERROR(ForEachField(bytes, [&](const Field& field) {
    if (field.number == 1) piece.text = std::string(field.text);
    if (field.number == 3) piece.type = static_cast<int64_t>(field.value);
    if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof(bits));
    }
    return absl::OkStatus();
  }));
  const bool is_normal = piece.type != 0 && !piece.text.empty() && std::isfinite(piece.score) &&
                         piece.text.size() <= kMostTokenBytes;
  if (!is_normal || !IsUtf8(piece.text)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found a piece ", model->pieces.size(), " \"", Shortened(piece.text), "\" of the score ",
        piece.score, ", expected UTF-8 of at most ", kMostTokenBytes, " bytes and a number"));
  }
  model->pieces.push_back(std::move(piece));
  return absl::OkStatus();
}

absl::Status ReadTrainer(absl::string_view bytes, SentencePieceModel* model) {
  return ForEachField(bytes, [model](const Field& field) {
    if (field.number == 3) model->model_type = static_cast<int64_t>(field.value);
    if (field.number == 24) model->has_suffix_marks = field.value != 0;
    if (field.number == 35) model->has_byte_fallback = field.value != 0;
    return absl::OkStatus();
  });
}

absl::Status ReadNormalizerSpec(absl::string_view bytes, SentencePieceModel* model) {
  return ForEachField(bytes, [model](const Field& field) {
    if (field.number == 2) model->charsmap = std::string(field.text);
    if (field.number == 3) model->adds_prefix = field.value != 0;
    if (field.number == 4) model->joins_spaces = field.value != 0;
    if (field.number == 5) model->marks_spaces = field.value != 0;
    return absl::OkStatus();
  });
}

bool Is(const SentencePieceModel::Piece& piece, Type type) {
  return piece.type == static_cast<int64_t>(type);
}

// The texts that a piece of text may become, and those of bytes; the unknown id.
struct Pieces {
  Vocabulary found;
  int32_t unknown = kNoToken;
};

Pieces FoundPieces(const SentencePieceModel& model) {
  Pieces pieces{Vocabulary(model.pieces.size()), kNoToken};
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    if (Is(piece, Type::kUnknown)) pieces.unknown = id;
    const bool is_found = Is(piece, Type::kNormal) || Is(piece, Type::kUserDefined) ||
                          (Is(piece, Type::kByte) && model.has_byte_fallback);
    pieces.found.Add(piece.text, id, is_found);
  }
  return pieces;
}

// The highest score merges first: ranks are places among all scores.
std::map<float, int32_t, std::greater<>> RanksOfScores(const SentencePieceModel& model) {
  std::map<float, int32_t, std::greater<>> ranks;
  for (const auto& piece : model.pieces) ranks[piece.score] = 0;
  int32_t next = 0;
  for (auto& [score, rank] : ranks) rank = next++;
  return ranks;
}

// The id of a text that merging meets: a piece, or a character, which needs not be one.
int32_t MetId(absl::string_view text, bool is_character, Vocabulary* found) {
  const int32_t id = found->Find(text);
  if (id != kNoToken || !is_character) return id;
  if (found->size() + 1 >= kMostTokens) return kNoToken;
  const auto ghost = static_cast<int32_t>(found->size());
  found->Add(std::string(text), ghost);
  return ghost;
}

std::shared_ptr<const Bpe> BpeOf(const SentencePieceModel& model) {
  Pieces pieces = FoundPieces(model);
  const auto ranks = RanksOfScores(model);
  PairTable merges(model.pieces.size() * 4);
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    if (!Is(piece, Type::kNormal) && !Is(piece, Type::kUserDefined)) continue;
    const absl::string_view text = piece.text;
    const auto first = static_cast<size_t>(CharacterAt(text, 0).bytes);
    for (size_t cut = first; cut < text.size();) {
      const auto next = static_cast<size_t>(CharacterAt(text, cut).bytes);
      const int32_t left = MetId(text.substr(0, cut), cut == first, &pieces.found);
      const int32_t right = MetId(text.substr(cut), cut + next == text.size(), &pieces.found);
      if (left != kNoToken && right != kNoToken) {
        merges.Put(left, right, ranks.at(piece.score), static_cast<int32_t>(i));
      }
      cut += next;
    }
  }
  BpeRules rules;
  rules.has_byte_fallback = model.has_byte_fallback;
  rules.fuses_unknown = true;
  rules.unknown = pieces.unknown;
  if (pieces.found.size() > std::ssize(model.pieces)) {
    rules.first_ghost = static_cast<int32_t>(model.pieces.size());
  }
  return std::make_shared<const Bpe>(std::move(pieces.found), std::move(merges), rules);
}

std::shared_ptr<const Unigram> UnigramOf(const SentencePieceModel& model) {
  Pieces pieces = FoundPieces(model);
  std::vector<double> scores;
  for (const auto& piece : model.pieces) {
    scores.push_back(Is(piece, Type::kNormal) ? piece.score : kNoScore);
  }
  UnigramRules rules;
  rules.unknown = pieces.unknown;
  rules.has_byte_fallback = model.has_byte_fallback;
  // Each unknown character is bytes of its own; without bytes neighbours are one unknown token.
  rules.fuses_unknown = true;
  rules.is_in_floats = true;
  return std::make_shared<const Unigram>(std::move(pieces.found), std::move(scores), rules);
}

absl::Status CheckModel(const SentencePieceModel& model, const std::string& path) {
  const auto refuse = [&path](absl::string_view found, absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found ", found, ", expected ", expected));
  };
  if (model.pieces.empty()) return refuse("no pieces", "a sentencepiece model");
  if (model.model_type != 1 && model.model_type != 2) {
    return refuse(absl::StrCat("trainer_spec.model_type ", model.model_type),
                  "1 (unigram) or 2 (BPE)");
  }
  int64_t num_unknown = 0;
  for (const auto& piece : model.pieces) {
    if (piece.type < 1 || piece.type > 6 || Is(piece, Type::kUnused)) {
      return refuse(absl::StrCat("the piece \"", Shortened(piece.text), "\" of type ", piece.type),
                    "normal, unknown, control, user-defined or byte (1, 2, 3, 4, 6)");
    }
    num_unknown += Is(piece, Type::kUnknown) ? 1 : 0;
  }
  if (num_unknown == 1) return absl::OkStatus();
  return refuse(absl::StrCat(num_unknown, " unknown pieces"), "one");
}

}  // namespace

absl::StatusOr<SentencePieceModel> ReadSentencePiece(absl::string_view bytes) {
  SentencePieceModel model;
  RETURN_IF_ERROR(ForEachField(bytes, [&model](const Field& field) {
    if (field.number == 1) return ReadPiece(field.text, &model);
    if (field.number == 2) return ReadTrainer(field.text, &model);
    if (field.number == 3) return ReadNormalizerSpec(field.text, &model);
    return absl::OkStatus();
  }));
  return model;
}

absl::StatusOr<TokenizerParts> PartsOfSentencePiece(absl::string_view bytes,
                                                    const std::string& path) {
  const absl::StatusOr<SentencePieceModel> read = ReadSentencePiece(bytes);
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", read.status().message()));
  }
  const SentencePieceModel& model = *read;
  RETURN_IF_ERROR(CheckModel(model, path));
  TokenizerParts parts;
  parts.normalizes_added = false;
  SentencePieceStep step;
  step.adds_prefix = model.adds_prefix;
  step.joins_spaces = model.joins_spaces;
  step.marks_spaces = model.marks_spaces;
  step.has_suffix_marks = model.has_suffix_marks;
  if (!model.charsmap.empty()) {
    absl::StatusOr<Charsmap> map = Charsmap::Read(model.charsmap);
    if (!map.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", map.status().message()));
    }
    step.charsmap = std::make_shared<Charsmap>(*std::move(map));
  }
  std::vector<AddedToken> kept;
  parts.texts = Vocabulary(model.pieces.size());
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    parts.texts.Add(Is(piece, Type::kUnknown) ? kUnknownText : piece.text, id);
    AddedToken token;
    token.content = piece.text;
    token.id = id;
    token.is_special = Is(piece, Type::kControl);
    token.is_normalized = Is(piece, Type::kUserDefined);
    if (token.is_normalized) kept.push_back(token);
    if (token.is_normalized || token.is_special) parts.added.push_back(token);
    if (token.is_special && piece.text == "</s>") parts.ends_of_text.insert(id);
  }
  if (!kept.empty()) step.kept = std::make_shared<const AddedTokens>(kept);
  parts.normalizer.emplace_back(std::move(step));
  if (model.adds_prefix || model.joins_spaces) {
    parts.decoder.emplace_back(StartDecoding{kSpaceMark, !model.joins_spaces});
  }
  parts.decoder.insert(parts.decoder.end(),
                       {ReplaceDecoding{kSpaceMark, " "}, ByteFallbackDecoding{}, FuseDecoding{}});
  if (model.model_type == 2) {
    parts.model = BpeOf(model);
  } else {
    parts.model = UnigramOf(model);
  }
  return parts;
}

}  // namespace weft
