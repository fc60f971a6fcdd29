// RankRelay is where the ranks of this host dial: a unix socket for this user alone. Whatever a
// rank says goes up as it came, and orders go down as they came; nothing is acknowledged, kept or
// repeated here, for both ends count their messages. Only heartbeats end here, and here leases are
// handed on.
//
// As long as there is no stream to the coordinator, ranks are sent away and come again.
// Thread-safe.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/agent.pb.h"

namespace weft {

class RankRelay final {
 public:
  // Their words go up by `send`, which returns false if there is no room; it is called with a
  // lock of the relay's held and must not block. Listens at `socket_path`, which must not exist
  // yet. `now_ms`: the clock of leases, from any thread. `ranks_user`: as whom ranks run, where
  // that is not this user.
  using SendUp = std::function<bool(const proto::AgentReport& report)>;
  static absl::StatusOr<std::unique_ptr<RankRelay>> Start(const std::string& socket_path,
                                                          std::function<int64_t()> now_ms,
                                                          SendUp send,
                                                          std::optional<uid_t> ranks_user = {});
  ~RankRelay();  // cuts all streams
  RankRelay(const RankRelay&) = delete;
  RankRelay& operator=(const RankRelay&) = delete;

  // A stream to the coordinator is there.
  void Open();
  // It is not any more: all ranks are sent away, and nothing goes up before Open.
  void Close();

  // ToRanks and HangUp; streams that are gone are left out.
  void TakeOrder(const proto::AgentOrder& order);
  // Told to every rank, and to each that comes later.
  void SetLease(const proto::Lease& lease);
  // The streams that were heard since the last call.
  std::vector<int64_t> TakeHeard();

 private:
  struct Door;  // the gRPC part
  explicit RankRelay(std::unique_ptr<Door> door);
  const std::unique_ptr<Door> door_;
};

}  // namespace weft
