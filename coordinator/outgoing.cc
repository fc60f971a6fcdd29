#include "coordinator/outgoing.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// A rank is told few things in a round: nobody looks further back for the same words.
constexpr size_t kLookBack = 8;

// Adds the stream to a message of the same words, unless that would overtake another one to it.
void AddToRanks(int64_t stream, const std::string& order, std::vector<proto::AgentOrder>& orders) {
  const size_t last = orders.size() - std::min(orders.size(), kLookBack);
  for (size_t i = orders.size(); i > last; --i) {
    if (!orders[i - 1].has_to_ranks()) break;
    proto::ToRanks& told = *orders[i - 1].mutable_to_ranks();
    if (std::count(told.streams().begin(), told.streams().end(), stream) > 0) break;
    if (told.order() == order) return told.add_streams(stream);
  }
  proto::ToRanks& told = *orders.emplace_back().mutable_to_ranks();
  told.add_streams(stream);
  told.set_order(order);
}

}  // namespace

Outgoing::Mail& Outgoing::MailFor(const Port& agent) {
  const auto [place, is_new] = place_.try_emplace(agent.get(), mail_.size());
  if (is_new) mail_.emplace_back().port = agent;
  return mail_[place->second];
}

void Outgoing::ToAgent(const Port& agent, proto::AgentOrder order) {
  MailFor(agent).orders.push_back(std::move(order));
}

void Outgoing::ToRank(const Port& agent, int64_t stream, const std::string& order) {
  AddToRanks(stream, order, MailFor(agent).orders);
}

void Outgoing::AcknowledgeToAgent(const Port& agent, int64_t sequence) {
  MailFor(agent).acknowledgements.emplace_back().set_acknowledged(sequence);
}

void Outgoing::AcknowledgeToRank(const Port& agent, int64_t stream, const std::string& order) {
  AddToRanks(stream, order, MailFor(agent).acknowledgements);
}

void Outgoing::Then(std::function<void(const absl::Status&)> what) {
  then_.push_back(std::move(what));
}

void Outgoing::Go() {
  place_.clear();
  for (const Mail& each : std::exchange(mail_, {})) {
    for (const proto::AgentOrder& order : each.acknowledgements) each.port->send(order);
    for (const proto::AgentOrder& order : each.orders) each.port->send(order);
  }
  for (const auto& what : std::exchange(then_, {})) what(absl::OkStatus());
}

void Outgoing::Drop(const absl::Status& why) {
  mail_.clear();
  place_.clear();
  for (const auto& what : std::exchange(then_, {})) what(why);
}

}  // namespace weft
