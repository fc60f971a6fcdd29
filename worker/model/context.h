// The keys and values of whole sequences under context parallelism, by all-gather, as in Llama 3's
// training (Grattafiori et al., arXiv:2407.21783, 3.3.2): a rank holds two runs of each sequence's
// positions (plan/shards/batch_order) and attends from these to all keys before them. Ring
// attention would hold fewer keys at once, but it exchanges cp - 1 times, and masks of documents
// give its turns unequal work; with shared kv heads the whole keys are small beside the queries.
//
// Keys of a gathered sequence are B sequences in order of positions; on the wire they lie by rank.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "worker/backend/device.h"
#include "worker/state/groups.h"

namespace weft {

// `mine` [B * T / cp, C], this rank's positions, becomes `whole` [B * T, C], everyone's. `by_rank`
// [B * T, C] is overwritten.
absl::Status GatherSequences(int64_t batch, View mine, View by_rank, View whole, Device& device,
                             RankGroups& groups);

// The sum over cp of `whole`, of this rank's positions, to `mine`. `by_rank` is overwritten.
absl::Status SumScatterSequences(int64_t batch, View whole, View by_rank, View mine, Device& device,
                                 RankGroups& groups);

}  // namespace weft
