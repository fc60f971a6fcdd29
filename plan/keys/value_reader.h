// Typed values out of a tree. Each method returns the value, or nothing if
// the key is absent, null, or wrong; what is wrong becomes an issue with its place. One reader per
// tree; not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/keys/value.h"

namespace weft {

class ValueReader {
 public:
  // `prefix`: what stands before the tree's keys in messages ("model"); may be empty.
  ValueReader(const Value& root, absl::string_view prefix, Issues* issues)
      : root_(root), prefix_(prefix), issues_(issues) {}

  // Null if absent or null.
  const Value* Node(absl::string_view key) const;
  bool Has(absl::string_view key) const { return Node(key) != nullptr; }
  bool Mentions(absl::string_view key) const {
    return root_.FindPath(key) != nullptr;
  }  // as null, too
  bool IsAuto(absl::string_view key) const;
  // Place of the key, else of the nearest section above it, else of the file.
  Place PlaceOf(absl::string_view key) const;
  void Wrong(absl::string_view key, absl::string_view message) const;

  // Adds an issue, with the nearest of `known`, if the last part of `key` is none of them.
  void CheckKnown(absl::string_view key, const std::vector<std::string>& known) const;
  // Reads `item`, number `index` of the list `key`.
  ValueReader Item(absl::string_view key, const Value& item, size_t index) const;

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
  std::optional<int64_t> WholeOf(const Value& node, absl::string_view key,
                                 absl::string_view allowed) const;

  const Value& root_;
  std::string prefix_;
  Issues* issues_;
};

}  // namespace weft
