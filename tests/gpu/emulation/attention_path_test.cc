// These tests ask which way an attention call takes, and why: on the emulated device, where
// fake_cudnn.cc counts what it is asked to do.
#include "worker/backend/cuda/attention/attention_path.h"

#include <cudnn.h>
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/memory/cudnn_attention.h"
#include "tests/gpu/emulation/fake_cudnn.h"
#include "tests/gpu/emulation/threads.h"
#include "tests/gpu/rank_shape.h"
#include "worker/backend/cuda/attention/cudnn_library.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr AttentionShape kShape = {
    .batch = 1, .seq_len = 8, .heads = 2, .head_dim = 64, .kv_heads = 1};

WeftFakeCudnn& Fake() {
  void* const library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
  static auto* const state = reinterpret_cast<WeftFakeCudnn* (*)()>(  // never unloaded
      dlsym(library, "WeftFakeCudnnState"));
  return *state();
}

// A device, tensors of one call, and what cuDNN did since the test began.
class AttentionPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WeftFakeCudnn& fake = Fake();
    fake.refuses_handles = fake.refuses_plans = fake.fails_runs = false;
    for (int64_t& bytes : fake.more_workspace_bytes) bytes = 0;
    before_ = fake;
  }

  void Open(const DeviceOptions& options) { ASSERT_TRUE(OpenCudaDevice(options, &device_).ok()); }

  View Tensor(int64_t rows, int64_t cols, DType dtype = DType::kBf16) {
    blocks_.emplace_back(static_cast<size_t>(rows * cols * 4 + 64));
    const auto address = reinterpret_cast<uintptr_t>(blocks_.back().data());
    return {blocks_.back().data() + (64 - address % 64), rows, cols, dtype};
  }

  // Forward, then backward.
  BackendStatus Run(const AttentionShape& shape, DType dtype, View first_visible = {},
                    int64_t scratch_floats = 1 << 20) {
    const int64_t queries = shape.batch * shape.query_len(), keys = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim, kv_cols = shape.kv_heads * shape.head_dim;
    const auto query = [&] {
      return Tensor(queries, shape.query_stride(), dtype).ColRange(0, cols);
    };
    const auto key = [&] { return Tensor(keys, shape.key_stride(), dtype).ColRange(0, kv_cols); };
    const View q = query(), k = key(), v = key();
    const View o = Tensor(queries, cols, dtype), dout = Tensor(queries, cols, dtype);
    const View lse = Tensor(shape.batch * shape.heads, shape.query_len(), DType::kF32);
    const View scratch = Tensor(1, scratch_floats, DType::kF32);
    device_->Attention(shape, q, k, v, first_visible, o, lse, scratch);
    device_->AttentionGradient(shape, q, k, v, first_visible, o, lse, dout, query(), key(), key(),
                               scratch);
    return device_->Synchronize();
  }
  std::string Prepare(const AttentionShape& shape, DType dtype, bool masks_documents = false,
                      int64_t scratch_floats = 1 << 20) {
    const View scratch = Tensor(1, scratch_floats, DType::kF32);
    return device_->PrepareAttention(shape, dtype, masks_documents, scratch);
  }

  // Returns a first_visible that makes each sequence one document.
  View OneDocument(int64_t rows = kShape.seq_len) {
    const View first_visible = Tensor(rows, 1, DType::kI32);
    std::memset(first_visible.data, 0, static_cast<size_t>(first_visible.bytes()));
    return first_visible;
  }

  // All that the device has to say; warnings begin with "!".
  std::vector<std::string> Remarks() {
    std::vector<std::string> remarks;
    for (auto remark = device_->NextRemark(); remark.text != nullptr;
         remark = device_->NextRemark()) {
      remarks.push_back(std::string(remark.is_warning ? "!" : "") + remark.text);
    }
    return remarks;
  }

  int64_t runs() const { return Fake().runs - before_.runs; }
  const WeftFakeCudnn& before() const { return before_; }
  int64_t plans() const { return Fake().plans - before_.plans; }

  std::unique_ptr<Device> device_;

 private:
  WeftFakeCudnn before_;
  std::vector<std::vector<char>> blocks_;
};

