#include "tests/parity/planted.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/shards/factored_moments.h"
#include "tests/worker/passing_backend.h"
#include "worker/backend/adafactor_steps.h"
#include "worker/backend/part_norms.h"

namespace weft {
namespace {

// The two wrappers of a rank share this.
struct Watch {
  bool attention_gradient_is_last = false;  // no all-reduce since
  bool products_are_last = false;           // those of a norm over all heads, likewise
};

// Counts kv heads twice, if it is asked to, and says when it has left means of products.
class WatchedNorms final : public PartNorms {
 public:
  WatchedNorms(PartNorms& inner, bool counts_twice, Watch& watch)
      : inner_(inner), counts_twice_(counts_twice), watch_(watch) {}

  // Queries come first, then keys.
  void Squares(View x, double factor, View means) override {
    const bool is_of_keys = norms_++ % 2 == 1;
    inner_.Squares(x, counts_twice_ && is_of_keys ? 2 * factor : factor, means);
  }
  void Norm(View x, View weight, const NormConstants& constants, View y, View rstd) override {
    inner_.Norm(x, weight, constants, y, rstd);
  }
  void Products(View dy, View x, View weight, const NormConstants& constants, View rstd,
                double factor, View means) override {
    inner_.Products(dy, x, weight, constants, rstd, factor, means);
    watch_.products_are_last = true;
  }
  void Gradient(View dy, View x, View weight, const NormConstants& constants, View rstd, View means,
                View dx, View dweight) override {
    inner_.Gradient(dy, x, weight, constants, rstd, means, dx, dweight);
  }

 private:
  PartNorms& inner_;
  const bool counts_twice_;
  Watch& watch_;
  int64_t norms_ = 0;
};

// Counts the squares of vectors twice.
class CountsTwice final : public AdafactorSteps {
 public:
  explicit CountsTwice(AdafactorSteps& inner) : inner_(inner) {}

  void Squares(View gradient_scale, View gradient, int64_t begin,
               const FactoredView& sums) override {
    for (int i = 0; i < (sums.rows.data == nullptr ? 2 : 1); ++i) {
      inner_.Squares(gradient_scale, gradient, begin, sums);
    }
  }
  void Moments(double beta, View gradient_scale, const FactoredView& sums,
               const FactoredView& moments) override {
    inner_.Moments(beta, gradient_scale, sums, moments);
  }
  void Norms(const AdafactorParameters& adafactor, View gradient, View param, int64_t begin,
             const FactoredView& moments, View norms) override {
    inner_.Norms(adafactor, gradient, param, begin, moments, norms);
  }
  void Update(const AdafactorParameters& adafactor, View gradient, View param, int64_t begin,
              const FactoredView& moments, View norms) override {
    inner_.Update(adafactor, gradient, param, begin, moments, norms);
  }

 private:
  AdafactorSteps& inner_;
};

class PlantedDevice final : public PassingDevice {
 public:
  PlantedDevice(const ParityJob& parity, int rank, Device& inner, std::shared_ptr<Watch> watch)
      : PassingDevice(inner),
        bug_(parity.bug),
        rank_(rank),
        num_microbatches_(parity.layout.gradient_accumulation_steps),
        head_chunks_(parity.layout.head_chunks(parity.job.training.seq_len)),
        tensors_of_block_(TensorsOfBlock(parity.job.model)),
        query_width_(parity.job.model.num_heads / parity.layout.tp * parity.job.model.head_dim),
        counts_twice_(inner.adafactor()),
        watch_(std::move(watch)),
        part_norms_(inner.part_norms(), bug_ == PlantedBug::kKvHeadCountedTwice, *watch_) {}

