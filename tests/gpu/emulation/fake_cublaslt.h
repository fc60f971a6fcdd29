// This file has what the tests tell the cuBLASLt that plays in the emulation, and what they ask it.
#pragma once
#include <cublasLt.h>

#include <vector>

namespace weft::emulation {

// Cuts the inner dim into `splits` parts, whose sums it rounds and then adds: other bits. Several
// parts lie in the workspace, unless they are added in place.
struct FakeAlgorithm {
  int splits = 1;
  double run_ms = 1;      // by the emulated clock
  double odd_run_ms = 0;  // on every other handle, if above 0
  cublasLtReductionScheme_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  cublasStatus_t fails_with = CUBLAS_STATUS_SUCCESS;  // at each run, if that is another
  bool is_refused = false;  // among the proposals, with a state that says no
  uint32_t alignment = 1;   // of operands, in bytes; proposed if at least that is promised
  bool has_epilogues = true;
  bool fails_with_epilogues = false;  // at each run, with an epilogue
  // Instead of the others, with an epilogue or with one of GELU's, if above 0.
  double epilogue_ms = 0;
  double gelu_ms = 0;
};

// From now on, for all handles; for one thread. The ones with more than one split are of a scheme.
void SetAlgorithms(std::vector<FakeAlgorithm> algorithms);
// Sets the algorithms of the start: three, of which the first is never the fastest, and each other
// now and then.
void ResetAlgorithms();
// Runs of each algorithm so far since the last Set or Reset.
std::vector<int> RunsOfAlgorithms();
// Count the runs of products with such an epilogue, and of those that add another matrix than the
// one they write.
int RunsWith(cublasLtEpilogue_t epilogue);
int RunsThatAddAnother();
// Counts those of 8-bit floats with CUBLASLT_MATMUL_DESC_FAST_ACCUM.
int FastRuns();

}  // namespace weft::emulation
