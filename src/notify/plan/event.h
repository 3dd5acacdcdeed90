// SPDX-License-Identifier: Apache-2.0
// What administrators are told of, as a value and as the object that it waits in until it is delivered.
#pragma once
#include <string>
#include <string_view>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::notify {

enum class EventType { PrimaryOn, PrimaryOff, BackupReady, BackupLost, ClusterEvent, Message, Test };
std::string_view text(EventType type);

// In which forms EventBridge has what happens to a cluster (plan/eventbridge.h): "SageMaker HyperPod Cluster Event", "... Cluster State Change", "... Cluster Node Health Event".
enum class DetailType { ClusterEvent, StateChange, NodeHealth };
inline constexpr DetailType kDetailTypes[] = {DetailType::ClusterEvent, DetailType::StateChange, DetailType::NodeHealth};
std::string_view text(DetailType type);  // ClusterEvent, ClusterStateChange, NodeHealth

struct Event {
  std::string id;  // "evt-" and 32 hex digits: the same for the same change, however often it is seen or sent
  EventType type = EventType::Test;
  Instant time{};
  std::string space, cluster, cluster_uid;
  std::string head;                  // "controller-1"
  bool witness = false;              // it votes and serves never: of two heads
  std::string old_state, new_state;  // On, Standby, Off, Unknown
  std::string cause, next_step;      // sentences without secrets
  int ready = 0, wanted = 0;         // heads that serve or could, of those asked for
  std::uint64_t term = 0;            // of an election; 0: there is none
  kube::Json envelope;               // ClusterEvent: what is sent in place of all this, in the form of an event of EventBridge
  kube::Json message;                // Message: {text, subject, attributes, texts} (api/notification.h)
};

// `seq`: how many changes of this head were told before; with it the same change is another event when it happens again.
std::string event_id(std::string_view cluster_uid, std::string_view head, std::int64_t seq, std::string_view old_state, std::string_view new_state);
// As a UUID, for receivers that want one: the same digits.
std::string uuid_of(const std::string& event_id);

// "Slurm cluster lab/demo: head controller-0 is OFF (was ON)"; printable ASCII, one line.
std::string summary(const Event& event);

kube::Json event_json(const Event& event);  // spec.event of a Notification
kube::Json body_of(const Event& event);     // of a webhook, and the message of SNS: the event, or its envelope
std::string message_text(const Event& event, std::string_view protocol);  // of a Message: what it says by this protocol (https, http, email)
// Invalid: no id of ours or an unknown type.
Result<Event> read_event(const kube::Json& from);

// The object in which the event waits for the topic. Its name follows from both, so that it can be made once only. `owner`: ownerReference of the topic, or null.
kube::Json notification_object(const Event& event, const std::string& topic, const kube::Json& owner);

}  // namespace fairlead::notify
