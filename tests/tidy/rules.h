// The rules of the house that a program can check, each a pure function from a source file to the
// sentences that say what is wrong ("plan/search/search.cc:12: ..."), none if all is well.
// tidy_test.cc runs them over the tree, and plants a breach of each to prove that it bites.
#pragma once
#include <string>
#include <vector>

#include "tests/tidy/source_text.h"

namespace weft {

using Violations = std::vector<std::string>;

// Checks who may include what, by the table of rooms.h.
Violations IncludeViolations(const SourceFile& file);

// Files of at most 600 lines (tests 900), main.cc 80; functions of at most 60.
Violations SizeViolations(const SourceFile& file);

// A concept is its .h and .cc together; under 30 lines it should live with its one user. Interfaces
// (a header alone), mains and formats may be short.
Violations SmallConceptViolations(const std::vector<SourceFile>& files);

// No file includes one that includes it, however long the way back is: a header and its sources
// count as one. Nor does a folder.
Violations CircleViolations(const std::vector<SourceFile>& files);

// A class has at most 300 lines. The table in rules.cc names those that are longer still: none of
// them may grow, and one that is cut or gone has to leave the table.
Violations ClassViolations(const std::vector<SourceFile>& files);

// One name in namespace weft is one type, also where two files never meet in one program: linked
// into one, either would take the other's functions. Types of unnamed namespaces are free, and so
// are those inside others. Tests are left out.
Violations DoubleTypeViolations(const std::vector<SourceFile>& files);

// JSON is read by text/ alone, with its bounds of size and depth: nlohmann's own parser is called
// nowhere else. Tests and measuring programs read what they have written themselves.
Violations JsonViolations(const SourceFile& file);

// No common, utils, helpers, misc, base, types.h.
Violations NameViolations(const SourceFile& file);

// A header opens with prose, then #pragma once; no tabs, no trailing spaces, no '\r', lines of at
// most 100 characters; a mark for later names its issue, (#12).
Violations ShapeViolations(const SourceFile& file);

// A comment block (lines that begin with //) opens with a sentence: its first word is none of Of,
// What, Those, Whose and Whom, after which subject and verb go missing. Comments behind code are
// free, and so are later lines of a block.
Violations CommentViolations(const SourceFile& file);

// CMake names its sources: no file(GLOB), no directory-wide include_directories and the like.
Violations CMakeViolations(const SourceFile& file);

}  // namespace weft
