// SPDX-License-Identifier: Apache-2.0
#include "notify/courier.h"

namespace fairlead::notify {
namespace {

class AnyCarrier final : public Carrier {
 public:
  AnyCarrier(const Clock& clock, Reach reach) : clock_(clock), reach_(reach) {}
  Result<void> carry(const Parcel& parcel) override { return parcel.channel.kind == Channel::Kind::Email ? carry_by_smtp(parcel, reach_) : carry_by_http(parcel, clock_.now(), reach_); }

 private:
  const Clock& clock_;
  const Reach reach_;
};

}  // namespace

std::unique_ptr<Carrier> make_carrier(const Clock& clock, Reach reach) { return std::make_unique<AnyCarrier>(clock, reach); }

ThreadCourier::~ThreadCourier() {
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [topic, ways] : ways_)
      for (auto& [target, way] : ways) threads.push_back(std::move(way.thread));
    ways_.clear();
  }
  // Joined by the end of `threads`, without the lock.
}

bool ThreadCourier::send(Parcel parcel) {
  const std::lock_guard lock(mutex_);
  if (hands_ >= kHands) return false;
  const auto topic = parcel.topic;
  if (const auto of = hands_of_.find(topic.space); of != hands_of_.end() && of->second >= kHandsOfSpace) return false;
  const auto target = parcel.target;
  const auto [at, added] = ways_[topic].try_emplace(target);
  if (!added) return false;
  ++hands_;
  ++hands_of_[topic.space];
  at->second.thread = std::jthread([this, parcel = std::move(parcel)] {
    auto outcome = carrier_->carry(parcel);
    {
      const std::lock_guard inner(mutex_);
      done_[parcel.topic].push_back({parcel.letter_uid, parcel.target, parcel.of.generation, std::move(outcome)});
      --hands_;
      if (const auto of = hands_of_.find(parcel.topic.space); --of->second == 0) hands_of_.erase(of);
      if (const auto ways = ways_.find(parcel.topic); ways != ways_.end())
        if (const auto way = ways->second.find(parcel.target); way != ways->second.end()) way->second.ended = true;
    }
    told_(parcel.topic);
  });
  return true;
}

std::set<std::string> ThreadCourier::busy(const kube::ObjectKey& topic) const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> out;
  if (const auto ways = ways_.find(topic); ways != ways_.end())
    for (const auto& [target, way] : ways->second) out.insert(target);
  return out;
}

std::vector<Done> ThreadCourier::take(const kube::ObjectKey& topic) {
  std::vector<std::jthread> over;  // joined without the lock: what is left of them is one call of told_
  std::vector<Done> out;
  const std::lock_guard lock(mutex_);
  if (const auto found = done_.find(topic); found != done_.end()) {
    out = std::move(found->second);
    done_.erase(found);
  }
  const auto ways = ways_.find(topic);
  if (ways == ways_.end()) return out;
  for (auto at = ways->second.begin(); at != ways->second.end();) {
    if (!at->second.ended) {
      ++at;
      continue;
    }
    over.push_back(std::move(at->second.thread));
    at = ways->second.erase(at);
  }
  if (ways->second.empty()) ways_.erase(ways);
  return out;
}

}  // namespace fairlead::notify
