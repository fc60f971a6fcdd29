#include "launcher/service/text_table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "launcher/service/harmless.h"

namespace weft {
namespace {

constexpr int kGap = 2;

// The excess is taken from the column that is widest above its least, one by one.
void Shrink(absl::Span<const TableColumn> columns, int width, std::vector<int>* widths) {
  const auto total = [&] {
    int sum = -kGap;
    for (const int each : *widths) sum += each > 0 ? each + kGap : 0;
    return sum;
  };
  for (int excess = total() - width; excess > 0; --excess) {
    int widest = -1;
    for (size_t i = 0; i < columns.size(); ++i) {
      const int slack = (*widths)[i] - columns[i].least;
      const bool is_wider = widest < 0 || (*widths)[i] > (*widths)[static_cast<size_t>(widest)];
      if (slack > 0 && is_wider) widest = static_cast<int>(i);
    }
    if (widest < 0) return;
    --(*widths)[static_cast<size_t>(widest)];
  }
}

std::string LineText(const std::vector<std::string>& cells, const std::vector<int>& widths) {
  std::string line;
  int used = 0;
  int end = 0;  // column where the cell before ends
  for (size_t i = 0; i < cells.size(); ++i) {
    if (widths[i] == 0) continue;
    const std::string cell = CutTo(cells[i], widths[i]);
    if (!cell.empty()) {
      line.append(static_cast<size_t>(end - used), ' ');
      absl::StrAppend(&line, cell);
      used = end + ColumnsOf(cell);
    }
    end += widths[i] + kGap;
  }
  return absl::StrCat(line, "\n");
}

}  // namespace

std::string TableText(absl::Span<const TableColumn> columns,
                      const std::vector<std::vector<std::string>>& rows, int width) {
  std::vector<std::vector<std::string>> lines = {{}};
  for (const TableColumn& column : columns) lines[0].push_back(column.title);
  std::vector<int> widths(columns.size(), 0);
  for (const std::vector<std::string>& row : rows) {
    lines.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) {
      lines.back().push_back(Harmless(row.at(i)));
      const int cell = std::min(ColumnsOf(lines.back().back()), columns[i].most);
      if (cell > 0) widths[i] = std::max({widths[i], cell, ColumnsOf(columns[i].title)});
    }
  }
  Shrink(columns, width, &widths);
  std::string text;
  for (const std::vector<std::string>& line : lines) absl::StrAppend(&text, LineText(line, widths));
  return text;
}

}  // namespace weft
