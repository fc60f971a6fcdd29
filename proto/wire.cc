#include "proto/wire.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/keys/layout_reader.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/layout_text.h"

namespace weft {
proto::RunIdentity ToProto(const RunIdentity& run) {
  proto::RunIdentity message;
  message.set_id(run.id);
  for (const auto& [key, value] : run.mathematics) (*message.mutable_mathematics())[key] = value;
  for (const std::string& change : run.accepted) message.add_accepted(change);
  return message;
}

RunIdentity FromProto(const proto::RunIdentity& message) {
  return {message.id(),
          {message.mathematics().begin(), message.mathematics().end()},
          {message.accepted().begin(), message.accepted().end()}};
}

proto::Layout ToProto(const Layout& layout) {
  proto::Layout message;
  for (const PropertyText& property : PropertyTexts(layout)) {
    (*message.mutable_properties())[std::string(property.name)] = property.value;
  }
  return message;
}

absl::StatusOr<Layout> FromProto(const proto::Layout& message) {
  if (message.properties().empty())
    return absl::InvalidArgumentError(
        "layout: is missing from the message; the sender is not this version of weft");
  LayoutSpec spec;
  for (const auto& [name, value] : message.properties()) {
    RETURN_IF_ERROR(ReadProperty("layout", name, value, spec));
  }
  const Layout layout = LayoutOf(spec);
  for (const int degree :
       {layout.dp, layout.tp, layout.pp, layout.cp, layout.ep, layout.virtual_stages}) {
    if (degree >= 1 && layout.etp >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("layout: ", LayoutText(layout), ": no degree is less than 1"));
  }
  return layout;
}

}  // namespace weft
