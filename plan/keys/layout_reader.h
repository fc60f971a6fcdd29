// Layouts as people type them after --why and --layout, and as they travel: properties under their
// names of plan/spec/layout_properties.h, "tp=4,pp=2,recompute=full". Pure.
#pragma once
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// Reads a property by its name, or its key of job.yaml, from what PropertyTexts prints. A list is
// cut by commas or slashes, and 62x2 in it stands for 62 stages of 2. InvalidArgument: "--why: tp:
// found x; ..." with `source` first; rules between properties are CheckLayout's.
absl::Status ReadProperty(absl::string_view source, absl::string_view name, absl::string_view value,
                          LayoutSpec& spec);

// Reads "tp=4,pp=2", or a LayoutText, also where it was folded. `flag`: "--why".
absl::StatusOr<LayoutSpec> ParseLayoutSpec(absl::string_view flag, absl::string_view text);

// Exactly that layout: what is not named is 1, none or off; the batch is cut as the job's global
// batch needs. InvalidArgument if it cannot be cut so.
absl::StatusOr<Layout> LayoutFrom(const LayoutSpec& spec, const JobSpec& job);

// Returns every property, under its name: what ReadKey reads back.
Value LayoutTree(const Layout& layout);

}  // namespace weft
