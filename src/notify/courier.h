// SPDX-License-Identifier: Apache-2.0
// Carrying one event to one target: what is carried, who carries it, and who does that aside of the controllers.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "notify/plan/event.h"
#include "notify/plan/topic.h"

namespace fairlead::notify {

// What the keys of Secrets that a channel names hold. Lives as long as one attempt; never printed.
struct Secrets {
  std::string url, hmac_key, ca_pem, username, password;
};

struct Parcel {
  kube::ObjectKey topic;
  std::string letter_uid, target;
  Topic of;  // its name and so on; channels are not needed
  Channel channel;
  std::string recipient;
  Event event;
  Secrets secrets;
};

// A port. Blocks for channel.timeout and name resolution at most; thread-safe. An error is a sentence without secrets: "answered 503", "connect: connection refused".
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual Result<void> carry(const Parcel& parcel) = 0;
};
// How far a carrier goes. Who writes topics chooses addresses, and the server may reach what they may not: its own machine and links are left out unless the site wants them (may_connect).
enum class Reach { World, AlsoLocal };
// Webhooks and SNS-style documents by HTTP(S), mail by SMTP (carrier_http.cpp, carrier_smtp.cpp).
std::unique_ptr<Carrier> make_carrier(const Clock& clock, Reach reach);
Result<void> carry_by_http(const Parcel& parcel, Instant now, Reach reach);
Result<void> carry_by_smtp(const Parcel& parcel, Reach reach);

struct Done {
  std::string letter_uid, target;
  std::int64_t generation = 0;  // of the topic that was used
  Result<void> outcome;
};

// A port: carries aside. A target has one parcel at a time, so a dead one costs one thread.
class Courier {
 public:
  virtual ~Courier() = default;
  virtual bool send(Parcel parcel) = 0;                                   // false: this target is busy, or all hands are; ask again
  virtual std::set<std::string> busy(const kube::ObjectKey& topic) const = 0;  // its targets, also those whose outcome was not taken
  virtual std::vector<Done> take(const kube::ObjectKey& topic) = 0;       // outcomes; each is given once
};

// A thread for each parcel, 32 at most, of which one namespace has 8: receivers that keep one waiting do not hold up the others' alarms. Its end waits for those that are under way.
class ThreadCourier final : public Courier {
 public:
  static constexpr std::size_t kHands = 32, kHandsOfSpace = 8;
  ThreadCourier(std::unique_ptr<Carrier> carrier, std::function<void(const kube::ObjectKey& topic)> told) : carrier_(std::move(carrier)), told_(std::move(told)) {}
  ~ThreadCourier() override;
  bool send(Parcel parcel) override;
  std::set<std::string> busy(const kube::ObjectKey& topic) const override;
  std::vector<Done> take(const kube::ObjectKey& topic) override;

 private:
  const std::unique_ptr<Carrier> carrier_;
  const std::function<void(const kube::ObjectKey&)> told_;
  mutable std::mutex mutex_;
  struct Way {
    std::jthread thread;
    bool ended = false;
  };
  std::map<kube::ObjectKey, std::map<std::string, Way>> ways_;  // under mutex_, by topic and target
  std::map<kube::ObjectKey, std::vector<Done>> done_;           // under mutex_
  std::size_t hands_ = 0;                                       // under mutex_: threads that carry
  std::map<std::string, std::size_t> hands_of_;                 // under mutex_: the same by namespace; none is 0
};

}  // namespace fairlead::notify
