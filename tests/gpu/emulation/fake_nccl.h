// The stand-in for NCCL (fake_nccl.cc, a libnccl.so.2) offers this beside NCCL's own entry points:
// faults on demand, and counts. Found with dlsym, as it is loaded.
#pragma once
#include <cstdint>

extern "C" {
// At the `call`-th collective or exchange of rank `rank` in this process (counted from 1, over all
// its communicators), or of each rank if that is -1:
//   "hang"   it never begins: the communicator stays in progress
//   "late"   it is queued and never ends: its stream stays busy
//   "full"   so too, and its stream has no room for more
//   "stuck"  so too, and it does not leave when it is aborted
//   "error"  it is queued, and then the communicator reports a remote error; its stream stays busy
//   "refuse" the call itself fails
//   "unclean" all is well until the communicator is finalized, which reports a remote error
//   "die"    the process is killed
// The same comes from the environment of a process, WEFT_FAKE_NCCL="RANK CALL FAULT".
// An earlier plant is taken back.
void WeftFakeNcclPlant(int rank, int64_t call, const char* fault);
// Whether NCCL_LAUNCH_ORDER_IMPLICIT asked for an order when this was first used; NCCL reads it
// once.
bool WeftFakeNcclKeepsOrder();
// Communicators that were made in this process and neither destroyed nor aborted.
int WeftFakeNcclOpen();
// Counts those of them that may take so many CTAs; INT_MIN: as many as NCCL takes by itself.
int WeftFakeNcclOpenWith(int most_ctas);
// Counts the threads that NCCL would have started for calls that move data: one for each call on a
// communicator that does not block.
int64_t WeftFakeNcclThreads();
// Calls in this process of an entry point that moves data, over all ranks ("ncclAllReduce"); of
// "ncclGroupEnd" those that end a group of transfers.
int64_t WeftFakeNcclCalls(const char* entry);
// Ids that were made in this process.
int WeftFakeNcclIds();
// Sets of resources that these hold: those that share count as one.
int WeftFakeNcclResources();
}
