// Damaged files that are read in the process of the test: how often, by which seed, how they are
// damaged, and what reading them may take. WEFT_FUZZ_SEED names another sequence, WEFT_FUZZ_FACTOR
// multiplies how many there are.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "tests/fuzz/mutation.h"

namespace weft {

// Reading one takes no longer.
inline constexpr std::chrono::seconds kMostTimeOfFile(20);

// Returns how many to try where `cases` are tried of a factor of 1.
uint64_t FileTrials(uint64_t cases);

// The random numbers of one of them.
Random RandomOfTrial(uint64_t number);

// Bytes lost, doubled, flipped or cut off: a disk does so, and a proto's lengths do not survive it.
std::string DamagedOnDisk(std::string bytes, Random& random);

// Fails the test unless some trials, and not all of them, were good: damage that is never noticed
// and damage that always is would both prove little. Nor may this process have taken 1 GiB.
void ExpectBothEndsAndBoundedMemory(uint64_t num_good, uint64_t trials);

}  // namespace weft
