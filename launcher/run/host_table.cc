#include "launcher/run/host_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

constexpr char kDevices[] = "devices";

constexpr size_t kColumns = 80;
constexpr size_t kLongestName = 16;  // of a host, in the table

// The heads of the columns, in their order; names of other checks follow as they are.
struct Head {
  const char* check;
  const char* text;
};
constexpr Head kHeads[] = {
    {"ssh", "ssh"},           {"devices", "device"},    {"memory", "memory"},
    {"shared memory", "shm"}, {"run folder", "folder"}, {"checkpoints", "ckpt"},
    {"data", "data"},         {"clock", "clock"},       {"network", "net"},
    {"product", "speed"},     {"pairs", "pairs"}};

std::string HeadOf(const std::string& check) {
  for (const Head& head : kHeads) {
    if (check == head.check) return head.text;
  }
  return check;
}

const char* WordOf(v1::HostChecked::Result::Severity severity) {
  if (severity == v1::HostChecked::Result::BROKEN) return "BAD";
  return severity == v1::HostChecked::Result::NOTE ? "note" : "ok";
}

const char* HealthOf(v1::HostChecked::Result::Severity severity) {
  if (severity == v1::HostChecked::Result::BROKEN) return "broken";
  return severity == v1::HostChecked::Result::NOTE ? "note" : "ok";
}

// The words of `text`, in lines that begin with so many blanks.
std::string Wrapped(const std::string& text, size_t indent) {
  std::string lines;
  std::string line(indent, ' ');
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (line.size() > indent && line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&lines, line, "\n");
      line.assign(indent, ' ');
    }
    absl::StrAppend(&line, line.size() > indent ? " " : "", word);
  }
  return absl::StrCat(lines, line, "\n");
}

const v1::HostChecked::Result* FindResult(const std::vector<v1::HostChecked::Result>& results,
                                          const std::string& name) {
  for (const v1::HostChecked::Result& result : results) {
    if (result.name() == name) return &result;
  }
  return nullptr;
}

}  // namespace

HostTable::HostTable(std::vector<std::string> hosts) {
  for (std::string& host : hosts) {
    rows_.emplace_back();
    rows_.back().host = std::move(host);
  }
}

HostTable::Row* HostTable::Find(const std::string& host) {
  const auto row =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& each) { return each.host == host; });
  if (row != rows_.end()) return &*row;
  rows_.emplace_back();
  rows_.back().host = host;
  return &rows_.back();
}

void HostTable::Take(const v1::HostChecked& checked) {
  Row& row = *Find(checked.host());
  row.heard = true;
  if (checked.product_flops_per_s() > 0) row.product_flops_per_s = checked.product_flops_per_s();
  for (const v1::HostChecked::Result& result : checked.results()) {
    std::erase_if(row.results, [&](const auto& each) { return each.name() == result.name(); });
    row.results.push_back(result);
  }
}

void HostTable::Fail(const std::string& host, const std::string& name, const std::string& why,
                     const std::string& cure) {
  v1::HostChecked checked;
  checked.set_host(host);
  v1::HostChecked::Result& result = *checked.add_results();
  result.set_name(name);
  result.set_severity(v1::HostChecked::Result::BROKEN);
  result.set_found(why);
  result.set_cure(cure);
  Take(checked);
}

bool HostTable::complete() const {
  return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.heard; });
}

bool HostTable::IsSound(const Row& row) {
  return row.heard && std::none_of(row.results.begin(), row.results.end(), [](const auto& each) {
           return each.severity() == v1::HostChecked::Result::BROKEN;
         });
}

bool HostTable::sound() const {
  return std::all_of(rows_.begin(), rows_.end(), &IsSound);
}

std::vector<std::string> HostTable::Columns() const {
  std::vector<std::string> columns;
  const auto add = [&](const std::string& name) {
    const bool is_there = std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
      return FindResult(row.results, name) != nullptr;
    });
    const bool is_new = std::find(columns.begin(), columns.end(), name) == columns.end();
    if (is_there && is_new) columns.push_back(name);
  };
  for (const Head& head : kHeads) add(head.check);
  for (const Row& row : rows_) {
    for (const v1::HostChecked::Result& result : row.results) add(result.name());
  }
  return columns;
}

std::string HostTable::Text() const {
  const std::vector<std::string> columns = Columns();
  size_t width = 4;
  for (const Row& row : rows_) width = std::max(width, std::min(row.host.size(), kLongestName));
  const auto name_of = [&](const std::string& host) {
    return absl::StrFormat("%-*s", static_cast<int>(width), host.substr(0, kLongestName));
  };
  std::string text = name_of("host");
  for (const std::string& column : columns) absl::StrAppend(&text, " ", HeadOf(column));
  absl::StrAppend(&text, "\n");
  std::string devices;  // what hosts have, for people to compare
  std::string details;
  for (const Row& row : rows_) {
    absl::StrAppend(&text, name_of(row.host));
    for (const std::string& column : columns) {
      const v1::HostChecked::Result* const result = FindResult(row.results, column);
      const std::string word = result == nullptr ? "-" : WordOf(result->severity());
      absl::StrAppend(&text,
                      absl::StrFormat(" %-*s", static_cast<int>(HeadOf(column).size()), word));
      const bool is_well = result == nullptr || result->severity() == v1::HostChecked::Result::WELL;
      if (is_well && result != nullptr && column == kDevices) {
        absl::StrAppend(&devices, Wrapped(absl::StrCat(row.host, ": ", result->found()), 0));
      }
      if (is_well) continue;
      std::string found = absl::StrCat(row.host, ": ", column, ": ", result->found());
      if (!result->allowed().empty()) absl::StrAppend(&found, ", but ", result->allowed());
      absl::StrAppend(&details, Wrapped(found, 0));
      if (!result->cure().empty()) absl::StrAppend(&details, Wrapped(result->cure(), 4));
    }
    if (!row.heard) absl::StrAppend(&text, "  not heard");
    while (text.back() == ' ') text.pop_back();
    absl::StrAppend(&text, "\n");
  }
  return text + devices + details;
}

std::string HostTable::Json() const {
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json checks = nlohmann::ordered_json::array();
    for (const v1::HostChecked::Result& result : row.results) {
      checks.push_back({{"name", result.name()},
                        {"health", HealthOf(result.severity())},
                        {"found", result.found()},
                        {"allowed", result.allowed()},
                        {"cure", result.cure()}});
    }
    hosts.push_back({{"host", row.host},
                     {"sound", IsSound(row)},
                     {"product_flops_per_s", row.product_flops_per_s},
                     {"checks", checks}});
  }
  return hosts.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace weft
