// ParityJob: the small job that every parity test trains, as a file that three readers share: the
// test that writes it, the ranks, and the NumPy model of tests/reference.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// Bugs that the test plants on purpose, to prove that its comparison sees them (planted.h).
enum class PlantedBug {
  kNone,
  kDoubledGradient,          // rank 0 adds one bias gradient twice
  kNormNotReduced,           // each rank clips by its own part of the gradient norm
  kTensorNotReduced,         // the input gradient of q, k and v is not summed over tp
  kMicrobatchWeight,         // one microbatch counts 1 % too much
  kTiedNotReduced,           // first and last stage keep their own part of the embedding's gradient
  kKvNotReduced,             // ranks that share a kv head keep their own part of its gradient
  kRotaryOffset,             // rank 0 turns its queries as if they stood one position later
  kWeightSkipped,            // rank 0 leaves out one microbatch's gradient of one weight
  kChunksSwapped,            // rank 0 runs its two chunks of one block each in the wrong order
  kStaleTransfer,            // rank 0 sends one microbatch's activations twice, another's never
  kPartShifted,              // what owners get of a bucket's gradients begins one element too late
  kNotGathered,              // owners keep their new weights to themselves, after the first gathers
  kStaleRecompute,           // rank 0 makes a block's activations again from the next block's input
  kHeadPieceSkipped,         // the last piece of a microbatch's logits leaves no gradient
  kNormPartsNotReduced,      // tp ranks keep their own tokens' part of the gradients of norms
  kHeadNormsNotReduced,      // tp ranks keep their own heads' part of those of norms of heads
  kStaleGather,              // some gathers of tokens leave the other ranks' rows as they were
  kLastReductionNotAwaited,  // the optimizer does not wait for the gradients started last
  kStaleKeys,                // rank 0 takes others' keys or values from the gather before, at times
  kPiecesSwapped,            // rank 0 takes its two runs of a sequence for each other
  kFactorsNotReduced,        // each rank averages the squares of its own part of a tensor
  kVectorsCountedTwice,      // rank 0 adds the squares of vectors twice
  kWindowOffByOne,           // rank 0's queries see one key more than their window has
  kOneRotaryTable,           // rank 0 turns the heads of all blocks by the first one's angles
  kCapSlopeLeftOut,          // rank 0 takes capped logits for plain ones in their gradient
  kKvHeadCountedTwice,       // copies of a kv head count once each in a mean over all heads
  kWideMeansNotReduced,      // tp ranks norm queries and keys by their own heads' mean products
  kBranchLeftOut,            // rank 0 leaves the second of two terms out of a sum
  kLeak,                     // rank 0 keeps 1,000 bytes of the heap at every product
  kScratch,                  // rank 0 takes and gives back 1 MiB of the heap at every product
  kMapping,                  // rank 0 maps a page at every product
};

// Ranks of a training are threads or processes.
enum class Ranks {
  kThreads,    // of one process: every layout
  kProcesses,  // under mpirun, as weft-worker's are: what MPI and a process of its own do
};

struct ParityJob {
  JobSpec job;
  Layout layout;
  Ranks ranks = Ranks::kThreads;
  bool wrapped = false;  // run behind planted.h's wrappers even without a bug
  PlantedBug bug = PlantedBug::kNone;
  bool painted = false;  // prove its buffers exact (tests/worker/painting_device.h)
  // Ranks count what they allocate, by step (allocations.h). REQUIRES: they are processes.
  bool counts_allocations = false;
};

// Real English text that every Debian machine has (base-files).
inline constexpr char kTextFile[] = "/usr/share/common-licenses/GPL-3";

// A GPT-2 of 4 blocks, D 64, bytes as tokens, T 32, 8 sequences a step, on kTextFile. AdamW at
// 1e-3, 20 steps.
JobSpec EnglishJob();

// The same with a Llama: 4 heads of 24 that share 2 kv heads, positions stretched within the
// sequence, biases in attention, a head of its own.
JobSpec EnglishLlamaJob();
// The same with the mechanisms of another family ("qwen3", "gemma2"), and with keys of its own that
// differ from what silence means; parity_job.cc has the table. REQUIRES: EnglishFamilies has it.
JobSpec EnglishJobOf(absl::string_view family);
// Names of all of them, "gpt2" and "llama", the two above, first.
std::vector<std::string> EnglishFamilies();

JobSpec In(Precision precision, JobSpec job);

// `layout` with as many microbatches as the job's global batch needs.
Layout Fitted(const JobSpec& job, Layout layout);

std::string ParityJobText(const ParityJob& parity);  // JSON
absl::StatusOr<ParityJob> ReadParityJob(const std::string& path);

}  // namespace weft
