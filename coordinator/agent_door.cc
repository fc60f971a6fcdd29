#include "coordinator/agent_door.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "coordinator/messages.h"
#include "plan/errors.h"
#include "process/authority.h"
#include "process/log.h"
#include "process/outbox.h"
#include "process/rpc.h"
#include "process/tls.h"

namespace weft {
namespace {

constexpr size_t kMaxOrders = 20000;  // waiting for one agent and its ranks

// The stream of an agent, and in it those of its ranks: each of them is a worker's stream to the
// driver, which does not know how they came. Leases are granted here, on the thread that hears the
// heartbeat.
class AgentStream final : public grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder> {
 public:
  // `welcome` says whether the peer's certificate still counts.
  AgentStream(const PlaceFinder& find, std::atomic<int64_t>& ids, AgentPeer peer,
              std::function<absl::Status()> welcome)
      : find_(find),
        ids_(ids),
        id_(++ids),
        peer_(std::move(peer)),
        welcome_(std::move(welcome)),
        outbox_(std::make_shared<Box>(this, kMaxOrders)) {
    StartRead(&report_);
  }

  void OnReadDone(bool ok) override {
    bool has_room = false;
    const absl::Status taken =
        ok ? Caught("an agent's report", [&] { has_room = Take(); }) : absl::OkStatus();
    if (!taken.ok()) End(taken);
    if (has_room) {
      report_.Clear();
      StartRead(&report_);
      return;
    }
    // The other side is through, or gone, or it says more than can be heard.
    if (driver_ != nullptr) {
      for (const int64_t id : AllRankIds()) driver_->Detach(id);
      driver_->leases().Dismiss(id_);
      driver_->DetachAgent(id_);
    }
    outbox_->Close(ok ? absl::UnavailableError("the coordinator is busy or closing; come back")
                      : absl::OkStatus());
  }
  void OnWriteDone(bool ok) override { outbox_->WriteDone(ok); }
  void OnDone() override {
    outbox_->ReactorIsGone();
    delete this;  // gRPC's callback API: a reactor owns itself
  }

 private:
  using Box = Outbox<AgentStream, proto::AgentOrder>;

  // False if there is no room for what was said.
  bool Take() {
    if (is_over_) return true;  // it may have more to say, and is not heard
    if (driver_ == nullptr) return !Choose() || driver_->TakeAgentReport(id_, std::move(report_));
    switch (report_.report_case()) {
      case proto::AgentReport::kHeartbeat:
        GrantLease();
        return driver_->Heard(id_, IdsOf(report_.heartbeat()));
      case proto::AgentReport::kFromRank:
        TakeFromRank(report_.from_rank());
        return true;
      case proto::AgentReport::kHello:
        End(absl::InvalidArgumentError("an agent says hello once on a stream"));
        return true;
      case proto::AgentReport::kRankHungUp:
        Forget(report_.rank_hung_up().stream());
        return true;
      default:
        return driver_->TakeAgentReport(id_, std::move(report_));
    }
  }

  // The first report says which job the agent is of. False: it is turned away.
  bool Choose() {
    absl::StatusOr<AgentPlace> place = FindPlace();
    if (!place.ok()) {
      LogWarning(absl::StrCat("an agent is turned away: ", place.status().message()));
      End(place.status());
      return false;
    }
    driver_ = std::move(place->driver);
    driver_->AttachAgent(
        id_,
        {.send = [box = outbox_](const proto::AgentOrder& order) { box->Send(order); },
         .close = [box = outbox_](const absl::Status& why) { box->Close(why); }},
        place->stay);
    return true;
  }

  absl::StatusOr<AgentPlace> FindPlace() const {
    if (!report_.has_hello()) {
      return absl::InvalidArgumentError("an agent has to say hello first");
    }
    if (peer_.uid < 0) RETURN_IF_ERROR(CheckPeerIs(peer_.name, report_.hello().host()));
    return find_(report_.hello(), peer_);
  }

  // Nothing of what comes after is heard.
  void End(const absl::Status& why) {
    is_over_ = true;
    outbox_->Close(why);
  }

