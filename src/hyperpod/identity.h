// SPDX-License-Identifier: Apache-2.0
// An Identity object as those who decide need it. Pure.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/identity_crds.h"
#include "base/clock.h"
#include "iam/decide.h"
#include "kube/json.h"

namespace fairlead::hyperpod {

// The site, as ARNs name it.
struct Site {
  std::string account = "000000000000";  // twelve digits
  std::string region = "fairlead-1";     // [a-z0-9-], 9 to 16 of them: ids of scheduler policies need that
  Instant founded{};                     // when account and region were chosen
};

struct Identity {
  api::identities::Type type = api::identities::Type::User;
  std::string object, uid;               // its name
  std::string name, path = "/", arn;     // "arn:aws:iam::111122223333:user/path/ada"
  std::string id;                        // "AIDA..." or "AROA...": of this one, and of none with the same name after it
  std::shared_ptr<const iam::Bundle> policies, boundary, trust;  // null: none
  std::chrono::seconds longest_session{3600};
  struct AccessEntry {
    std::string username;                // empty: its ARN
    std::vector<std::string> groups;
    std::vector<std::string> policy_groups;  // access_policies.h
  };
  std::optional<AccessEntry> access_entry;  // to Kubernetes; none: it has no way in
  std::vector<std::string> aws_policies;   // names of AWS's own that are attached
  bool disabled = false;
  std::vector<std::pair<std::string, std::string>> tags;  // aws:PrincipalTag/KEY
  std::string problem;                   // why it may do nothing: a document that cannot be understood, a name that is another's; empty: it may
};

// A ManagedPolicy, read once for all to whom it is attached.
struct ManagedPolicy {
  std::string object, uid, name, path = "/", arn;
  std::shared_ptr<const iam::Policy> policy;  // its default version; null: `problem`
  std::string problem;
};
ManagedPolicy read_managed_policy(const kube::Json& object, const Site& site);  // never fails
std::string managed_policy_arn(const kube::Json& object, const Site& site);
// By ARN; null: it is not there. It is asked for policies of this site alone: AWS's own allow nothing here (api::identities::is_aws_policy).
using FindPolicy = std::function<std::shared_ptr<const ManagedPolicy>(const std::string& arn)>;

// Never fails: what is wrong is its problem, an attached policy that is not there, too: a Deny could be in it.
Identity read_identity(const kube::Json& object, const Site& site, const FindPolicy& find);
std::string identity_arn(const kube::Json& object, const Site& site);  // as its spec says, without reading the rest
// Text of a document in a field that holds it as text or as an object.
std::string document_text(const kube::Json& field);
// "arn:aws:iam::111122223333:role/path/NAME": the object that would hold it; nothing: no role of this site. Whether its path is that one, its own ARN says.
std::optional<std::string> role_object(std::string_view arn, const Site& site);
// Of such a session: "arn:aws:sts::111122223333:assumed-role/NAME/SESSION".
std::string session_arn(const Identity& role, const std::string& session, const Site& site);

}  // namespace fairlead::hyperpod
