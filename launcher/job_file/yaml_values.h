// Typed values out of a YAML tree, and back into text. Each method returns the value, or nothing if
// the key is absent, null, or wrong; what is wrong becomes an issue with its place. One reader per
// tree; not thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/job_file/yaml_tree.h"

namespace weft {

// "512", "10e9" (a whole number all the same). Nothing if it is not one, or above 2^53.
std::optional<int64_t> ParseWholeNumber(absl::string_view text);
std::optional<double> ParseNumber(absl::string_view text);  // finite

// The shortest text that reads back as exactly `value`.
std::string NumberText(double value);
// `text` as a YAML scalar that reads back as a text, whatever is in it.
std::string YamlText(absl::string_view text);

// A path as a person writes it, absolute: "~/" is the home folder, what is relative is so to
// `folder`. One spelling of each, so without a slash at the end (`output_dir: .`): a run's id is
// made of it.
std::string AbsolutePath(const std::string& path, const std::string& folder);

class YamlValues {
 public:
  // `prefix`: what stands before the tree's keys in messages ("model"); may be empty.
  YamlValues(const YamlNode& root, absl::string_view prefix, Issues* issues)
      : root_(root), prefix_(prefix), issues_(issues) {}

  // Null if absent or null.
  const YamlNode* Node(absl::string_view key) const;
  bool Has(absl::string_view key) const { return Node(key) != nullptr; }
  bool IsAuto(absl::string_view key) const;
  // Place of the key, else of the nearest section above it, else of the file.
  Place PlaceOf(absl::string_view key) const;
  void Wrong(absl::string_view key, absl::string_view message) const;

  std::optional<int64_t> Whole(absl::string_view key) const;
  std::optional<int> Small(absl::string_view key) const;  // a whole number below 2^31
  std::optional<double> Number(absl::string_view key) const;
  std::optional<bool> Flag(absl::string_view key) const;
  std::optional<std::string> Text(absl::string_view key) const;

  // The same, into a field that keeps its default if the key is absent or wrong.
  void Read(absl::string_view key, int64_t* field) const;
  void Read(absl::string_view key, int* field) const;
  void Read(absl::string_view key, double* field) const;
  void Read(absl::string_view key, std::string* field) const;
  // `auto` empties the field.
  void ReadOrAuto(absl::string_view key, std::optional<int64_t>* field) const;
  void ReadOrAuto(absl::string_view key, std::optional<int>* field) const;

 private:
  std::optional<int64_t> WholeOf(const YamlNode& node, absl::string_view key,
                                 absl::string_view allowed) const;

  const YamlNode& root_;
  std::string prefix_;
  Issues* issues_;
};

}  // namespace weft