TEST_F(AttentionPathTest, TakesCudnnForWholeSequencesOf16Bits) {
  Open({});
  EXPECT_EQ(Prepare(kShape, DType::kBf16), "cuDNN 9.19.0");
  EXPECT_EQ(plans(), 2);
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  EXPECT_EQ(runs(), 4);
  EXPECT_EQ(plans(), 2) << "a shape is compiled once, and before the first call";
  EXPECT_TRUE(Run(kShape, DType::kF16).ok());
  EXPECT_EQ(plans(), 4);
  AttentionShape apart = kShape;  // columns of a wider matrix
  apart.query_row_stride = apart.key_row_stride =
      (kShape.heads + 2 * kShape.kv_heads) * kShape.head_dim;
  EXPECT_EQ(Prepare(apart, DType::kBf16), "cuDNN 9.19.0");
  EXPECT_TRUE(Run(apart, DType::kBf16).ok());
  EXPECT_EQ(plans(), 6) << "strides are a part of what is compiled";
  EXPECT_EQ(runs(), 8);
}

TEST_F(AttentionPathTest, LeavesTheRestToItsOwnKernelsAndSaysWhy) {
  Open({});
  AttentionShape narrow = kShape, part = kShape, one = kShape,
                 columns = OnRank(OfLength(kShape, 512), 2, 0);
  columns.key_row_stride = 2 * 64;
  AttentionShape odd = kShape;
  odd.query_row_stride = kShape.heads * kShape.head_dim + 4;
  narrow.head_dim = 32;
  one.seq_len = 1;
  part.runs = 4;
  part.pieces = 2;
  part.piece[1] = 3;
  const struct {
    AttentionShape shape;
    DType dtype;
    bool masks_documents;
    const char* why;
  } cases[] = {{kShape, DType::kF32, false, "elements are fp32"},
               {narrow, DType::kBf16, false, "heads are of 32 elements, not of 64 or 128"},
               {one, DType::kBf16, false, "sequences are of one position"},
               {part, DType::kBf16, false,
                "runs of 2 positions, of which a rank has two (cp), are not a multiple of 128"},
               {OnRank(OfLength(kShape, 512), 2, 0), DType::kBf16, true,
                "queries see a document or a window, and a rank has a part of them (cp)"},
               {columns, DType::kBf16, false, "keys of a part of the queries lie in columns"},
               {odd, DType::kBf16, false, "start on no multiples of 16 bytes"},
               {kShape, DType::kBf16, true, "or more documents than cuDNN is asked for"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.why);
    EXPECT_THAT(Prepare(c.shape, c.dtype, c.masks_documents),
                AllOf(HasSubstr("kernels of weft's own: "), HasSubstr(c.why)));
    View first_visible;
    if (c.masks_documents) {
      first_visible = Tensor(c.shape.query_len(), 1, DType::kI32);
      std::memset(first_visible.data, 0, static_cast<size_t>(first_visible.bytes()));
    }
    EXPECT_TRUE(Run(c.shape, c.dtype, first_visible).ok());
  }
  EXPECT_EQ(runs(), 0);
  EXPECT_EQ(plans(), 0);
}

// For each of both passes two kernels, over all keys and over those up to the first run's end.
TEST_F(AttentionPathTest, TakesCudnnForTheRunsOfARank) {
  Open({});
  const AttentionShape first = OnRank(OfLength(kShape, 512), 2, 0),
                       second = OnRank(OfLength(kShape, 512), 2, 1);
  EXPECT_EQ(Prepare(first, DType::kBf16), "cuDNN 9.19.0");
  EXPECT_EQ(plans(), 4);
  EXPECT_EQ(Prepare(second, DType::kBf16), "cuDNN 9.19.0");
  EXPECT_EQ(plans(), 8) << "other numbers of keys";
  EXPECT_TRUE(Run(first, DType::kBf16).ok());
  EXPECT_TRUE(Run(second, DType::kBf16).ok());
  EXPECT_EQ(runs(), 8);
  EXPECT_EQ(plans(), 8) << "before the first call";
  EXPECT_THAT(Remarks(), IsEmpty());
}

