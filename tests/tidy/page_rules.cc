#include "tests/tidy/page_rules.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace weft {
namespace {

constexpr int kMaxPageWidth = 120;
constexpr int kMaxParagraphLines = 6;

bool IsFence(const std::string& line) {
  return line.rfind("```", 0) == 0;
}

// Returns the page with the lines of its code, between fences, left empty.
std::vector<std::string> LinesWithoutCode(const std::string& text) {
  std::vector<std::string> lines = Lines(text);
  bool in_code = false;
  for (std::string& line : lines) {
    const bool is_fence = IsFence(line);
    if (is_fence || in_code) line.clear();
    in_code = in_code != is_fence;
  }
  return lines;
}

bool IsProse(const std::string& line) {
  const size_t first = line.find_first_not_of(' ');
  return first < 4 && line[first] != '#' && line[first] != '|';  // npos is not below 4
}

// Returns a heading's anchor as GitHub makes it: "ZeRO's places" -> "zeros-places".
std::string AnchorOf(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '-' || c == '_') {
      anchor += static_cast<char>(std::tolower(byte));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

std::set<std::string> AnchorsOf(const SourceFile& page) {
  static const auto* heading = new std::regex(R"(^#+ +(.*)$)");
  std::set<std::string> anchors;
  for (const std::string& line : LinesWithoutCode(page.text)) {
    std::smatch match;
    if (std::regex_search(line, match, *heading)) anchors.insert(AnchorOf(match[1]));
  }
  return anchors;
}

// "a.{h,cc}" -> {"a.h", "a.cc"}
std::vector<std::string> Alternatives(const std::string& path) {
  const size_t open = path.find('{');
  const size_t close = path.find('}');
  if (open == std::string::npos || close == std::string::npos) return {path};
  std::vector<std::string> paths;
  std::istringstream inside(path.substr(open + 1, close - open - 1));
  for (std::string each; std::getline(inside, each, ',');) {
    paths.push_back(path.substr(0, open) + each + path.substr(close + 1));
  }
  return paths;
}

}  // namespace

Violations PageViolations(const SourceFile& page) {
  static const auto* item = new std::regex(R"(^ *(-|\d+\.) )");
  Violations violations;
  const auto is_first_byte = [](char c) { return (c & 0xC0) != 0x80; };  // of a UTF-8 character
  int number = 0;
  for (const std::string& line : Lines(page.text)) {
    ++number;
    if (std::count_if(line.begin(), line.end(), is_first_byte) <= kMaxPageWidth) continue;
    violations.push_back(At(page, number) + ": longer than " + std::to_string(kMaxPageWidth) +
                         " characters");
  }
  int lines = 0;  // of the paragraph so far
  number = 0;
  for (const std::string& line : LinesWithoutCode(page.text)) {
    ++number;
    lines = !IsProse(line) ? 0 : std::regex_search(line, *item) ? 1 : lines + 1;
    if (lines != kMaxParagraphLines + 1) continue;
    violations.push_back(At(page, number) + ": a paragraph of more than " +
                         std::to_string(kMaxParagraphLines) + " lines; give each fact its bullet");
  }
  return violations;
}

Violations LinkViolations(const std::vector<SourceFile>& pages,
                          const std::function<bool(const std::string& path)>& exists) {
  static const auto* link = new std::regex(R"(\]\(([^)\s]+)\))");
  std::map<std::string, std::set<std::string>> anchors;  // by the page's path
  for (const SourceFile& page : pages) anchors[page.path] = AnchorsOf(page);
  Violations violations;
  for (const SourceFile& page : pages) {
    int number = 0;
    for (const std::string& line : LinesWithoutCode(page.text)) {
      ++number;
      for (std::sregex_iterator match(line.begin(), line.end(), *link), end; match != end;
           ++match) {
        const std::string target = (*match)[1];
        if (target.find("://") != std::string::npos) continue;
        const size_t hash = std::min(target.find('#'), target.size());
        const std::filesystem::path folder = std::filesystem::path(page.path).parent_path();
        const std::string path =
            hash == 0 ? page.path : (folder / target.substr(0, hash)).lexically_normal().string();
        if (!exists(path)) {
          violations.push_back(At(page, number) + ": links to " + path + ", which is not there");
        } else if (hash < target.size() && anchors[path].count(target.substr(hash + 1)) == 0) {
          violations.push_back(At(page, number) + ": links to " + target +
                               ", but no heading there has that anchor");
        }
      }
    }
  }
  return violations;
}

Violations PathViolations(const SourceFile& page,
                          const std::function<bool(const std::string& path)>& exists) {
  static const auto* named = new std::regex(
      "`((?:bench|checkpoint|cmake|configs|coordinator|data|deploy|docs|launcher|plan|process|"
      "proto|tests|text|worker)/"
      "[\\w/.,{}-]*\\.(?:h|cc|cu|cuh|c|py|sh|proto|md|yaml|\\{[a-z,]+\\}))`");
  Violations violations;
  int number = 0;
  for (const std::string& line : LinesWithoutCode(page.text)) {
    ++number;
    for (std::sregex_iterator match(line.begin(), line.end(), *named), end; match != end; ++match) {
      for (const std::string& path : Alternatives((*match)[1])) {
        if (exists(path)) continue;
        violations.push_back(At(page, number) + ": names " + path + ", which is not there");
      }
    }
  }
  return violations;
}

}  // namespace weft
