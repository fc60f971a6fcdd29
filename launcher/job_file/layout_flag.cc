#include "launcher/job_file/layout_flag.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/errors.h"
#include "plan/keys/value.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

const std::vector<std::string>& Names() {
  static const auto* const names = new std::vector<std::string>{"dp",
                                                                "tp",
                                                                "pp",
                                                                "cp",
                                                                "ep",
                                                                "zero_stage",
                                                                "zero_hpz_partition_size",
                                                                "virtual_stages",
                                                                "micro_batch_size",
                                                                "gradient_accumulation_steps",
                                                                "head_chunk_tokens",
                                                                "head_chunks",
                                                                "sequence_parallel",
                                                                "pp_schedule",
                                                                "recompute",
                                                                "offload",
                                                                "layers_per_stage"};
  return *names;
}

// One part, "tp=4": `name` and `value`, with what to say when the value makes no sense.
class Part {
 public:
  Part(absl::string_view flag, absl::string_view name, absl::string_view value)
      : flag_(flag), name_(name), value_(value) {}

  absl::Status Wrong(absl::string_view allowed) const {
    return absl::InvalidArgumentError(
        absl::StrCat(flag_, ": ", name_, ": found ", value_, "; expected ", allowed));
  }
  absl::Status Read(int64_t least, std::optional<int64_t>& field) const {
    const std::optional<int64_t> number = ParseWholeNumber(value_);
    if (!number || *number < least || *number > std::numeric_limits<int>::max()) {
      return Wrong(absl::StrCat("a whole number, ", least, " or more"));
    }
    field = *number;
    return absl::OkStatus();
  }
  absl::Status Read(int least, std::optional<int>& field) const {
    std::optional<int64_t> number;
    RETURN_IF_ERROR(Read(int64_t{least}, number));
    field = static_cast<int>(*number);
    return absl::OkStatus();
  }
  absl::Status Read(absl::string_view yes, absl::string_view no, std::optional<bool>& field) const {
    if (value_ != yes && value_ != no) return Wrong(absl::StrCat(yes, " or ", no));
    field = value_ == yes;
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status Read(absl::StatusOr<T> parsed, absl::string_view allowed,
                    std::optional<T>& field) const {
    if (!parsed.ok()) return Wrong(allowed);
    field = *parsed;
    return absl::OkStatus();
  }
  // "full", or one mode a stage: "full/none".
  absl::Status Read(std::optional<Recompute>& field, std::vector<Recompute>& by_stage) const {
    for (const absl::string_view item : absl::StrSplit(value_, absl::ByAnyChar("/,"))) {
      const absl::StatusOr<Recompute> mode = ParseRecompute(item);
      if (!mode.ok()) return Wrong("none, selective or full, or one of them a stage: full/none");
      by_stage.push_back(*mode);
    }
    if (by_stage.size() == 1) {
      field = by_stage.front();
      by_stage.clear();
    }
    return absl::OkStatus();
  }
  // "even", "10/11/11", "1/62x2/1"; as plans are printed with commas.
  absl::Status Read(std::optional<std::vector<int64_t>>& field) const {
    constexpr int64_t kMostStages = 1 << 20;
    field.emplace();
    if (value_ == "even") return absl::OkStatus();
    for (const absl::string_view item : absl::StrSplit(value_, absl::ByAnyChar("/,"))) {
      const size_t times = item.find('x');
      const bool alone = times == absl::string_view::npos;
      const std::optional<int64_t> count = alone ? 1 : ParseWholeNumber(item.substr(0, times));
      const std::optional<int64_t> number = ParseWholeNumber(alone ? item : item.substr(times + 1));
      if (!count || *count < 1 || *count > kMostStages || !number || *number < 1) {
        return Wrong("even, or one number a stage: 10/11/11; 62x2: 62 stages of 2");
      }
      field->insert(field->end(), static_cast<size_t>(*count), *number);
    }
    return absl::OkStatus();
  }

 private:
  absl::string_view flag_, name_, value_;
};

absl::Status ReadPart(absl::string_view flag, absl::string_view name, absl::string_view value,
                      Constraints& fixed) {
  const Part part(flag, name, value);
  if (name == "dp") return part.Read(1, fixed.dp);
  if (name == "tp") return part.Read(1, fixed.tp);
  if (name == "pp") return part.Read(1, fixed.pp);
  if (name == "cp") return part.Read(1, fixed.cp);
  if (name == "ep") return part.Read(1, fixed.ep);
  if (name == "zero_stage") return part.Read(0, fixed.zero_stage);
  if (name == "zero_hpz_partition_size") {
    RETURN_IF_ERROR(part.Read(0, fixed.zero_group));
    if (fixed.zero_group == 1) fixed.zero_group = 0;  // DeepSpeed's word for "off"
    return absl::OkStatus();
  }
  if (name == "virtual_stages") return part.Read(1, fixed.virtual_stages);
  if (name == "micro_batch_size") return part.Read(int64_t{1}, fixed.micro_batch_size);
  if (name == "gradient_accumulation_steps") return part.Read(int64_t{1}, fixed.num_microbatches);
  if (name == "head_chunk_tokens") return part.Read(int64_t{0}, fixed.head_chunk_tokens);
  if (name == "head_chunks") return part.Read(1, fixed.head_chunks);
  if (name == "sequence_parallel") return part.Read("true", "false", fixed.sequence_parallel);
  if (name == "offload") return part.Read("cpu", "none", fixed.offload_optimizer);
  if (name == "pp_schedule") {
    return part.Read(ParseSchedule(value), "1f1b, gpipe, interleaved_1f1b or zb_h1",
                     fixed.schedule);
  }
  if (name == "recompute") return part.Read(fixed.recompute, fixed.stage_recompute);
  if (name == "layers_per_stage") return part.Read(fixed.stage_blocks);
  const std::optional<std::string> nearest = Nearest(name, Names());
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", name, ": unknown; ",
                   nearest ? absl::StrCat("did you mean ", *nearest, "?")
                           : absl::StrCat("known are ", absl::StrJoin(Names(), ", "))));
}

}  // namespace

