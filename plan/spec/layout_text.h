// Layouts and what is asked of them as people read them: properties by their names in job.yaml.
// plan/keys/layout_reader.h reads the same texts back. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/spec/layout.h"
#include "plan/spec/layout_text.h"

namespace weft {

// "dp=2 tp=1 pp=3 pp_schedule=1f1b micro_batch_size=4 gradient_accumulation_steps=2
// layers_per_stage=4,4,3", in one line; of many stages "layers_per_stage=1,62x2,1". Other
// properties stand there unless they have their default.
std::string LayoutText(const Layout& layout);

struct PropertyText {
  absl::string_view name;  // "tp"
  absl::string_view key;   // "parallelism.tp"
  std::string value;       // "4"
};
// All properties that are asked for, degrees first.
std::vector<PropertyText> PropertyTexts(const LayoutSpec& spec);
// Returns those of LayoutText, and `recompute` beside recompute_per_stage: nothing is lost.
std::vector<PropertyText> PropertyTexts(const Layout& layout);

// "parallelism.dp 4, training.micro_batch_size 2"
std::string KeyedText(absl::Span<const PropertyText> properties);

// BrokenProperties are those that `layout` does not keep, and `spec` without them.
struct BrokenProperties {
  std::vector<PropertyText> properties;
  LayoutSpec freed;
};
BrokenProperties BrokenBy(const Layout& layout, const LayoutSpec& spec);

}  // namespace weft
