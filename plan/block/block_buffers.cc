#include "plan/block/block_buffers.h"

#include <algorithm>
#include <cstddef>

#include "plan/errors.h"

namespace weft {
namespace {

const BlockValue& ValueOf(const BlockOps& block, int value) {
  return block.values[static_cast<size_t>(value)];
}

// Says of each value whether a backward pass reads what lies in its memory.
std::vector<bool> ReadByBackward(const BlockOps& block) {
  std::vector<bool> is_read(block.values.size(), false);
  const auto read = [&](const std::vector<int>& values) {
    for (const int value : values) is_read[static_cast<size_t>(block.PlaceOf(value))] = true;
  };
  for (const BlockOp& op : block.ops) {
    const OpRule& rule = RuleOf(op.kind);
    if (rule.input_reads_in || rule.weight_reads_in) read(op.in);
    if (rule.input_reads_out) read(op.out);
    if (rule.reads_statistics) read(op.statistics);
  }
  return is_read;
}

bool IsKept(OpKind made_by, bool is_statistic, Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return true;
    case Recompute::kSelective:
      return is_statistic || !RuleOf(made_by).is_cheap;
    case Recompute::kFull:
      return false;
  }
  CHECK(false);
  return true;
}

// The values whose gradients lie in one place.
class GradientPlaces {
 public:
  explicit GradientPlaces(const BlockOps& block) {
    for (size_t value = 0; value < block.values.size(); ++value) {
      stands_for_.push_back(static_cast<int>(value));
    }
    for (const BlockOp& op : block.ops) {
      switch (RuleOf(op.kind).gradient) {
        case OpRule::Gradient::kOwn:
          break;
        case OpRule::Gradient::kPasses:
          for (const int in : op.in) Join(in, op.out.front());
          break;
        case OpRule::Gradient::kOfLastInput:
          Join(op.in.back(), op.out.front());
          break;
      }
    }
    // The gradients of columns are columns of a gradient.
    for (size_t value = 0; value < block.values.size(); ++value) {
      const int place = block.values[value].place;
      if (place != kOwnPlace && IsWide(ValueOf(block, place))) Join(place, static_cast<int>(value));
    }
  }

  // Returns the one of them that stands for all.
  int Of(int value) const {
    while (stands_for_[static_cast<size_t>(value)] != value) {
      value = stands_for_[static_cast<size_t>(value)];
    }
    return value;
  }

 private:
  static bool IsWide(const BlockValue& value) { return value.cols.count == 0; }
  // The value that stands for `first` stands for `second` from now on.
  void Join(int first, int second) { stands_for_[static_cast<size_t>(Of(second))] = Of(first); }

  std::vector<int> stands_for_;
};

// Index of the operation that makes `value`; -1: none, it is the block's input.
int MakerOf(const BlockOps& block, int value) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const std::vector<int>& out = block.ops[i].out;
    if (std::find(out.begin(), out.end(), value) != out.end()) return static_cast<int>(i);
  }
  return -1;
}

// Products that tp cuts take what is gathered, and so make its gradient for all tokens.
bool IsGathered(const BlockOps& block, int value) {
  return std::any_of(block.ops.begin(), block.ops.end(), [&](const BlockOp& op) {
    return op.kind == OpKind::kLinear && op.in.front() == value &&
           ValueOf(block, op.out.front()).rows == Rows::kTokens;
  });
}

// Takes buffers for values, and back when they are not read any more.
class PassPlaces {
 public:
  explicit PassPlaces(const BlockOps& block) : block_(block) {
    places_.of_value.assign(block.values.size(), kNowhere);
    for (const BlockOp& op : block.ops) {
      if (op.kind != OpKind::kAttention) continue;
      for (const int cached : {op.in[1], op.in[2]}) {
        places_.of_value[static_cast<size_t>(block.PlaceOf(cached))] = PassBuffers::kInCache;
      }
    }
    Take(0);
  }

  PassBuffers Run() {
    for (size_t i = 0; i < block_.ops.size(); ++i) {
      const BlockOp& op = block_.ops[i];
      for (const int value : op.statistics) Take(block_.PlaceOf(value));
      for (const int value : op.out) Take(block_.PlaceOf(value));
      for (const auto* const values : {&op.in, &op.out, &op.statistics}) {
        for (const int value : *values) GiveBack(block_.PlaceOf(value), i);
      }
    }
    for (size_t value = 0; value < block_.values.size(); ++value) {
      const auto place = static_cast<size_t>(block_.PlaceOf(static_cast<int>(value)));
      places_.of_value[value] = places_.of_value[place];
    }
    return std::move(places_);
  }

 private:
  static constexpr int kNowhere = -2;

  bool Fits(const BlockBuffer& buffer, const BlockValue& value) const {
    return buffer.is_statistic == value.is_statistic &&
           ValueOf(block_, buffer.value).cols.count == value.cols.count;
  }

  void Take(int value) {
    int& index = places_.of_value[static_cast<size_t>(value)];
    if (index != kNowhere) return;
    const BlockValue& of = ValueOf(block_, value);
    for (size_t i = 0; i < places_.buffers.size() && index == kNowhere; ++i) {
      if (is_free_[i] && Fits(places_.buffers[i], of)) index = static_cast<int>(i);
    }
    if (index == kNowhere) {
      index = static_cast<int>(places_.buffers.size());
      places_.buffers.push_back({of.name, of.rows, value, of.is_statistic});
      is_free_.push_back(true);
    }
    is_free_[static_cast<size_t>(index)] = false;
  }

