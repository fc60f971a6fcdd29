#include "coordinator/service/offer_door.h"

#include <memory>
#include <optional>
#include <utility>

#include "process/clock.h"
#include "process/outbox.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr size_t kMaxOfferOrders = 10000;

class OfferStream final : public grpc::ServerBidiReactor<proto::OfferReport, proto::OfferOrder> {
 public:
  OfferStream(FleetDriver& fleet, int64_t id, Caller caller)
      : fleet_(fleet),
        id_(id),
        caller_(std::move(caller)),
        outbox_(std::make_shared<Box>(this, kMaxOfferOrders)) {
    fleet_.AttachOffer(
        id_, {.send = [box = outbox_](const proto::OfferOrder& order) { box->Send(order); },
              .close = [box = outbox_](const absl::Status& why) { box->Close(why); }});
    StartRead(&report_);
  }

  void OnReadDone(bool ok) override {
    if (ok && Take()) {
      report_.Clear();
      StartRead(&report_);
      return;
    }
    fleet_.leases().Dismiss(id_);
    fleet_.DetachOffer(id_);
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
      // On a socket the kernel says who it is.
      if (report_.has_offer() && caller_.uid >= 0) {
        report_.mutable_offer()->set_owner_uid(caller_.uid);
        report_.mutable_offer()->set_owner(caller_.name);
      }
      return fleet_.TakeOffer(id_, std::move(report_));
    }
    const std::optional<int64_t> lease_ms = fleet_.leases().Grant(id_, BootTimeMs());
    if (!lease_ms) return true;  // it has offered nothing, or is turned away
    proto::OfferOrder order;
    order.mutable_lease()->set_sent_boot_ms(report_.heartbeat().sent_boot_ms());
    order.mutable_lease()->set_lease_ms(*lease_ms);
    outbox_->Send(order);
    return true;
  }

  FleetDriver& fleet_;
  const int64_t id_;
  const Caller caller_;
  const std::shared_ptr<Box> outbox_;
  proto::OfferReport report_;
};

}  // namespace

grpc::ServerBidiReactor<proto::OfferReport, proto::OfferOrder>* OfferDoor::Offer(
    grpc::CallbackServerContext* context) {
  return new OfferStream(fleet_, ++ids_, find_(*context));
}

}  // namespace weft