namespace {

// "tp=4,pp=2"; as plans are printed, with spaces between and commas inside: "tp=4 layers=3,1".
std::vector<absl::string_view> PartsOf(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (absl::StrContains(text, ", ") || !absl::StrContains(text, ' ')) {
    return absl::StrSplit(text, ',', absl::SkipWhitespace());
  }
  return absl::StrSplit(text, absl::ByAnyChar(" \n\t"), absl::SkipWhitespace());
}

struct Named {
  std::string name;
  std::string value;
};

// A part under the name of its key; plans are printed with shorter ones, and with values alone.
Named AsNamed(absl::string_view part) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  const std::string name(absl::StripAsciiWhitespace(pair.first));
  const std::string value(absl::StripAsciiWhitespace(pair.second));
  if (name == "micro_batch") return {"micro_batch_size", value};
  if (name == "microbatches") return {"gradient_accumulation_steps", value};
  if (name == "layers") return {"layers_per_stage", value};
  if (name == "zero_group") return {"zero_hpz_partition_size", value};
  if (absl::StrContains(part, '=')) return {name, value};
  if (ParseSchedule(name).ok()) return {"pp_schedule", name};
  if (name == "sequence_parallel") return {name, "true"};
  if (name == "offload_optimizer") return {"offload", "cpu"};
  return {name, value};
}

}  // namespace

absl::StatusOr<Constraints> ParseConstraints(absl::string_view flag, absl::string_view text) {
  Constraints fixed;
  std::vector<std::string> seen;
  for (const absl::string_view each : PartsOf(text)) {
    const auto [name, value] = AsNamed(each);
    for (const std::string& before : seen) {
      if (before != name) continue;
      return absl::InvalidArgumentError(absl::StrCat(flag, ": ", name, ": given twice; keep one"));
    }
    seen.push_back(name);
    RETURN_IF_ERROR(ReadPart(flag, name, value, fixed));
  }
  if (seen.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": is empty; use e.g. tp=4,pp=2"));
  }
  if (fixed.head_chunks && fixed.head_chunk_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": head_chunks: is what head_chunk_tokens makes, given as well; keep one"));
  }
  return fixed;
}

absl::StatusOr<Layout> LayoutFrom(const Constraints& fixed, const JobSpec& job) {
  Layout layout;
  layout.dp = fixed.dp.value_or(1);
  layout.tp = fixed.tp.value_or(1);
  layout.pp = fixed.pp.value_or(1);
  layout.cp = fixed.cp.value_or(1);
  layout.ep = fixed.ep.value_or(1);
  layout.zero_stage = fixed.zero_stage.value_or(0);
  layout.zero_group = fixed.zero_group.value_or(0);
  layout.virtual_stages = fixed.virtual_stages.value_or(1);
  layout.schedule =
      fixed.schedule.value_or(layout.virtual_stages > 1 ? ScheduleKind::kInterleaved
                                                        : ScheduleKind::kOneForwardOneBackward);
  layout.recompute = fixed.recompute.value_or(Recompute::kNone);
  layout.stage_recompute = fixed.stage_recompute;
  layout.sequence_parallel = fixed.sequence_parallel.value_or(false);
  layout.offload_optimizer = fixed.offload_optimizer.value_or(false);
  layout.stage_blocks = fixed.stage_blocks.value_or(std::vector<int64_t>());
  layout.micro_batch_size =
      fixed.micro_batch_size.value_or(job.training.micro_batch_size.value_or(1));
  const int64_t at_once = layout.dp * layout.micro_batch_size;
  const int64_t global = job.training.global_batch_size;
  layout.num_microbatches = fixed.num_microbatches.value_or(global / at_once);
  if (layout.num_microbatches < 1 || at_once * layout.num_microbatches != global) {
    return absl::InvalidArgumentError(
        absl::StrCat("--layout: dp ", layout.dp, " x micro_batch_size ", layout.micro_batch_size,
                     fixed.num_microbatches
                         ? absl::StrCat(" x gradient_accumulation_steps ", layout.num_microbatches)
                         : "",
                     " does not make training.global_batch_size ", global,
                     "; change one of them, or --set training.global_batch_size"));
  }
  layout.head_chunks = HeadChunks(fixed, job.batch(), layout);
  return layout;
}

}  // namespace weft