  // A stream may be open for longer than its certificate is good for: with its lease it ends.
  void GrantLease() {
    const absl::Status welcome = welcome_();
    if (!welcome.ok()) {
      LogWarning(absl::StrCat("an agent gets no further lease: ", welcome.message()));
      driver_->leases().Dismiss(id_);
      return End(welcome);
    }
    const std::optional<int64_t> lease_ms =
        driver_->leases().Grant(id_, driver_->now_ms(), report_.heartbeat().has_promise());
    if (!lease_ms) return;  // it has not said hello, or is turned away
    outbox_->Send(LeaseOrder(report_.heartbeat().sent_boot_ms(), *lease_ms));
  }

  std::vector<int64_t> IdsOf(const proto::Heartbeat& heartbeat) const {
    std::vector<int64_t> ids;
    for (const int64_t stream : heartbeat.heard()) {
      if (const int64_t id = FindRankId(stream); id != 0) ids.push_back(id);
    }
    return ids;
  }

  void TakeFromRank(const proto::FromRank& message) {
    int64_t id = FindRankId(message.stream());
    bool has_room = true;
    if (id == 0) {
      id = ++ids_;
      KeepRankId(message.stream(), id);
      has_room = driver_->Attach(id, {.agent = id_, .stream = message.stream()});
    }
    proto::WorkerReport report;
    if (!report.ParseFromString(message.report())) {
      Cut(message.stream(), absl::InvalidArgumentError("this is no report of a worker"));
    } else if (!has_room || !driver_->Report(id, std::move(report))) {
      Cut(message.stream(),
          absl::UnavailableError("the coordinator is busy or closing; come back"));
    }
  }

  // The driver hears no more of it, whatever comes before the agent says that it has hung up.
  void Cut(int64_t stream, const absl::Status& why) {
    outbox_->Send(HangUpOrder(stream, why));
    driver_->Detach(FindRankId(stream));
  }

  void Forget(int64_t stream) {
    const int64_t id = FindRankId(stream);
    if (id == 0) return;
    driver_->Detach(id);
    DropRankId(stream);
  }

  // The driver's ids of the ranks' streams; 0: it has none.
  int64_t FindRankId(int64_t stream) const {
    const auto found = ranks_.find(stream);
    return found == ranks_.end() ? 0 : found->second;
  }
  std::vector<int64_t> AllRankIds() const {
    std::vector<int64_t> ids;
    for (const auto& [stream, id] : ranks_) ids.push_back(id);
    return ids;
  }
  void KeepRankId(int64_t stream, int64_t id) { ranks_[stream] = id; }
  void DropRankId(int64_t stream) { ranks_.erase(stream); }

  const PlaceFinder find_;
  std::shared_ptr<Driver> driver_;  // of its job; null before it says hello
  bool is_over_ = false;            // it is ended from here
  std::atomic<int64_t>& ids_;
  const int64_t id_;
  const AgentPeer peer_;
  const std::function<absl::Status()> welcome_;
  const std::shared_ptr<Box> outbox_;
  proto::AgentReport report_;
  std::map<int64_t, int64_t> ranks_;  // the driver's id of each; of OnReadDone alone
};

class RefusedStream final : public grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder> {
 public:
  explicit RefusedStream(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* AgentDoor::Attach(
    grpc::CallbackServerContext*) {
  return new AgentStream(find_, ids_, {.uid = uid_}, [] { return absl::OkStatus(); });
}

grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* RemoteAgentDoor::Attach(
    grpc::CallbackServerContext* context) {
  const auto shown = PeerCertificates(*context);
  if (!shown.ok()) return new RefusedStream(shown.status());
  const auto check = [certificates = *shown, file = revoked_file_] {
    return CheckStillWelcome(certificates, file);
  };
  // One that was issued before there were roles is an agent's.
  const std::string role = shown->empty() ? "" : shown->front().role;
  if (!role.empty() && role != RoleName(BundleRole::kAgent)) {
    return new RefusedStream(absl::PermissionDeniedError(
        absl::StrCat("the certificate of ", shown->front().name, " is a ", role,
                     "'s; an agent needs one of `weftd issue agent`")));
  }
  const absl::Status welcome = check();
  if (!welcome.ok()) return new RefusedStream(welcome);
  return new AgentStream(find_, ids_, {.name = PeerName(*context).value_or("")}, check);
}

}  // namespace weft
