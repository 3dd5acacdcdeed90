// SPDX-License-Identifier: Apache-2.0
// ValidatingAdmissionPolicies at work: compiled ones, and what they say of a request (docs/design/047-admission-policies.md). Words as those of kube-apiserver. Pure but for PolicyWorld.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apiserver/auth_types.h"
#include "apiserver/policy_match.h"
#include "base/result.h"
#include "cel/cel.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// Compiled once, shared between threads.
class Policy {
 public:
  explicit Policy(const kube::Json& object);  // of any form: what does not compile makes it broken, and failurePolicy decides

  std::string name;
  bool closed = true;   // failurePolicy: Fail
  std::string broken;   // why it cannot be used
  MatchRules match;
  std::string param_api_version, param_kind;  // empty: it has no parameters
  struct Condition {
    std::string name;
    cel::Program test;
  };
  std::vector<Condition> conditions;
  std::vector<std::pair<std::string, cel::Program>> variables;  // by the name that expressions use
  struct Validation {
    cel::Program test;
    std::optional<cel::Program> message_of;
    std::string message, reason;
  };
  std::vector<Validation> validations;
  struct Note {
    std::string key;
    cel::Program value;
  };
  std::vector<Note> notes;
};

class PolicyBinding {
 public:
  explicit PolicyBinding(const kube::Json& object);

  std::string name, policy;
  std::optional<MatchRules> match;
  kube::Json param_ref;  // null: none
  std::vector<std::string> actions;
  bool has(std::string_view action) const;
};

// A snapshot. Both maps by name.
struct PolicySet {
  std::map<std::string, std::shared_ptr<const Policy>> policies;
  std::map<std::string, std::shared_ptr<const PolicyBinding>> bindings;
};

// What is looked up on the way; asked only if something depends on it.
class PolicyWorld {
 public:
  virtual ~PolicyWorld() = default;
  virtual Result<const kube::Json*> space() = 0;  // the request's namespace. NotFound: it is not there
  // NotFound: nothing of that kind is served. In `space` (empty: of a kind without namespaces). `name` empty: all that `selector` fits.
  struct ParamQuery {
    std::string api_version, kind, name, space;
    const kube::Json* selector = nullptr;
  };
  struct Params {
    bool namespaced = false;
    std::vector<kube::Json> objects;
  };
  virtual Result<Params> params(const ParamQuery& query) = 0;
  virtual Result<kube::Json> in_version(const kube::Json& object, const std::string& version) = 0;
};

struct PolicyRequester {
  const User& user;
  bool dry_run = false;
};

struct PolicyVerdict {
  struct Refusal {
    std::string reason;   // "Invalid", "Forbidden", "Unauthorized", "RequestEntityTooLarge"
    std::string message;  // "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ..."
  };
  std::optional<Refusal> refusal;  // the first
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, std::string>> notes;  // annotations of the audit event
};
PolicyVerdict judge(const PolicySet& set, const PolicyCall& call, const PolicyRequester& who, PolicyWorld& world);

// May policies be asked about it? Not about themselves.
bool is_subject_to_policies(const kube::Resource& resource);

// A refusal as an error of the API, and which Status it is: `jobs.batch "x" is forbidden: ValidatingAdmissionPolicy 'p' ...`.
std::unexpected<Error> policy_refusal(const kube::Resource& resource, std::string_view name, const PolicyVerdict::Refusal& refusal);
struct PolicyStatus {
  int code = 422;
  std::string reason, name, cause;
};
std::optional<PolicyStatus> policy_status(const Error& error);  // none: it is something else

}  // namespace fairlead::apiserver
