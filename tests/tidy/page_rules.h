// The rules for pages (*.md) that a program can check, pure like those of rules.h. tidy_test.cc
// runs them over the tree, page_rules_test.cc plants a breach of each to prove that it bites.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/tidy/rules.h"

namespace weft {

// Lines have at most 120 characters, paragraphs and items of lists at most 6 lines. Tables,
// headings, code, and what is indented by four spaces or more count by the width of their lines
// alone.
Violations PageViolations(const SourceFile& page);

// A link leads to a file for which `exists` (asked by its path from the root) is true, and its
// #anchor to a heading of that page. Links with a scheme ("https://...") are free, and so is code
// between fences.
Violations LinkViolations(const std::vector<SourceFile>& pages,
                          const std::function<bool(const std::string& path)>& exists);

// A source, script or page of the tree that a page names by its path between marks of code
// (`plan/spec/layout.{h,cc}`) is one for which `exists` is true.
Violations PathViolations(const SourceFile& page,
                          const std::function<bool(const std::string& path)>& exists);

}  // namespace weft
