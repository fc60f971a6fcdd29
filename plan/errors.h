// weft fails in two ways: Status for what the world does, CHECK for our own bugs.
// Spellings follow later Abseil, which Debian 12's 20220623 lacks. ASSIGN_OR_RETURN is several
// statements: one per source line, and never the body of an unbraced `if`.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expr)                  \
  do {                                         \
    absl::Status weft_status = (expr);         \
    if (!weft_status.ok()) return weft_status; \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) WEFT_ASSIGN_(WEFT_CAT_(weft_or_, __LINE__), lhs, expr)
#define WEFT_CAT_(a, b) WEFT_CAT2_(a, b)
#define WEFT_CAT2_(a, b) a##b
// A declaration cannot stand in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define WEFT_ASSIGN_(tmp, lhs, expr)  \
  auto tmp = (expr);                  \
  if (!tmp.ok()) return tmp.status(); \
  lhs = *std::move(tmp)
// NOLINTEND(bugprone-macro-parentheses)

#define CHECK(condition)                                                                     \
  ((condition)                                                                               \
       ? static_cast<void>(0)                                                                \
       : (std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition), \
          std::abort()))
