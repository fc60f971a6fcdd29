#include "text/json.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr size_t kMostShownBytes = 20;
constexpr int kNumberOutOfRange = 406;  // nlohmann's id of it

// An ordered object is a list, whose own look for a key takes as long as the list is: this is the
// place of each key in it, once there are so many that it is faster.
using Places = std::unordered_map<std::string, size_t>;
constexpr size_t kFewKeys = 32;

// Put a value into an object, and return whether its key is new there.
bool Put(std::string key, nlohmann::json value, Places&, nlohmann::json::object_t& object) {
  return object.insert_or_assign(std::move(key), std::move(value)).second;
}
bool Put(std::string key, nlohmann::ordered_json value, Places& places,
         nlohmann::ordered_json::object_t& object) {
  if (object.size() <= kFewKeys) {
    const auto same = [&](const auto& each) { return each.first == key; };
    const auto known = std::find_if(object.begin(), object.end(), same);
    if (known != object.end()) {
      known->second = std::move(value);
      return false;
    }
    object.emplace_back(std::move(key), std::move(value));
    return true;
  }
  for (size_t place = places.size(); place < object.size(); ++place) {
    places.emplace((object.begin() + static_cast<std::ptrdiff_t>(place))->first, place);
  }
  const auto [place, is_new] = places.emplace(key, object.size());
  if (is_new) {
    object.emplace_back(std::move(key), std::move(value));
  } else {
    (object.begin() + static_cast<std::ptrdiff_t>(place->second))->second = std::move(value);
  }
  return is_new;
}

// Text of a message: what is not printable becomes '?'.
std::string Shown(absl::string_view text) {
  std::string shown(text.substr(0, kMostShownBytes));
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) { return !absl::ascii_isprint(static_cast<unsigned char>(c)); }, '?');
  return absl::StrCat("\"", shown, text.size() > kMostShownBytes ? "..." : "", "\"");
}

// The last bytes of a line up to `byte`, with it.
absl::string_view EndOfLineAt(absl::string_view text, size_t byte) {
  const absl::string_view until = text.substr(0, byte + 1);
  const size_t line_end = until.substr(0, byte).rfind('\n');
  const absl::string_view line =
      line_end == absl::string_view::npos ? until : until.substr(line_end + 1);
  return line.substr(line.size() - std::min(line.size(), kMostShownBytes));
}

absl::Status Wrong(absl::string_view text, size_t byte, absl::string_view what) {
  byte = std::min(byte, text.size());
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(byte);
  return absl::InvalidArgumentError(absl::StrCat("line ", 1 + std::count(text.begin(), end, '\n'),
                                                 ", byte ", byte + 1, ": ", what));
}

// Where the text, which is JSON up to there, opens one object or list too many.
size_t ByteOfDepth(absl::string_view text, int most_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t byte = 0; byte < text.size(); ++byte) {
    const char c = text[byte];
    if (in_string && c == '\\') {
      ++byte;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '{' || c == '[')) {
      if (++depth > most_depth) return byte;
    } else if (!in_string && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return text.size();
}

// Builder makes a value of what nlohmann's parser finds, one event after the other. The parser
// itself needs no stack: building with its own builder would allow any depth.
template <typename Json>
class Builder {
 public:
  Builder(absl::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  absl::StatusOr<Json> Take() && {
    if (!status_.ok()) return std::move(status_);
    return std::move(whole_);
  }

  // ---- the parser calls these; false ends it ----
  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(typename Json::number_integer_t value) { return Add(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return Add(value); }
  bool number_float(typename Json::number_float_t value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(typename Json::binary_t&) { return false; }  // of other formats
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(size_t position, const std::string& token, const typename Json::exception& why) {
    const size_t byte = position > 0 ? position - 1 : 0;  // the parser counts what it has read
    if (why.id == kNumberOutOfRange) {
      return Refuse(
          byte, absl::StrCat("found the number ", Shown(token), ", expected none beyond 1.8e308"));
    }
    if (byte >= text_.size()) return Refuse(byte, "the text ends amid a value; it is not JSON");
    return Refuse(byte, absl::StrCat("not JSON: found ", Shown(EndOfLineAt(text_, byte))));
  }

 private:
  struct Level {
    Json value;
    std::string key;  // of the value that comes next
    Places places;
  };

  bool Refuse(size_t byte, absl::string_view what) {
    status_ = Wrong(text_, byte, what);
    return false;
  }

  bool Add(Json value) {
    if (open_.empty()) {
      whole_ = std::move(value);
      return true;
    }
    Level& level = open_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
      return true;
    }
    auto& object = *level.value.template get_ptr<typename Json::object_t*>();
    const std::string name = limits_.is_key_told_once ? level.key : "";
    const bool is_new = Put(std::move(level.key), std::move(value), level.places, object);
    if (is_new || !limits_.is_key_told_once) return true;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("found the key ", Shown(name), " twice in an object, expected each key once"));
    return false;
  }

  bool Open(Json empty) {
    if (std::ssize(open_) == limits_.most_depth) {
      return Refuse(ByteOfDepth(text_, limits_.most_depth),
                    absl::StrCat("nested deeper than ", limits_.most_depth,
                                 ", the most that is read of such a text"));
    }
    open_.push_back({.value = std::move(empty), .key = "", .places = {}});
    return true;
  }

  bool Close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }

  const absl::string_view text_;
  const JsonLimits& limits_;
  absl::Status status_;
  Json whole_;
  std::vector<Level> open_;
};

template <typename Json>
absl::StatusOr<Json> Parse(absl::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.most_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("holds ", text.size(), " bytes, at most ",
                                                   limits.most_bytes, " are read of such a text"));
  }
  // The parser takes a NUL for the text's end.
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) return Wrong(text, nul, "found a NUL byte; it is not JSON");
  Builder<Json> builder(text, limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).Take();
}

}  // namespace

std::string Shortened(absl::string_view text) {
  constexpr size_t kMostBytes = 80;
  if (text.size() <= kMostBytes) return std::string(text);
  return absl::StrCat(text.substr(0, kMostBytes), "...");
}

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  return Parse<nlohmann::json>(text, limits);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text,
                                                        const JsonLimits& limits) {
  return Parse<nlohmann::ordered_json>(text, limits);
}

}  // namespace weft
