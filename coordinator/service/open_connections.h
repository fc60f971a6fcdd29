// OpenConnections counts the connections that each user of the socket has open, so that none takes
// all descriptors of weftd. One thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace weft {

class OpenConnections final {
 public:
  // `most`: of one user.
  explicit OpenConnections(size_t most) : most_(most) {}

  // Counts a connection that was accepted; whoever serves it closes it. False: the user has as many
  // as one may have, those that were closed since not counted; the caller closes it then.
  bool Take(int64_t uid, int connection);
  // Says whether a refusal is news, which it is once in ten seconds for each user. `now_ms` never
  // goes back.
  bool IsNews(int64_t uid, int64_t now_ms);

 private:
  struct User {
    std::vector<std::pair<int, ino_t>> open;  // a descriptor, and the socket that it was then
    int64_t told_ms = -1;                     // -1: never
  };

  const size_t most_;
  std::map<int64_t, User> users_;
};

}  // namespace weft
