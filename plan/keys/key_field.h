// A KeyField points at the member that a key of a file is about, whatever the member's type. By it
// a table of keys says once what a key is: reading, printing and limits follow from the type. The
// tables are plan/keys/job_keys.h, cluster_keys.h. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/keys/value.h"
#include "plan/keys/value_reader.h"
#include "plan/spec/cluster.h"
#include "plan/spec/job_spec.h"

namespace weft {

// A number that nobody may have given: null, not auto.
struct NumberOrNull {
  std::optional<int64_t>* number;
};

// [first, second]
struct NumberPair {
  double* first;
  double* second;
};

// N, or MIN:MAX.
struct NumberRange {
  int* least;  // 0: not said
  int* most;
};

// An empty optional is `auto`; std::monostate: the key does not apply (lora.r without lora).
using KeyField = std::variant<
    std::monostate, bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::optional<bool>*,
    std::optional<int>*, std::optional<int64_t>*, Precision*, ReduceDtype*, OptimizerKind*,
    TokenFormat*, std::optional<TokenDtype>*, LrSchedule*, ResumeMode*, Scheduler*, FrozenFormat*,
    BackendKind*, Collective*, std::optional<ScheduleKind>*, std::optional<Recompute>*,
    std::optional<OffloadDevice>*, std::vector<Recompute>*, std::optional<std::vector<int64_t>>*,
    std::vector<std::string>*, std::map<std::string, std::string>*, PassedOn*,
    std::vector<DataSource>*, std::vector<ParamGroup>*, std::vector<MatmulPoint>*,
    std::vector<CollectivePoint>*, NumberOrNull, NumberPair, NumberRange>;

// The numbers that a field may hold. `allowed` says it: "0 or more and less than 1".
struct Limits {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // `least` itself is not allowed
  bool below_most = false;   // nor is `most`
  absl::string_view allowed = "";

  bool Allow(double number) const;  // false for NaN
  std::string Text() const;         // `allowed`, or "1 to 100"
};

// Reads the key into its field. A key that is absent or null leaves the field as it is, and so does
// a wrong one, which becomes an issue. Words of other systems are read as weft's, with a note if
// there are notes.
void ReadKey(const ValueReader& values, absl::string_view key, const KeyField& field,
             std::vector<std::string>* notes);

// Returns what ReadKey reads back as the same field. REQUIRES: the field is no std::monostate.
Value PrintField(const KeyField& field);

// Returns the field's numbers that `limits` do not allow, as text; an empty optional has none.
std::vector<std::string> OutOfLimits(const KeyField& field, const Limits& limits);

// How a field is written, for people and for a schema.
struct FieldForm {
  enum class Kind { kFlag, kWhole, kNumber, kText, kWord, kList, kMap };
  Kind kind = Kind::kText;
  bool may_be_auto = false;
  Words words = {};                   // of kWord, and what else may stand there (`even`)
  std::optional<Kind> items = {};     // of kList
  absl::string_view other_word = "";  // a word in the place of a list
  absl::string_view pattern = "";     // a regular expression of texts in the place of a number
  bool may_be_text = false;           // a text stands for an item, and for a list of one
};
FieldForm FormOf(const KeyField& field);

// Returns other systems' words that are read as one of `words`: "bfloat16" for bf16.
std::vector<absl::string_view> OtherWords(Words words);

}  // namespace weft
