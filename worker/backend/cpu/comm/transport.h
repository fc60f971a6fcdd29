// Transport: point-to-point messages between ranks, all that the collectives of collectives.h ask
// for. Nothing here waits: a transfer is started, then asked about until it is done. Between a
// pair of ranks, messages of one tag arrive in the order in which they were started.
//
// MPI is one transport (mpi_transport.h); the tests have another, in which ranks are threads.
// Used by one thread per rank at a time.
#pragma once
#include <chrono>
#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // Longer messages are for the caller to split.
  virtual int64_t max_message_bytes() const = 0;

  // Starts a transfer of 1..max_message_bytes() bytes, which must stay where they are until it is
  // done or cancelled; *request names it until then.
  virtual BackendStatus Send(int peer, int tag, const void* data, int64_t bytes, int* request) = 0;
  virtual BackendStatus Receive(int peer, int tag, void* data, int64_t bytes, int* request) = 0;
  // Fails if the peer is known to be gone, or sent another number of bytes.
  virtual BackendStatus Test(int request, bool* done) = 0;
  // After a failure: gives the transfer up. The peer is not told.
  virtual void Cancel(int request) = 0;

  // Sleeps until a transfer of this rank may have got done since *seen was written, at most `most`,
  // and writes *seen, which is 0 at first. False, at once, where the transport cannot tell: then it
  // is asked again and again.
  virtual bool AwaitChange(int64_t* seen, std::chrono::microseconds most) {
    static_cast<void>(seen), static_cast<void>(most);
    return false;
  }
};

}  // namespace weft
