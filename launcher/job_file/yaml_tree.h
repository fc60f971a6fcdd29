// A YAML document as a plain tree in which every value knows where it stands, so that each message
// can say file and line. Duplicate keys are kept and reported: yaml-cpp alone would take one of
// them in silence. The only file of weft that includes yaml-cpp. Values; safe from any thread.
#pragma once
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

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string scalar;
  bool quoted = false;  // "12" is a text, 12 a number
  Place place;          // of the key; of the item in a list
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
  bool is_auto() const;  // the word auto, capitals or not

  const YamlNode* Find(absl::string_view key) const;  // null if absent or not a map
  YamlNode* Find(absl::string_view key);
  const YamlNode* FindPath(absl::string_view dotted) const;
  void Remove(absl::string_view key);
  static YamlNode Map(const Place& place);  // an empty map
  static YamlNode Scalar(absl::string_view text, const Place& place);
  // Returns what a person wrote, short: "12", "the text \"12\"", "a list of 3", "a map", "nothing".
  std::string Found() const;
};

// A key of a map and its value.
struct YamlEntry {
  std::string name;
  YamlNode node;
};

// Parses one document. Empty, with issues added, if the text is not YAML; duplicate keys are issues
// but still yield a tree (of the first of them). `order` is Place::order of all nodes.
std::optional<YamlNode> ParseYaml(const std::string& text, absl::string_view source, int order,
                                  Issues* issues);

// A value given on the command line; its place is "--set <text>".
std::optional<YamlNode> ParseYamlValue(const std::string& text, const Place& place, Issues* issues);

}  // namespace weft
