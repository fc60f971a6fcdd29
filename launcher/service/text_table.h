// A table for people: every cell is made harmless, and the table fits a width. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace weft {

inline constexpr int kTableColumns = 80;  // of a terminal that does not say, and of a pipe

struct TableColumn {
  std::string title;
  int most = 80;   // columns that it takes, however long its cells are
  int least = 80;  // to which it is cut where the table is too wide; `most` or more: never
};

// A line with the titles, and one a row; columns without any text are left out. Lines have `width`
// columns at most as long as the columns' `least` have room in it. REQUIRES: rows are as long as
// `columns`.
std::string TableText(absl::Span<const TableColumn> columns,
                      const std::vector<std::vector<std::string>>& rows, int width);

}  // namespace weft
