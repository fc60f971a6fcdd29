#include "bench/simulated_host.h"

#include <unistd.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/rpc.h"
#include "process/version.h"

namespace weft {

absl::Status SimulatedHost::Dial(const std::string& target) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, OpenChannel(target));
  stub_ = proto::FleetLink::NewStub(channel);
  stub_->async()->Offer(&context_, this);
  proto::OfferReport report;
  proto::HostOffer& offer = *report.mutable_offer();
  offer.set_wire_version(kWireVersion);
  offer.set_version(Version());
  offer.set_host(host_);
  offer.set_machine(absl::StrCat("machine-", host_));
  offer.set_pid(getpid());
  offer.set_slots(slots_);
  offer.mutable_host_has()->add_addresses("10.0.0.1");
  offer.set_sent_boot_ms(BootTimeMs());
  AddHold();
  StartRead(&order_);
  Say(std::move(report));
  StartCall();
  dialed_ = true;
  return absl::OkStatus();
}

SimulatedHost::~SimulatedHost() {
  if (!dialed_) return;
  context_.TryCancel();
  RemoveHold();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

void SimulatedHost::Beat() {
  proto::OfferReport report;
  report.mutable_heartbeat()->set_sent_boot_ms(BootTimeMs());
  Say(std::move(report));
}

void SimulatedHost::OnReadDone(bool ok) {
  if (!ok) return;
  if (order_.has_start_agent()) on_start_(order_.start_agent());
  StartRead(&order_);
}

void SimulatedHost::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.pop_front();
  if (ok && !queue_.empty()) StartWrite(&queue_.front());
}

void SimulatedHost::OnDone(const grpc::Status&) {
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void SimulatedHost::Say(proto::OfferReport report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(report));
  if (queue_.size() == 1) StartWrite(&queue_.front());
}

}  // namespace weft
