#include "worker/model/context.h"

#include "plan/errors.h"
#include "plan/shards/batch_order.h"

namespace weft {
namespace {

// Calls visit(row in order of ranks, row in order of positions, rows) for each run of each
// sequence.
template <typename Visit>
void ForEachRun(const Layout& layout, int64_t batch, int64_t rows, const Visit& visit) {
  const int64_t run_len = rows / batch / (2 * int64_t{layout.cp});
  int64_t by_rank = 0;
  for (int rank = 0; rank < layout.cp; ++rank) {
    const SequencePieces held = SequencePiecesOf(layout, rank);
    for (int64_t sequence = 0; sequence < batch; ++sequence) {
      for (const int64_t piece : held.pieces) {
        visit(by_rank, (sequence * held.runs + piece) * run_len, run_len);
        by_rank += run_len;
      }
    }
  }
  CHECK(by_rank == rows);
}

// Returns the rows of `by_rank` that this rank holds.
View MineOf(View by_rank, int64_t rows, const RankGroups& groups) {
  return by_rank.RowRange(groups.at().cp * rows, rows);
}

}  // namespace

absl::Status GatherSequences(int64_t batch, View mine, View by_rank, View whole, Device& device,
                             RankGroups& groups) {
  device.Copy(MineOf(by_rank, mine.rows, groups), mine);
  RETURN_IF_ERROR(groups.GatherOverContext(by_rank));
  ForEachRun(groups.layout(), batch, whole.rows, [&](int64_t from, int64_t to, int64_t rows) {
    device.Copy(whole.RowRange(to, rows), by_rank.RowRange(from, rows));
  });
  return absl::OkStatus();
}

absl::Status SumScatterSequences(int64_t batch, View whole, View by_rank, View mine, Device& device,
                                 RankGroups& groups) {
  ForEachRun(groups.layout(), batch, whole.rows, [&](int64_t to, int64_t from, int64_t rows) {
    device.Copy(by_rank.RowRange(to, rows), whole.RowRange(from, rows));
  });
  RETURN_IF_ERROR(groups.SumScatterOverContext(by_rank));
  device.Copy(mine, MineOf(by_rank, mine.rows, groups));
  return absl::OkStatus();
}

}  // namespace weft
