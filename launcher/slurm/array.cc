#include "launcher/slurm/array.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"

namespace weft {
namespace {

// Commas in brackets, braces and quotes are the value's own.
std::vector<std::string> SplitValues(absl::string_view text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  return values;
}

absl::Status Wrong(absl::string_view word, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--array ", word, ": ", why));
}

// One job has one size, and one folder that its tasks' lie in.
absl::Status CheckKey(absl::string_view word, absl::string_view key) {
  if (absl::StartsWith(key, "cluster.")) {
    return Wrong(word,
                 absl::StrCat(key, " would make another job of each task; submit them apart"));
  }
  if (key == "job.name" || key == "job.output_dir") {
    return Wrong(word, "each task has a name and a folder already; leave it out");
  }
  return absl::OkStatus();
}

bool IsJobNumber(absl::string_view text) {
  const size_t bar = text.find('_');
  const auto is_number = [](absl::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c));
    });
  };
  if (bar == absl::string_view::npos) return is_number(text);
  return is_number(text.substr(0, bar)) && is_number(text.substr(bar + 1));
}

}  // namespace

absl::StatusOr<std::vector<Sets>> ArrayTasks(const std::vector<std::string>& words) {
  std::vector<Sets> tasks(1);
  std::vector<std::string> keys;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (equals == std::string::npos || key.empty()) {
      return Wrong(word, "is no list of values; write KEY=a,b,c");
    }
    RETURN_IF_ERROR(CheckKey(word, key));
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
      return Wrong(word, absl::StrCat(key, " is listed already; write all its values in one list"));
    }
    keys.push_back(key);
    const std::vector<std::string> values = SplitValues(word.substr(equals + 1));
    std::vector<Sets> more;
    for (const Sets& task : tasks) {
      for (const std::string& value : values) {
        if (value.empty()) return Wrong(word, "has an empty value; write KEY=a,b,c");
        more.push_back(task);
        more.back().push_back(absl::StrCat(key, "=", value));
      }
    }
    tasks = std::move(more);
    if (tasks.size() > kMostTasks) {
      return Wrong(word, absl::StrCat("that makes ", tasks.size(), " runs; submit at most ",
                                      kMostTasks, " at once"));
    }
  }
  return tasks;
}

Sets TaskSets(const Sets& sets, absl::string_view output_dir, absl::string_view name, int task) {
  Sets own = sets;
  own.push_back(absl::StrCat("job.output_dir=", output_dir, "/", name));
  own.push_back(absl::StrCat("job.name=", name, "-", task));
  return own;
}

std::string TaskFolder(absl::string_view array, int task) {
  return absl::StrCat(array, "/", array.substr(array.rfind('/') + 1), "-", task);
}

absl::StatusOr<std::string> AfterText(const std::vector<std::string>& jobs,
                                      absl::string_view other) {
  if (jobs.empty()) return std::string(other);
  for (const std::string& job : jobs) {
    if (IsJobNumber(job)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--after: ", job, " is no job of Slurm's; use its number: 12, or 12_3"));
  }
  return absl::StrCat("afterok:", absl::StrJoin(jobs, ":"), other.empty() ? "" : ",", other);
}

}  // namespace weft
