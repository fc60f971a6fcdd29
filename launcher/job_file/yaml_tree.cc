#include "launcher/job_file/yaml_tree.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "data/unicode.h"

namespace weft {
namespace {

// Anchors may repeat a subtree; these bounds keep a hostile file from growing without end.
constexpr int kMaxDepth = 32;
constexpr int kMaxNodes = 20000;
constexpr size_t kMaxBytes = size_t{4} << 20;  // of all values
constexpr size_t kMaxKeyBytes = 256;

class Converter {
 public:
  Converter(absl::string_view source, int order, Issues* issues)
      : source_(source), order_(order), issues_(issues) {}

  Place PlaceOf(const YAML::Mark& mark) const { return {source_, order_, mark.line + 1}; }

  Value Convert(const YAML::Node& node, const std::string& key, int depth) {
    Value result;
    result.place = PlaceOf(node.Mark());
    if (++nodes_ > kMaxNodes || depth > kMaxDepth || bytes_ > kMaxBytes) {
      if (!too_large_) issues_->Add(result.place, "", "nested too deep or too large to be a spec");
      too_large_ = true;
      return result;
    }
    if (node.IsScalar()) {
      result.kind = Value::Kind::kScalar;
      result.scalar = node.Scalar();
      result.quoted = node.Tag() == "!";
      bytes_ += result.scalar.size();
      CheckCharacters(result.place, key, result.scalar);
    } else if (node.IsSequence()) {
      result.kind = Value::Kind::kList;
      for (const YAML::Node& item : node) {
        const std::string item_key = absl::StrCat(key, "[", result.items.size(), "]");
        result.items.push_back(Convert(item, item_key, depth + 1));
        if (too_large_) break;
      }
    } else if (node.IsMap()) {
      result.kind = Value::Kind::kMap;
      std::map<std::string, int> lines;  // of the keys so far
      for (const auto& entry : node) {
        ConvertEntry(entry.first, entry.second, key, depth, &lines, &result);
        if (too_large_) break;
      }
    }
    return result;
  }

  bool too_large() const { return too_large_; }

 private:
  // Every text that is read is shown sooner or later, so it has to be printable.
  void CheckCharacters(const Place& place, const std::string& key, const std::string& text) {
    if (Printable(text) == text) return;
    issues_->Add(place, key,
                 absl::StrCat("found ", Shown(text), ", which holds control characters or bytes ",
                              "that are not UTF-8; remove them"));
  }

  void ConvertEntry(const YAML::Node& name, const YAML::Node& value, const std::string& key,
                    int depth, std::map<std::string, int>* lines, Value* map) {
    const Place place = PlaceOf(name.Mark());
    if (!name.IsScalar()) {
      issues_->Add(place, key, "a key has to be a plain word; found a list or a map as a key");
      return;
    }
    if (name.Scalar().size() > kMaxKeyBytes) {
      issues_->Add(place, name.Scalar(), "unknown key; none is that long");
      return;
    }
    CheckCharacters(place, key, name.Scalar());
    if (name.Scalar() == "<<" && name.Tag() != "!") {
      issues_->Add(place, key.empty() ? "<<" : absl::StrCat(key, ".<<"),
                   "merge keys are not supported (YAML 1.2 has none); write the keys out here");
      return;
    }
    const std::string path = key.empty() ? name.Scalar() : absl::StrCat(key, ".", name.Scalar());
    Value child = Convert(value, path, depth + 1);
    child.place = place;
    const auto [first, is_new] = lines->emplace(name.Scalar(), place.line);
    if (!is_new) {
      issues_->Add(place, path,
                   absl::StrCat("duplicate key; it stands on line ", first->second,
                                " already; keep one of the two"));
      return;
    }
    map->entries.push_back({name.Scalar(), std::move(child)});
  }

  std::string source_;
  int order_;
  Issues* issues_;
  int nodes_ = 0;
  size_t bytes_ = 0;
  bool too_large_ = false;
};

// The place of the first tab that indents a line, up to line `last` (from 0); nullopt: none does.
std::optional<std::pair<int, int>> IndentingTab(const std::string& text, int last) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (number > last) break;
    const size_t first = line.find_first_not_of(' ');
    if (first != absl::string_view::npos && line[first] == '\t') {
      return std::pair(number, static_cast<int>(first));
    }
    ++number;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> ParseYaml(const std::string& text, absl::string_view source, int order,
                               Issues* issues) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      issues->Add({absl::StrCat(source), order, documents[1].Mark().line + 1}, "",
                  "a second document starts here; a spec is one document, remove the ---");
      return std::nullopt;
    }
    if (documents.empty()) {
      Value nothing;
      nothing.place = {absl::StrCat(source), order, 1};
      return nothing;
    }
    Converter converter(source, order, issues);
    Value tree = converter.Convert(documents[0], "", 0);
    if (converter.too_large()) return std::nullopt;
    return tree;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    if (const auto tab = IndentingTab(text, line)) {
      issues->Add(
          {absl::StrCat(source), order, tab->first + 1}, "",
          absl::StrCat("not valid YAML: a tab indents line ", tab->first + 1, ", at column ",
                       tab->second + 1, "; YAML is indented by spaces alone"));
      return std::nullopt;
    }
    issues->Add({absl::StrCat(source), order, line}, "",
                absl::StrCat("not valid YAML: ", error.msg));
    return std::nullopt;
  }
}

std::optional<Value> ParseYamlValue(const std::string& text, const Place& place, Issues* issues) {
  try {
    Value node = Converter(place.source, place.order, issues).Convert(YAML::Load(text), "", 0);
    // Everything in it stands on the command line.
    std::vector<Value*> todo = {&node};
    while (!todo.empty()) {
      Value* next = todo.back();
      todo.pop_back();
      next->place = place;
      for (Value& item : next->items) todo.push_back(&item);
      for (auto& entry : next->entries) todo.push_back(&entry.node);
    }
    return node;
  } catch (const YAML::Exception& error) {
    issues->Add(place, "", absl::StrCat("not valid YAML: ", error.msg));
    return std::nullopt;
  }
}

}  // namespace weft
