// People type a layout after --why and --layout: "tp=4,pp=2,recompute=full". Names are those of the
// job file, without their section. Pure.
#pragma once
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/search/space.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// InvalidArgument names the part that is wrong, with the nearest name. `flag`: "--why", for
// messages.
absl::StatusOr<Constraints> ParseConstraints(absl::string_view flag, absl::string_view text);

// Exactly that layout: what is not named is 1, none or off; the batch is cut as the job's global
// batch needs. InvalidArgument if it cannot be cut so.
absl::StatusOr<Layout> LayoutFrom(const Constraints& fixed, const JobSpec& job);

}  // namespace weft
