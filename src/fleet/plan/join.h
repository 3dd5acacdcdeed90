// SPDX-License-Identifier: Apache-2.0
// May this host come in as this machine, and what is written down of it (docs/design/056). Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/join.h"
#include "api/machine.h"

namespace fairlead::fleet {

// The answer to a request by HTTP: 200, or why not. 401: the token is nobody's, or has ended (one and the same sentence, whatever is there); 409: somebody else was first; 422: it is not what it is to be; 503: in a moment.
struct JoinPlan {
  int status = 200;
  std::string why;            // for the host's administrator
  std::optional<kube::Json> record;  // status.host, where it is to be written before the answer: a certificate counts once its key stands there
  bool accepted() const { return status == 200; }
};
struct JoinView {
  std::optional<api::Machine> machine;  // of the name that is asked for; nullopt: there is none
  std::vector<api::Machine> others;     // all machines of the site
  std::optional<kube::Json> node;       // the Node of that name
  std::string from;                     // address from which the request comes
  std::string address_trouble;          // why no host may have the address of the request (the server's own, one of the site's ranges) unless an administrator has named it; empty: it may
};
// Is the token this machine's? Nothing else is looked at before.
bool is_token_of(const std::optional<api::Machine>& machine, const std::string& secret);
// `key`: fingerprint of the request's key.
JoinPlan plan_join(const JoinView& view, const api::JoinRequest& request, const std::string& key, Instant now);

// Does this key still speak for the machine? Empty: yes; else why not.
std::string why_not_host(const std::optional<api::Machine>& machine, std::string_view key);

// What a host may say of its own Node: the range of its pods, its address and the labels that decide what comes to it are those of its Machine. Empty: it may be stored; else why not.
std::string why_not_own_node(const api::Machine& machine, const kube::Json* old, const kube::Json& next);

}  // namespace fairlead::fleet