  // After operation `op`, if it is the last that touches the value.
  void GiveBack(int value, size_t op) {
    const int index = places_.of_value[static_cast<size_t>(value)];
    if (index == PassBuffers::kInCache || value == block_.PlaceOf(block_.output)) return;
    const bool is_touched_later =
        std::any_of(block_.ops.begin() + static_cast<std::ptrdiff_t>(op) + 1, block_.ops.end(),
                    [&](const BlockOp& later) {
                      const auto touches = [&](int of) { return block_.PlaceOf(of) == value; };
                      return std::any_of(later.in.begin(), later.in.end(), touches) ||
                             std::any_of(later.out.begin(), later.out.end(), touches);
                    });
    if (!is_touched_later) is_free_[static_cast<size_t>(index)] = true;
  }

  const BlockOps& block_;
  PassBuffers places_;
  std::vector<bool> is_free_;
};

}  // namespace

PassBuffers PassBuffersOf(const BlockOps& block) {
  return PassPlaces(block).Run();
}

SavedBuffers SavedBuffersOf(const BlockOps& block, Recompute recompute) {
  const std::vector<bool> is_read = ReadByBackward(block);
  SavedBuffers saved;
  const auto add = [&](int value, bool is_kept) {
    if (!is_read[static_cast<size_t>(value)]) return;
    const BlockValue& of = ValueOf(block, value);
    (is_kept ? saved.kept : saved.made_again).push_back({of.name, of.rows, value, of.is_statistic});
  };
  add(0, /*is_kept=*/true);
  for (const BlockOp& op : block.ops) {
    for (const auto* const values : {&op.statistics, &op.out}) {
      for (const int value : *values) {
        if (ValueOf(block, value).place != kOwnPlace) continue;
        add(value, IsKept(op.kind, ValueOf(block, value).is_statistic, recompute));
      }
    }
  }
  return saved;
}

std::vector<BlockBuffer> GradientBuffersOf(const BlockOps& block) {
  const GradientPlaces places(block);
  std::vector<bool> is_there(block.values.size(), false);
  is_there[static_cast<size_t>(places.Of(block.output))] = true;
  std::vector<BlockBuffer> buffers;
  size_t norm = 0;      // which of them is "norm"; none at first
  size_t norm_end = 0;  // the operation that needs its gradient last
  for (size_t i = block.ops.size(); i-- > 0;) {
    for (const int in : block.ops[i].in) {
      const int value = places.Of(in);
      // A product of the residual itself has its input's gradient added to the residual's.
      if (block.ops[i].kind == OpKind::kLinear && value == places.Of(block.output) &&
          norm_end == 0) {
        norm = buffers.size();
        norm_end = i + 1;
        buffers.push_back({"norm", Rows::kTokens, in});
      }
      if (ValueOf(block, value).is_statistic || is_there[static_cast<size_t>(value)]) continue;
      is_there[static_cast<size_t>(value)] = true;
      const BlockValue& of = ValueOf(block, value);
      const int maker = MakerOf(block, value);
      const bool is_norm =
          maker >= 0 && block.ops[static_cast<size_t>(maker)].kind == OpKind::kNorm;
      const bool is_first_norm = is_norm && norm_end == 0;
      const bool shares = is_norm && !is_first_norm && i < norm_end &&
                          ValueOf(block, buffers[norm].value).cols == of.cols;
      if (!shares) {
        buffers.push_back({of.name, IsGathered(block, value) ? Rows::kTokens : of.rows, value});
      }
      if (is_first_norm) {
        norm = buffers.size() - 1;
        buffers.back().name = "norm";
      }
      if (is_first_norm || shares) norm_end = static_cast<size_t>(maker);
      std::vector<int>& holds = (shares ? buffers[norm] : buffers.back()).gradients_of;
      for (size_t other = 0; other < block.values.size(); ++other) {
        if (places.Of(static_cast<int>(other)) == value) holds.push_back(static_cast<int>(other));
      }
    }
  }
  return buffers;
}

int64_t LocalColumns(const BlockOps& block, int value, const Layout& layout, int tp_index) {
  const Dim& cols = ValueOf(block, value).cols;
  if (cols.count > 0) return LocalCount(cols, layout, tp_index);
  int64_t sum = 0;
  for (const BlockValue& part : block.values) {
    if (part.place == value) sum += LocalCount(part.cols, layout, tp_index);
  }
  return sum;
}

int64_t FirstColumn(const BlockOps& block, int value, const Layout& layout, int tp_index) {
  int64_t first = 0;
  for (int at = value; ValueOf(block, at).place != kOwnPlace; at = ValueOf(block, at).place) {
    const int place = ValueOf(block, at).place;
    if (ValueOf(block, place).cols.count > 0) continue;  // all of its columns
    for (int before = 0; before < at; ++before) {
      if (ValueOf(block, before).place == place) {
        first += LocalColumns(block, before, layout, tp_index);
      }
    }
  }
  return first;
}

}  // namespace weft
