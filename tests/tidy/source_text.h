// Source text as the tidy rules see it: a path relative to the repository's root and the words in
// it, and a reader that knows where C++ code is and where comments and literals are. Pure.
#pragma once
#include <string>
#include <vector>

namespace weft {

struct SourceFile {
  std::string path;  // "plan/spec/layout.cc"
  std::string text;
};

// "plan/spec/layout.cc:12", for a complaint.
std::string At(const SourceFile& file, int line);

// Lines without their '\n'.
std::vector<std::string> Lines(const std::string& text);

// The same text, byte for byte as long and with the same lines, where comments and the contents of
// string and character literals are blanked.
std::string BlankCommentsAndLiterals(const std::string& text);

// A function's body in a source text, first line of its head to the closing brace, from 1.
struct FunctionBody {
  std::string head;  // "int Answer(int question)"
  int first_line = 0;
  int last_line = 0;
  int lines() const { return last_line - first_line + 1; }
};

// Every function defined at namespace or class scope. Lambdas and local classes count as lines of
// the function that holds them. Relies on clang-format's shape: a body's brace follows a space, a
// braced member initialiser's does not.
std::vector<FunctionBody> Functions(const std::string& text);

// ClassBody is where a class or struct stands: first line of its head to the closing brace, from 1.
struct ClassBody {
  std::string name;  // "RankGrid", "Link::Impl"
  int first_line = 0;
  int last_line = 0;
  int lines() const { return last_line - first_line + 1; }
};

// Returns every class and struct defined at namespace or class scope, those inside others as well.
std::vector<ClassBody> Classes(const std::string& text);

// DefinedType is a class, struct, union or enum and the first line of its head, from 1.
struct DefinedType {
  std::string name;
  int line = 0;
};

// Returns the types that are defined in `namespace weft` itself: neither in an unnamed or inner
// namespace, nor in another type, nor in a function. Specialisations of templates are left out.
std::vector<DefinedType> TypesOfWeft(const std::string& text);

}  // namespace weft
