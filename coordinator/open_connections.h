// OpenConnections counts the connections that each user of a socket, or each address of the
// network, has open, so that none takes all descriptors of weftd. One thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// Returns the number of the socket that a descriptor is. 0: it is closed. A descriptor that was
// given away again is another socket, or none.
ino_t SocketOf(int descriptor);

class OpenConnections final {
 public:
  // `most`: of one peer.
  explicit OpenConnections(int most) : most_(static_cast<size_t>(most)) {}

  // Counts a connection of `peer`, "user 1000", that was accepted, or closes it: the peer has as
  // many as one may have, those that were closed since not counted. That is logged once in ten
  // seconds for each. True: whoever serves it closes it. `now_ms` never goes back.
  bool Take(const std::string& peer, int connection, int64_t now_ms);
  // The same without closing what is too many.
  bool Count(const std::string& peer, int connection, int64_t now_ms);
  // A connection counts for the peer no more.
  void Forget(const std::string& peer, int connection);
  // Returns how many peers are known, those that are gone and not yet forgotten too.
  size_t peers() const { return peers_.size(); }

 private:
  struct Peer {
    std::vector<std::pair<int, ino_t>> open;  // a descriptor, and the socket that it was then
    int64_t told_ms = -1;                     // -1: never
  };
  void Refuse(const std::string& name, int64_t now_ms, Peer* peer) const;
  void ForgetWhoIsGone();

  const size_t most_;
  std::map<std::string, Peer> peers_;
  size_t forget_at_ = 1000;
};

}  // namespace weft