// Where heads share keys the kernel over all keys takes most, else the one that adds gradients.
TEST_F(AttentionPathTest, FindsThePlannedScratchEnoughForRunsWithoutTheSlack) {
  for (const int64_t kv_heads : {1, 2}) {
    SCOPED_TRACE(kv_heads);
    const int64_t planned = CudnnAttentionScratchFloats({.batch = kShape.batch,
                                                         .seq_len = 1024,
                                                         .heads = kShape.heads,
                                                         .kv_heads = kv_heads,
                                                         .head_dim = kShape.head_dim,
                                                         .cp = 2}) -
                            kCudnnAttentionSlackBytes / 4;
    bool is_all_needed = false;
    for (const int64_t rank : {0, 1}) {
      AttentionShape shape = OnRank(OfLength(kShape, 1024), 2, rank);
      shape.kv_heads = kv_heads;
      Open({});
      EXPECT_EQ(Prepare(shape, DType::kBf16, false, planned), "cuDNN 9.19.0");
      const std::string with_less = Prepare(shape, DType::kBf16, false, planned - 1);
      is_all_needed = is_all_needed || with_less.find("needs ") != std::string::npos;
    }
    EXPECT_TRUE(is_all_needed);
  }
}

// A rank of which one pass has too little scratch leaves both to weft's own kernels: statistics lie
// by run.
TEST_F(AttentionPathTest, ComputesBothPassesOverRunsByOneOrNeitherByCudnn) {
  Open({});
  const AttentionShape shape = OnRank(OfLength(kShape, 512), 2, 0);
  EXPECT_THAT(Prepare(shape, DType::kBf16, false, 6000),
              AllOf(HasSubstr("kernels of weft's own: cuDNN 9.19.0 needs "),
                    HasSubstr("bytes of scratch here, the plan has 24000"),
                    Not(HasSubstr("its gradient"))));
  EXPECT_THAT(Remarks(), ElementsAre(HasSubstr("!attention is computed by weft's own kernels")));
  EXPECT_TRUE(Run(shape, DType::kBf16, {}, 6000).ok());
  EXPECT_EQ(runs(), 0);
}

TEST_F(AttentionPathTest, TakesCudnnForAsManyDocumentsAsItIsPreparedFor) {
  Open({});
  AttentionShape shape = kShape;
  for (const int64_t bound : {1, 2, 4}) {
    shape.documents = bound;
    EXPECT_EQ(Prepare(shape, DType::kBf16, true), "cuDNN 9.19.0");
  }
  EXPECT_EQ(plans(), 6);
  EXPECT_THAT(Remarks(), IsEmpty());
  for (const int64_t bound : {1, 2, 4}) {
    shape.documents = bound;
    EXPECT_TRUE(Run(shape, DType::kBf16, OneDocument()).ok());
  }
  EXPECT_EQ(runs(), 6);
  shape.documents = 0;
  EXPECT_TRUE(Run(shape, DType::kBf16, OneDocument()).ok());
  EXPECT_EQ(runs(), 6) << "nobody knows how many there are";
  EXPECT_EQ(plans(), 6);
  EXPECT_EQ(Fake().impossible_runs, before().impossible_runs);
}

// The statistics that cuDNN leaves lie in an order of its own. Scratch for the forward pass alone.
TEST_F(AttentionPathTest, ComputesBothPassesOverDocumentsByOneOrNeitherByCudnn) {
  Open({});
  AttentionShape shape = kShape;
  shape.seq_len = 64;
  shape.documents = 2;
  EXPECT_THAT(Prepare(shape, DType::kBf16, true, 6000),
              AllOf(HasSubstr("kernels of weft's own: cuDNN 9.19.0 needs "),
                    HasSubstr("bytes of scratch here, the plan has 24000"),
                    Not(HasSubstr("its gradient"))));
  EXPECT_THAT(Remarks(), ElementsAre(HasSubstr("!attention is computed by weft's own kernels")));
  EXPECT_TRUE(Run(shape, DType::kBf16, OneDocument(shape.seq_len), 6000).ok());
  EXPECT_EQ(runs(), 0);
}

TEST_F(AttentionPathTest, LeavesDocumentsToItsOwnKernelsWhereCudnnHasFaultsAndWarnsOnce) {
  emulation::compute_capability = 80;
  Open({});
  emulation::compute_capability = 90;
  AttentionShape shape = kShape;
  for (const int64_t bound : {1, 2}) {
    shape.documents = bound;
    EXPECT_THAT(Prepare(shape, DType::kBf16, true),
                HasSubstr("kernels of weft's own: documents do not see each other, which cuDNN "
                          "serves on compute capability 9 and 10 alone, not on 8"));
  }
  EXPECT_EQ(Remarks().size(), 1U);
  EXPECT_TRUE(Run(shape, DType::kBf16, OneDocument()).ok());
  EXPECT_EQ(runs(), 0);
  EXPECT_TRUE(CheckDocuments(91801, 9).ok());
  EXPECT_TRUE(CheckDocuments(92600, 10).ok());
  EXPECT_THAT(CheckDocuments(91800, 9).text, HasSubstr("before 9.18.1"));
  EXPECT_THAT(CheckDocuments(92600, 12).text, HasSubstr("not on 12"));
}