  void CopyIn(View to, const void* from_host) override {
    inner_.CopyIn(to, from_host);
    if (bug_ == PlantedBug::kChunksSwapped && rank_ == 0) SwapChunks(to);
  }
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    TakeMemory();
    // Only a term of a sum that others began, of all products, is added with its second turned
    // over.
    if (bug_ == PlantedBug::kBranchLeftOut && rank_ == 0 && transpose_b == Transpose::kYes &&
        beta == 1) {
      return;
    }
    // Only a weight gradient, of all products, transposes its first factor.
    if (bug_ == PlantedBug::kWeightSkipped && rank_ == 0 && transpose_a == Transpose::kYes) {
      if (skipped_ == nullptr) skipped_ = c.data;
      if (skipped_ == c.data && weight_gradients_++ % num_microbatches_ == 1) return;
    }
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void LinearGradient(View dy, View x, View dweight, View dbias) override {
    Device::LinearGradient(dy, x, dweight, dbias);
  }
  void BiasGradient(View dy, View dbias) override {
    inner_.BiasGradient(dy, dbias);
    if (bug_ != PlantedBug::kDoubledGradient || rank_ != 0) return;
    if (doubled_ == nullptr) doubled_ = dbias.data;
    if (doubled_ == dbias.data) inner_.BiasGradient(dy, dbias);
  }
  PartNorms& part_norms() override { return part_norms_; }
  AdafactorSteps& adafactor() override {
    const bool twice = bug_ == PlantedBug::kVectorsCountedTwice && rank_ == 0;
    return twice ? counts_twice_ : inner_.adafactor();
  }
  void Rotate(View table, Turn turn, const RotatedHeads& heads, View x) override {
    if (first_table_.data == nullptr) first_table_ = table;
    const bool is_first = bug_ == PlantedBug::kOneRotaryTable && rank_ == 0;
    inner_.Rotate(is_first ? first_table_ : table, turn, heads, x);
    if (bug_ != PlantedBug::kRotaryOffset || rank_ != 0 || x.cols != query_width_) return;
    // A table that turns every position by what the second one is turned by.
    if (one_position_.data == nullptr) {
      one_position_ = table;
      one_position_.data = inner_.Allocate(table.bytes());
      std::vector<float> rows(static_cast<size_t>(table.elements()));
      inner_.CopyOut(rows.data(), table);
      for (int64_t i = 0; i < table.elements(); ++i) {
        rows[static_cast<size_t>(i)] = rows[static_cast<size_t>(table.cols + i % table.cols)];
      }
      inner_.CopyIn(one_position_, rows.data());
    }
    inner_.Rotate(one_position_, turn, heads, x);
  }
  void CrossEntropy(View targets, const LossTerms& loss, View logits, View row_max, View row_sum,
                    View target_logit) override {
    Device::CrossEntropy(targets, loss, logits, row_max, row_sum, target_logit);
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                       const LossTerms& loss, View logits) override {
    LossTerms given = loss;
    if (bug_ == PlantedBug::kCapSlopeLeftOut && rank_ == 0) given.cap = 0;
    const bool second_of_step = softmax_gradients_++ % num_microbatches_ == 1;
    if (bug_ == PlantedBug::kMicrobatchWeight && second_of_step) given.scale *= 1.01;
    inner_.SoftmaxGradient(row_max, row_sum, targets, first_id, given, logits);
    const bool last_piece = softmax_gradients_ % head_chunks_ == 0;
    if (bug_ == PlantedBug::kHeadPieceSkipped && last_piece) inner_.Zero(logits);
    // On a single stage a microbatch's backward pass follows.
    recomputes_ = true;
    recomputed_norms_ = 0;
  }
  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override {
    recomputes_ = false;
    inner_.Embed(ids, table, first_id, positions, position_ids, out);
  }
  void LayerNorm(View x, View weight, View bias, const NormConstants& constants, View y, View mean,
                 View rstd) override {
    if (bug_ == PlantedBug::kStaleRecompute && rank_ == 0 && recomputes_) {
      const bool is_norm1 = recomputed_norms_ % 2 == 0;
      if (is_norm1) std::swap(x, last_input_);
      if (is_norm1 && recomputed_norms_ == 0) x = last_input_;  // of the last block: as it is
      ++recomputed_norms_;
    }
    inner_.LayerNorm(x, weight, bias, constants, y, mean, rstd);
  }
  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    inner_.Attention(Swapped(shape), q, k, v, Moved(first_visible), o, lse, scratch);
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    inner_.AttentionGradient(Swapped(shape), q, k, v, Moved(first_visible), o, lse, dout, dq, dk,
                             dv, scratch);
    watch_->attention_gradient_is_last = true;
  }

 private:
  AttentionShape Swapped(AttentionShape shape) const {
    if (bug_ == PlantedBug::kPiecesSwapped && rank_ == 0) std::swap(shape.piece[0], shape.piece[1]);
    return shape;
  }

