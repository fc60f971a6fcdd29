// A Value is what a person or a program wrote, before anyone knows what it means: a scalar, a list
// or a map, of which every part knows where it stands, so that each message can say file and line.
// YAML (launcher/job_file/yaml_tree.h) and JSON (proto/job_text.h) become such trees, and keys are
// read from them and printed into them (plan/keys/key_field.h). Values; safe from any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// "job.yaml:12", or "--set training.steps=x" (no line: order of the command line decides).
struct Place {
  std::string source;
  int order = 0;  // 0: the job file; 1 and up: what came after it
  int line = 0;   // from 1; 0: the source has no lines

  std::string Text() const;
  friend bool operator==(const Place&, const Place&) = default;
};

// One thing that is wrong. `key` is dotted and may be empty.
struct Issue {
  Place place;
  std::string key;
  std::string message;

  std::string Text() const;  // "job.yaml:12: training.steps: found ..., allowed ..., next step"
};

// All issues of a reading. Nothing stops at the first one.
class Issues {
 public:
  void Add(const Place& place, absl::string_view key, absl::string_view message);
  bool empty() const { return issues_.empty(); }
  // Sorted by source and line, one per line, equal lines once, at most kMostShown; what is left out
  // is said in one more line.
  std::string Text() const;
  static constexpr size_t kMostShown = 100;
  const std::vector<Issue>& all() const { return issues_; }

 private:
  std::vector<Issue> issues_;
};

struct ValueEntry;

struct Value {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string scalar;
  bool quoted = false;  // "12" is a text, 12 a number
  Place place;          // of the key; of the item in a list
  std::vector<Value> items;
  std::vector<ValueEntry> entries;

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
  bool is_auto() const;  // the word auto, capitals or not
  // Returns the scalar; true or false for a flag however YAML 1.2 lets it be written (True, FALSE).
  absl::string_view word() const;

  const Value* Find(absl::string_view key) const;  // null if absent or not a map
  Value* Find(absl::string_view key);
  const Value* FindPath(absl::string_view dotted) const;
  // Puts `value` at the dotted key, in place of what is there, and makes the sections on the way.
  // Returns false, and changes nothing, if a part of the way is no section.
  bool Put(absl::string_view dotted, Value value);
  void Remove(absl::string_view key);
  // Returns what a person wrote, short: "12", "the text \"12\"", "a list of 3", "a map", "nothing".
  std::string Found() const;

  static Value Map(const Place& place = {});  // an empty map
  static Value List(std::vector<Value> items);
  static Value Scalar(absl::string_view text, const Place& place = {});
  // These are scalars as a printer makes them; numbers read back exactly.
  static Value Text(absl::string_view text);
  static Value Number(double number);
  static Value Whole(int64_t number);
  static Value Flag(bool flag);
};

// A key of a map and its value.
struct ValueEntry {
  std::string name;
  Value node;
};

// Cuts a long text between two characters: a key or a value as messages name it.
std::string Shown(absl::string_view text);

// "512", "10e9" (a whole number all the same). Nothing if it is not one, or above 2^53.
std::optional<int64_t> ParseWholeNumber(absl::string_view text);
std::optional<double> ParseNumber(absl::string_view text);  // finite

// The shortest text that reads back as exactly `value`.
std::string NumberText(double value);

}  // namespace weft