// In sequences so long that the gradient takes more than the forward pass.
TEST_F(AttentionPathTest, FindsThePlannedScratchEnoughForDocumentsWithoutTheSlack) {
  AttentionShape shape = kShape;
  shape.seq_len = 64;
  shape.documents = 4;
  const int64_t planned = CudnnAttentionScratchFloats({.batch = shape.batch,
                                                       .seq_len = shape.seq_len,
                                                       .heads = shape.heads,
                                                       .kv_heads = shape.kv_heads,
                                                       .head_dim = shape.head_dim,
                                                       .documents = shape.documents}) -
                          kCudnnAttentionSlackBytes / 4;
  Open({});
  EXPECT_EQ(Prepare(shape, DType::kBf16, true, planned), "cuDNN 9.19.0");
  EXPECT_TRUE(Run(shape, DType::kBf16, OneDocument(shape.seq_len), planned).ok());
  EXPECT_EQ(runs(), 2);
  Open({});
  EXPECT_THAT(Prepare(shape, DType::kBf16, true, planned - 1), HasSubstr("needs "));
}

TEST_F(AttentionPathTest, RefusesBoundsOfDocumentsThatCannotBe) {
  Open({});
  AttentionShape shape = kShape;
  shape.documents = 1;
  EXPECT_THAT(Run(shape, DType::kBf16).text, HasSubstr("Attention"));
  shape.batch = 2;
  EXPECT_THAT(Run(shape, DType::kBf16, OneDocument(2 * shape.seq_len)).text,
              HasSubstr("Attention"));
}

TEST_F(AttentionPathTest, NeedsScratchForTheGradientAlone) {
  Open({});
  EXPECT_THAT(Prepare(kShape, DType::kBf16, false, 512),
              AllOf(HasSubstr("cuDNN 9.19.0, its gradient by kernels of weft's own: cuDNN 9.19.0 "
                              "needs "),
                    HasSubstr("bytes of scratch here, the plan has 2048")));
  EXPECT_TRUE(Run(kShape, DType::kBf16, {}, 512).ok());
  EXPECT_EQ(runs(), 1);
}

// The plan's scratch, and an algorithm that wants as much more as there is slack; then one byte
// more than that, which only the second proposal can do without.
TEST_F(AttentionPathTest, MakesDoWithThePlannedScratchWhereAnotherVersionWantsMore) {
  const int64_t planned = CudnnAttentionScratchFloats({.batch = kShape.batch,
                                                       .seq_len = kShape.seq_len,
                                                       .heads = kShape.heads,
                                                       .kv_heads = kShape.kv_heads,
                                                       .head_dim = kShape.head_dim});
  for (const int64_t beyond : {0, 1}) {
    SCOPED_TRACE(beyond);
    SetUp();
    Fake().more_workspace_bytes[0] = kCudnnAttentionSlackBytes + beyond;
    Open({});
    EXPECT_EQ(Prepare(kShape, DType::kBf16, false, planned), "cuDNN 9.19.0");
    EXPECT_THAT(Remarks(), IsEmpty());
    EXPECT_EQ(plans(), 2 + beyond);
    EXPECT_TRUE(Run(kShape, DType::kBf16, {}, planned).ok());
    EXPECT_EQ(runs(), 2);
  }
}

TEST_F(AttentionPathTest, WarnsWhereNoProposalMakesDoWithThePlannedScratch) {
  Fake().more_workspace_bytes[0] = 9000;
  Fake().more_workspace_bytes[1] = 8000;
  Open({});
  // dq 4096, sums 256, own 256, dk and dv of each head 4096, alignment 192
  Prepare(kShape, DType::kBf16, false, 10000 / 4);
  EXPECT_THAT(Remarks(),
              ElementsAre("!attention's gradient is computed by weft's own kernels, which are "
                          "slower, where the plan has made room for cuDNN's: cuDNN 9.19.0 needs "
                          "16896 bytes of scratch here, the plan has 10000"));
  EXPECT_THAT(Remarks(), IsEmpty()) << "each is said once";
  const int64_t descriptors = Fake().descriptors;
  EXPECT_TRUE(Run(kShape, DType::kBf16, {}, 10000 / 4).ok());
  EXPECT_EQ(Fake().descriptors, descriptors) << "nothing is compiled again";
  EXPECT_EQ(runs(), 1);
}