  // The device is a CPU.
  View Moved(View first_visible) {
    if (bug_ != PlantedBug::kWindowOffByOne || rank_ != 0) return first_visible;
    const auto* const first = static_cast<const int32_t*>(first_visible.data);
    moved_.assign(first, first + first_visible.elements());
    for (int32_t& each : moved_) each = std::max(0, each - 1);
    first_visible.data = moved_.data();
    return first_visible;
  }

  static size_t TensorsOfBlock(const ModelShape& model) {
    size_t count = 0;
    for (const TensorSpec& tensor : Tensors(model)) count += tensor.block == 0 ? 1 : 0;
    return count;
  }

  // Initial weights come in network order: what precedes the blocks, the first chunk's block, the
  // second's. To run the blocks in the wrong order is to give each the other's weights.
  void SwapChunks(View weight) {
    initial_.push_back(weight);
    if (initial_.size() != kEmbeddingTensors + 2 * tensors_of_block_) return;
    for (size_t i = kEmbeddingTensors; i < kEmbeddingTensors + tensors_of_block_; ++i) {
      const View other = initial_[i + tensors_of_block_];
      std::vector<float> first(static_cast<size_t>(other.elements()));
      std::vector<float> second(first.size());
      inner_.CopyOut(first.data(), initial_[i]);
      inner_.CopyOut(second.data(), other);
      inner_.CopyIn(initial_[i], second.data());
      inner_.CopyIn(other, first.data());
    }
  }

  void TakeMemory() {
    constexpr size_t kScratchBytes = size_t{1} << 20;
    if (rank_ != 0) return;
    if (bug_ == PlantedBug::kLeak) leaked_.push_back(std::make_unique<char[]>(1000));
    if (bug_ == PlantedBug::kScratch) {
      const auto scratch = std::make_unique<char[]>(kScratchBytes);
      static_cast<volatile char*>(scratch.get())[0] = 1;  // or it is optimised away
    }
    if (bug_ == PlantedBug::kMapping) {
      const size_t page = static_cast<size_t>(getpagesize());
      CHECK(mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    }
  }

  static constexpr size_t kEmbeddingTensors = 2;  // gpt2: tokens and positions

  const PlantedBug bug_;
  const int rank_;
  const int64_t num_microbatches_;
  const int64_t head_chunks_;
  const size_t tensors_of_block_;
  const int64_t query_width_;  // of this rank; wider than that of its keys
  CountsTwice counts_twice_;
  std::vector<int32_t> moved_;
  const std::shared_ptr<Watch> watch_;
  WatchedNorms part_norms_;
  const void* doubled_ = nullptr;
  View first_table_;
  View one_position_;  // ends with the process
  int64_t softmax_gradients_ = 0;
  bool recomputes_ = false;  // norms that are computed now are computed again
  int recomputed_norms_ = 0;
  View last_input_;  // of the block that was recomputed last
  std::vector<View> initial_;
  const void* skipped_ = nullptr;
  int64_t weight_gradients_ = 0;
  std::vector<std::unique_ptr<char[]>> leaked_;
};

class PlantedComm final : public AtOnceComm {
 public:
  PlantedComm(const ParityJob& parity, Comm& inner, std::shared_ptr<Watch> watch)
      : AtOnceComm(inner),
        bug_(parity.bug),
        hidden_size_(parity.job.model.hidden_size),
        head_dim_(parity.job.model.head_dim),
        embedding_elements_(parity.job.model.vocab_size * parity.job.model.hidden_size),
        kv_head_elements_(parity.job.model.head_dim * parity.job.model.hidden_size),
        factored_elements_(FactoredElements(parity.job.model)),
        watch_(std::move(watch)) {}

  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    const bool of_attention = watch_->attention_gradient_is_last;
    watch_->attention_gradient_is_last = false;
    if (bug_ == PlantedBug::kTensorNotReduced && of_attention) return {};
    const bool of_products = std::exchange(watch_->products_are_last, false);
    if (bug_ == PlantedBug::kWideMeansNotReduced && of_products) return {};
    if (bug_ == PlantedBug::kTiedNotReduced && data.elements() == embedding_elements_) return {};
    if (bug_ == PlantedBug::kKvNotReduced && data.elements() == kv_head_elements_) return {};
    if (bug_ == PlantedBug::kFactorsNotReduced && data.elements() == factored_elements_) return {};
    const bool is_norm = data.rows == 1 && data.cols == hidden_size_;
    if (bug_ == PlantedBug::kNormPartsNotReduced && is_norm) return {};
    const bool is_head_norm = data.rows == 1 && data.cols == head_dim_;
    if (bug_ == PlantedBug::kHeadNormsNotReduced && is_head_norm) return {};
    auto* const totals = static_cast<double*>(data.data);  // loss, norm^2, stops
    const bool are_totals = data.dtype == DType::kF64 && data.elements() == 3;
    const double own_norm_squared = are_totals ? totals[1] : 0;
    const BackendStatus status = inner_.AllReduce(group, op, data);
    if (bug_ == PlantedBug::kNormNotReduced && are_totals) totals[1] = own_norm_squared;
    return status;
  }
  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override {
    const BackendStatus status = inner_.ReduceScatter(group, op, data);
    if (bug_ == PlantedBug::kPartShifted) {
      auto* values = static_cast<float*>(data.data);
      std::copy(values + 1, values + data.elements(), values);
    }
    return status;
  }
  // The call that was started last is made when the next one starts: as late as can be, if nobody
  // waits.
  BackendStatus Start(const CollectiveCall& call, int64_t* ticket) override {
    if (bug_ != PlantedBug::kLastReductionNotAwaited) return AtOnceComm::Start(call, ticket);
    const std::optional<CollectiveCall> held = std::exchange(held_, call);
    *ticket = 1;
    int64_t ignored = 0;
    return held ? AtOnceComm::Start(*held, &ignored) : BackendStatus{};
  }
  BackendStatus AllGather(int group, View data) override {
    const int64_t gather = gathers_++;
    // On every rank, so that nobody waits for another.
    if (bug_ == PlantedBug::kNotGathered && gather >= kInitialGathers) return {};
    if (bug_ == PlantedBug::kStaleGather && gather % 50 == 5) return {};
    const BackendStatus status = inner_.AllGather(group, data);
    if (bug_ == PlantedBug::kStaleKeys && rank() == 0) MakeStale(gather, data);
    return status;
  }
  BackendStatus Exchange(const Transfer* transfers, int count) override {
    if (bug_ != PlantedBug::kStaleTransfer || rank() != 0) return inner_.Exchange(transfers, count);
    std::vector<Transfer> posted(transfers, transfers + count);
    for (Transfer& transfer : posted) {
      if (!transfer.send) continue;
      const auto* bytes = static_cast<const char*>(transfer.data.data);
      std::vector<char> now(bytes, bytes + transfer.data.bytes());
      const bool stale = sends_++ == 1;
      std::swap(now, last_sent_);
      if (!stale) continue;
      stale_ = std::move(now);
      transfer.data.data = stale_.data();
    }
    return inner_.Exchange(posted.data(), count);
  }

