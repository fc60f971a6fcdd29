#include "plan/keys/layout_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/errors.h"
#include "plan/keys/job_keys.h"
#include "plan/keys/key_field.h"
#include "plan/spec/layout_properties.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

// "62x2": 62 times 2. Anything else is an item as it stands.
void AddItems(absl::string_view text, Value& list) {
  constexpr int64_t kMostStages = 1 << 20;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('x', 1));
  const std::optional<int64_t> times = ParseWholeNumber(parts.first);
  const bool is_run = !parts.second.empty() && times && *times >= 1 && *times <= kMostStages;
  list.items.insert(list.items.end(), is_run ? static_cast<size_t>(*times) : 1,
                    Value::Scalar(is_run ? parts.second : text));
}

// The value as a job file would hold it.
Value ValueOf(absl::string_view text, const FieldForm& form) {
  if (form.kind != FieldForm::Kind::kList || text == form.other_word) return Value::Scalar(text);
  Value list = Value::List({});
  for (const absl::string_view item : absl::StrSplit(text, absl::ByAnyChar("/,"))) {
    AddItems(item, list);
  }
  return list;
}

absl::Status Wrong(absl::string_view source, absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", name, ": ", what));
}

std::string ListForm(const FieldForm& form) {
  if (!form.words.empty()) return absl::StrCat(Alternatives(form.words), ", one a stage: a/b");
  return absl::StrCat(form.other_word, ", or numbers, one a stage: 10/11/11, 62x2 for 62 times 2");
}

absl::Status ReadField(absl::string_view source, absl::string_view name, absl::string_view key,
                       absl::string_view text, const KeyField& field) {
  Value value = ValueOf(text, FormOf(field));
  value.place.source = absl::StrCat(source);
  Value tree = Value::Map();
  tree.place = value.place;
  tree.entries.push_back({std::string(name), std::move(value)});
  Issues issues;
  ReadKey(ValueReader(tree, "", &issues), name, field, nullptr);
  if (!issues.empty()) {
    const FieldForm form = FormOf(field);
    if (form.kind != FieldForm::Kind::kList) return absl::InvalidArgumentError(issues.Text());
    return Wrong(source, name, absl::StrCat("found ", text, "; expected ", ListForm(form)));
  }
  const JobKey* const row = FindJobKey(key);
  const std::vector<std::string> beyond = OutOfLimits(field, row->limits);
  if (beyond.empty()) return absl::OkStatus();
  return Wrong(source, name,
               absl::StrCat(beyond.front(), " is out of range; use ", row->limits.Text()));
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  EachLayoutProperty([&](const auto& row) { names.emplace_back(row.name); });
  return names;
}

// "tp=4,pp=2"; as plans are printed, with spaces between and commas inside: "tp=4
// layers_per_stage=3,1".
std::vector<absl::string_view> PartsOf(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (absl::StrContains(text, ", ") || !absl::StrContains(text, ' ')) {
    return absl::StrSplit(text, ',', absl::SkipWhitespace());
  }
  return absl::StrSplit(text, absl::ByAnyChar(" \n\t"), absl::SkipWhitespace());
}

}  // namespace

absl::Status ReadProperty(absl::string_view source, absl::string_view name, absl::string_view value,
                          LayoutSpec& spec) {
  // "recompute=full/none" is one mode a stage.
  if (name == "recompute" && value.find_first_of("/,") != absl::string_view::npos) {
    name = "recompute_per_stage";
  }
  bool is_known = false;
  absl::Status status;
  EachLayoutProperty([&](const auto& row) {
    if (name != row.name && name != row.key) return;
    is_known = true;
    status = ReadField(source, row.name, row.key, value, &(spec.*row.asked));
  });
  if (is_known) return status;
  const std::vector<std::string> names = Names();
  const std::optional<std::string> nearest = Nearest(name, names);
  return Wrong(source, name,
               nearest ? absl::StrCat("unknown; did you mean ", *nearest, "?")
                       : absl::StrCat("unknown; known are ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<LayoutSpec> ParseLayoutSpec(absl::string_view flag, absl::string_view text) {
  LayoutSpec spec;
  std::vector<std::string> seen;
  for (const absl::string_view part : PartsOf(text)) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (!absl::StrContains(part, '=')) {
      return Wrong(flag, part, "has no value; use name=value, e.g. tp=4,pp=2");
    }
    std::string name(absl::StripAsciiWhitespace(pair.first));
    for (const std::string& before : seen) {
      if (before == name) return Wrong(flag, name, "given twice; keep one");
    }
    RETURN_IF_ERROR(ReadProperty(flag, name, absl::StripAsciiWhitespace(pair.second), spec));
    seen.push_back(std::move(name));
  }
  if (seen.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": is empty; use e.g. tp=4,pp=2"));
  }
  return spec;
}

absl::StatusOr<Layout> LayoutFrom(const LayoutSpec& spec, const JobSpec& job) {
  Layout layout = LayoutOf(spec);
  if (!spec.micro_batch_size) {
    layout.micro_batch_size = job.layout.micro_batch_size.value_or(layout.micro_batch_size);
  }
  const int64_t at_once = std::max<int64_t>(1, layout.dp * layout.micro_batch_size);
  const int64_t global = job.training.global_batch_size;
  layout.gradient_accumulation_steps = spec.gradient_accumulation_steps.value_or(global / at_once);
  if (layout.gradient_accumulation_steps >= 1 &&
      at_once * layout.gradient_accumulation_steps == global) {
    return layout;
  }
  const std::string steps =
      spec.gradient_accumulation_steps
          ? absl::StrCat(" x gradient_accumulation_steps ", layout.gradient_accumulation_steps)
          : "";
  return absl::InvalidArgumentError(
      absl::StrCat("--layout: dp ", layout.dp, " x micro_batch_size ", layout.micro_batch_size,
                   steps, " does not make training.global_batch_size ", global,
                   "; change one of them, or --set training.global_batch_size"));
}

Value LayoutTree(const Layout& layout) {
  LayoutSpec spec;
  Value tree = Value::Map();
  EachLayoutProperty([&](const auto& row) {
    spec.*row.asked = layout.*row.value;
    tree.entries.push_back({std::string(row.name), PrintField(&(spec.*row.asked))});
  });
  return tree;
}

}  // namespace weft
