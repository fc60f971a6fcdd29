// This is the only place where messages of proto/ become values of plan/, and the other way round;
// a job travels as text (proto/job_text.h).
// FromProto trusts nothing: a missing submessage or an unknown name is InvalidArgument with the
// field's path; ranges and rules of the values are Validate's and CheckLayout's. Pure.
#pragma once
#include "absl/status/statusor.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"
#include "proto/plan.pb.h"

namespace weft {

proto::RunIdentity ToProto(const RunIdentity& run);
RunIdentity FromProto(const proto::RunIdentity& message);

proto::Layout ToProto(const Layout& layout);
absl::StatusOr<Layout> FromProto(const proto::Layout& message);

}  // namespace weft