 private:
  static int64_t FactoredElements(const ModelShape& model) {
    int64_t sum = 0;
    for (const TensorSpec& tensor : Tensors(model)) sum += FactoredMomentsOf(tensor).elements();
    return sum;
  }

  // Every eighth time the second half is that of the gather before.
  void MakeStale(int64_t gather, View gathered) {
    auto* const values = static_cast<float*>(gathered.data);
    std::vector<float> now(values, values + gathered.elements());
    std::swap(now, last_gathered_);
    if (gather % 8 != 3) return;
    std::copy(now.begin() + std::ssize(now) / 2, now.end(), values + std::ssize(now) / 2);
  }

  const PlantedBug bug_;
  const int64_t hidden_size_, head_dim_;
  const int64_t embedding_elements_;
  const int64_t kv_head_elements_;
  const int64_t factored_elements_;  // of all tensors: without pp
  const std::shared_ptr<Watch> watch_;
  static constexpr int64_t kInitialGathers = 5;  // of a bucket for both ends, and of four blocks
  std::optional<CollectiveCall> held_;
  int64_t gathers_ = 0;
  int64_t sends_ = 0;
  std::vector<char> last_sent_, stale_;
  std::vector<float> last_gathered_;
};

}  // namespace

PlantedBackend Plant(const ParityJob& parity, Device& device, Comm& comm) {
  const auto watch = std::make_shared<Watch>();
  return {std::make_unique<PlantedDevice>(parity, comm.rank(), device, watch),
          std::make_unique<PlantedComm>(parity, comm, watch)};
}

}  // namespace weft