TEST_F(AttentionPathTest, WarnsOnlyOfWhatThePlanDidNotExpect) {
  Open({});
  Prepare(kShape, DType::kF32);
  Prepare(kShape, DType::kBf16, true);
  EXPECT_THAT(Remarks(), IsEmpty());
  for (const DeviceOptions& options :
       {DeviceOptions{.deterministic = true}, DeviceOptions{.attention = AttentionKind::kOwn}}) {
    Open(options);
    Prepare(kShape, DType::kBf16);
    EXPECT_THAT(Remarks(), IsEmpty());
  }
  Fake().refuses_handles = true;
  Open({});
  Prepare(kShape, DType::kBf16);
  EXPECT_THAT(Remarks(), ElementsAre(HasSubstr("!attention is computed by weft's own kernels")));
}

TEST_F(AttentionPathTest, DoesWithoutCudnnWhereItRefuses) {
  Fake().refuses_plans = true;
  Open({});
  EXPECT_THAT(Prepare(kShape, DType::kBf16),
              HasSubstr("kernels of weft's own: cuDNN: compiling a plan failed"));
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  Fake().refuses_handles = true;
  Open({});
  EXPECT_THAT(Prepare(kShape, DType::kBf16),
              HasSubstr("kernels of weft's own: cuDNN: cudnnCreate failed"));
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  EXPECT_EQ(runs(), 0);
}

TEST_F(AttentionPathTest, AFailedRunIsAFailureAndNotTakenTwice) {
  Open({});
  Fake().fails_runs = true;
  EXPECT_THAT(Run(kShape, DType::kBf16).text, HasSubstr("cuDNN: running a plan failed"));
}

TEST_F(AttentionPathTest, IsWeftsOwnIfThatOrBitsThatRepeatAreAskedFor) {
  Open({.attention = AttentionKind::kOwn});
  EXPECT_EQ(Prepare(kShape, DType::kBf16), "kernels of weft's own: they are asked for");
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  Open({.deterministic = true});
  EXPECT_THAT(Prepare(kShape, DType::kBf16), HasSubstr("kernels of weft's own: deterministic"));
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  EXPECT_EQ(runs(), 0);
  EXPECT_THAT(
      OpenCudaDevice({.deterministic = true, .attention = AttentionKind::kCudnn}, &device_).text,
      HasSubstr("WEFT_ATTENTION): deterministic is asked for"));
}

TEST_F(AttentionPathTest, FailsWhereCudnnAloneIsAskedForAndDoesNotServe) {
  Open({.attention = AttentionKind::kCudnn});
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  EXPECT_EQ(runs(), 2);
  EXPECT_THAT(Run(kShape, DType::kF32).text, HasSubstr("elements are fp32"));
  Fake().refuses_handles = true;
  EXPECT_THAT(OpenCudaDevice({.attention = AttentionKind::kCudnn}, &device_).text,
              HasSubstr("cudnnCreate failed"));
}

TEST_F(AttentionPathTest, LeavesNothingBehind) {
  const int64_t descriptors = Fake().descriptors, handles = Fake().handles;
  Open({});
  EXPECT_TRUE(Run(kShape, DType::kBf16).ok());
  EXPECT_GT(Fake().descriptors, descriptors);
  device_.reset();
  EXPECT_EQ(Fake().descriptors, descriptors);
  EXPECT_EQ(Fake().handles, handles);
}

TEST(CudnnLibrary, IsRefusedOfAnotherCuda) {
  EXPECT_TRUE(CheckCudnnCuda(91900, 13010, 13000).ok());
  EXPECT_THAT(CheckCudnnCuda(91900, 12090, 13000).text,
              HasSubstr("cuDNN 9.19.0 that loads is of CUDA 12, weft of CUDA 13; name the folder"));
}

}  // namespace
}  // namespace weft
