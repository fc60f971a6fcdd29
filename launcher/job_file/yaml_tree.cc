#include "launcher/job_file/yaml_tree.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <set>

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
constexpr size_t kMaxShownBytes = 60;

// A key or a value as messages name it: a long one is cut between two characters.
std::string Shown(absl::string_view text) {
  if (text.size() <= kMaxShownBytes) return absl::StrCat(text);
  const absl::string_view head = text.substr(0, kMaxShownBytes - 3);
  return absl::StrCat(head.substr(0, head.size() - static_cast<size_t>(UnfinishedBytes(head))),
                      "...");
}

class Converter {
 public:
  Converter(absl::string_view source, int order, Issues* issues)
      : source_(source), order_(order), issues_(issues) {}

  Place PlaceOf(const YAML::Mark& mark) const { return {source_, order_, mark.line + 1}; }

  YamlNode Convert(const YAML::Node& node, const std::string& key, int depth) {
    YamlNode result;
    result.place = PlaceOf(node.Mark());
    if (++nodes_ > kMaxNodes || depth > kMaxDepth || bytes_ > kMaxBytes) {
      if (!too_large_) issues_->Add(result.place, "", "nested too deep or too large to be a spec");
      too_large_ = true;
      return result;
    }
    if (node.IsScalar()) {
      result.kind = YamlNode::Kind::kScalar;
      result.scalar = node.Scalar();
      result.quoted = node.Tag() == "!";
      bytes_ += result.scalar.size();
      CheckCharacters(result.place, key, result.scalar);
    } else if (node.IsSequence()) {
      result.kind = YamlNode::Kind::kList;
      for (const YAML::Node& item : node) {
        const std::string item_key = absl::StrCat(key, "[", result.items.size(), "]");
        result.items.push_back(Convert(item, item_key, depth + 1));
        if (too_large_) break;
      }
    } else if (node.IsMap()) {
      result.kind = YamlNode::Kind::kMap;
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
                    int depth, std::map<std::string, int>* lines, YamlNode* map) {
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
    const std::string path = key.empty() ? name.Scalar() : absl::StrCat(key, ".", name.Scalar());
    YamlNode child = Convert(value, path, depth + 1);
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

}  // namespace

std::string Place::Text() const {
  return line > 0 ? absl::StrCat(source, ":", line) : source;
}

std::string Issue::Text() const {
  if (key.empty()) return absl::StrCat(place.Text(), ": ", message);
  return absl::StrCat(place.Text(), ": ", Shown(key), ": ", message);
}

void Issues::Add(const Place& place, absl::string_view key, absl::string_view message) {
  issues_.push_back({place, absl::StrCat(key), absl::StrCat(message)});
}

std::string Issues::Text() const {
  std::vector<Issue> sorted = issues_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Issue& a, const Issue& b) {
    if (a.place.order != b.place.order) return a.place.order < b.place.order;
    if (a.place.source != b.place.source) return false;
    return a.place.line < b.place.line;
  });
  std::vector<std::string> lines;
  std::set<std::string> seen;
  for (const Issue& issue : sorted) {
    std::string line = issue.Text();
    if (seen.insert(line).second) lines.push_back(std::move(line));
  }
  if (lines.size() > kMostShown) {
    const size_t more = lines.size() - kMostShown;
    lines.resize(kMostShown);
    lines.push_back(absl::StrCat("and ", more, " more like these; mend the first ones first"));
  }
  return absl::StrJoin(lines, "\n");
}

bool YamlNode::is_auto() const {
  return is_scalar() && absl::EqualsIgnoreCase(scalar, "auto");
}

YamlNode YamlNode::Map(const Place& place) {
  YamlNode node;
  node.kind = Kind::kMap;
  node.place = place;
  return node;
}

YamlNode YamlNode::Scalar(absl::string_view text, const Place& place) {
  YamlNode node;
  node.kind = Kind::kScalar;
  node.scalar.assign(text.data(), text.size());
  node.place = place;
  return node;
}

const YamlNode* YamlNode::Find(absl::string_view key) const {
  for (const auto& [name, node] : entries) {
    if (name == key) return &node;
  }
  return nullptr;
}

YamlNode* YamlNode::Find(absl::string_view key) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->Find(key));
}

const YamlNode* YamlNode::FindPath(absl::string_view dotted) const {
  const YamlNode* node = this;
  for (absl::string_view part : absl::StrSplit(dotted, '.')) {
    node = node->Find(part);
    if (node == nullptr) return nullptr;
  }
  return node;
}

void YamlNode::Remove(absl::string_view key) {
  std::erase_if(entries, [&](const auto& entry) { return entry.name == key; });
}

std::string YamlNode::Found() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar: {
      const std::string shown = Shown(scalar);
      return quoted ? absl::StrCat("the text \"", shown, "\"") : shown;
    }
    case Kind::kList:
      return absl::StrCat("a list of ", items.size());
    case Kind::kMap:
      return "a map";
  }
  return "";
}

std::optional<YamlNode> ParseYaml(const std::string& text, absl::string_view source, int order,
                                  Issues* issues) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      issues->Add({absl::StrCat(source), order, documents[1].Mark().line + 1}, "",
                  "a second document starts here; a spec is one document, remove the ---");
      return std::nullopt;
    }
    if (documents.empty()) {
      YamlNode nothing;
      nothing.place = {absl::StrCat(source), order, 1};
      return nothing;
    }
    Converter converter(source, order, issues);
    YamlNode tree = converter.Convert(documents[0], "", 0);
    if (converter.too_large()) return std::nullopt;
    return tree;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    issues->Add({absl::StrCat(source), order, line}, "",
                absl::StrCat("not valid YAML: ", error.msg));
    return std::nullopt;
  }
}

std::optional<YamlNode> ParseYamlValue(const std::string& text, const Place& place,
                                       Issues* issues) {
  try {
    YamlNode node = Converter(place.source, place.order, issues).Convert(YAML::Load(text), "", 0);
    // Everything in it stands on the command line.
    std::vector<YamlNode*> todo = {&node};
    while (!todo.empty()) {
      YamlNode* next = todo.back();
      todo.pop_back();
      next->place = place;
      for (YamlNode& item : next->items) todo.push_back(&item);
      for (auto& entry : next->entries) todo.push_back(&entry.node);
    }
    return node;
  } catch (const YAML::Exception& error) {
    issues->Add(place, "", absl::StrCat("not valid YAML: ", error.msg));
    return std::nullopt;
  }
}

}  // namespace weft
