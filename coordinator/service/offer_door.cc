#include "coordinator/service/offer_door.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "process/clock.h"
#include "process/log.h"
#include "process/outbox.h"
#include "process/rpc.h"
#include "process/tls.h"

namespace weft {
namespace {

constexpr size_t kMaxOfferOrders = 10000;

class OfferStream final : public grpc::ServerBidiReactor<proto::OfferReport, proto::OfferOrder> {
 public:
  // A stream may be open for longer than its certificate is good for: `welcome` says whether it is.
  OfferStream(FleetDriver& fleet, int64_t id, Caller caller, std::function<absl::Status()> welcome)
      : fleet_(fleet),
        id_(id),
        caller_(std::move(caller)),
        welcome_(std::move(welcome)),
        outbox_(std::make_shared<Box>(this, kMaxOfferOrders)) {
    fleet_.AttachOffer(
        id_, {.send = [box = outbox_](const proto::OfferOrder& order) { box->Send(order); },
              .close = [box = outbox_](const absl::Status& why) { box->Close(why); }});
    StartRead(&report_);
  }

  void OnReadDone(bool ok) override {
    bool has_room = true;
    const absl::Status tried = Caught("Offer", [&] { has_room = ok && Take(); });
    if (ok && has_room && tried.ok()) {
      report_.Clear();
      StartRead(&report_);
      return;
    }
    fleet_.leases().Dismiss(id_);
    fleet_.DetachOffer(id_);
    if (!tried.ok()) return outbox_->Close(tried);
    outbox_->Close(ok ? absl::UnavailableError("weftd is busy or closing; come back")
                      : absl::OkStatus());
  }
  void OnWriteDone(bool ok) override { outbox_->WriteDone(ok); }
  void OnDone() override {
    outbox_->ReactorIsGone();
    delete this;  // gRPC's callback API: a reactor owns itself
  }

 private:
  using Box = Outbox<OfferStream, proto::OfferOrder>;

  // False if there is no room for what was said.
  bool Take() {
    if (!report_.has_heartbeat()) {
      const absl::Status is_it = report_.has_offer() ? CheckOwner() : absl::OkStatus();
      if (is_it.ok()) return fleet_.TakeOffer(id_, std::move(report_));
      outbox_->Close(is_it);
      return true;
    }
    const absl::Status welcome = welcome_();
    if (!welcome.ok()) {
      fleet_.leases().Dismiss(id_);
      outbox_->Close(welcome);
      return true;
    }
    const std::optional<int64_t> lease_ms = fleet_.leases().Grant(id_, BootTimeMs());
    if (!lease_ms) return true;  // it has offered nothing, or is turned away
    proto::OfferOrder order;
    order.mutable_lease()->set_sent_boot_ms(report_.heartbeat().sent_boot_ms());
    order.mutable_lease()->set_lease_ms(*lease_ms);
    outbox_->Send(order);
    return true;
  }

  // On a socket the kernel says whose host it is; over TLS the certificate says which one.
  absl::Status CheckOwner() {
    if (caller_.uid < 0) return CheckPeerIs(caller_.name, report_.offer().host());
    report_.mutable_offer()->set_owner_uid(caller_.uid);
    report_.mutable_offer()->set_owner(caller_.name);
    return absl::OkStatus();
  }

  FleetDriver& fleet_;
  const int64_t id_;
  const Caller caller_;
  const std::function<absl::Status()> welcome_;
  const std::shared_ptr<Box> outbox_;
  proto::OfferReport report_;
};

class RefusedOffer final : public grpc::ServerBidiReactor<proto::OfferReport, proto::OfferOrder> {
 public:
  explicit RefusedOffer(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

absl::Status CheckMayOffer(const Caller& caller) {
  if (MayOffer(caller)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      CallerText(caller), " may not offer a host; use a bundle of `weftd issue agent`, ",
      "or on weftd's host --user=NAME=agent"));
}

}  // namespace

grpc::ServerBidiReactor<proto::OfferReport, proto::OfferOrder>* OfferDoor::Offer(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = find_(*context);
  const absl::Status may = caller.ok() ? CheckMayOffer(*caller) : caller.status();
  if (!may.ok()) {
    LogWarning(absl::StrCat("denied: Offer: ", may.message()));
    return new RefusedOffer(may);
  }
  const absl::StatusOr<std::vector<CertificateFacts>> shown = PeerCertificates(*context);
  if (!shown.ok()) return new RefusedOffer(shown.status());
  return new OfferStream(fleet_, ++ids_, *caller, [certificates = *shown, file = revoked_file_] {
    return CheckStillWelcome(certificates, file);
  });
}

}  // namespace weft
