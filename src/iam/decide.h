// SPDX-License-Identifier: Apache-2.0
// May this caller do this? Policies and a call in, a decision with its reason out. Pure. docs/design/048-iam-policies.md.
// Rules: docs.aws.amazon.com, "Policy evaluation logic": an explicit Deny anywhere wins; what nothing allows is denied; a permissions boundary and a session's policy take away and never give.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "iam/condition.h"
#include "iam/policy.h"

namespace fairlead::iam {

struct Caller {
  enum class Type : std::uint8_t { Anonymous, Root, User, Role, Service, Federated };
  Type type = Type::Anonymous;
  std::string arn;       // of the user, the session of a role, the role itself, the account's root; of a service its name; Federated: of the identity provider
  std::string role_arn;  // Role: of the role
  bool role_guessed = false;  // its path is not known: role_arn has none. A Deny that names a role of this name and account is meant; an Allow has to name it whole
  std::string account;   // twelve digits; empty: a service, one whom a provider vouches for, nobody
};
// "arn:aws:iam::111122223333:user/ada", ":role/NAME", ":root", "arn:aws:sts::111122223333:assumed-role/NAME/SESSION" (its role's path is not known), "111122223333" (its root), "ec2.amazonaws.com", "arn:aws:iam::111122223333:oidc-provider/HOST/PATH" (whom that provider vouches for), "anonymous". Invalid: anything else.
Result<Caller> read_caller(std::string_view text);

struct Call {
  Caller caller;
  std::string action;            // "sagemaker:DescribeCluster", without case
  std::string resource = "*";    // an ARN; "*": the call is about no resource
  std::string resource_account;  // empty: as the key aws:ResourceAccount or the ARN says; where neither does (a bucket), nobody knows: then both the caller's policies and the resource's have to allow, as between two accounts
  Keys keys;
};
// Sets what follows from the call itself, where it is not set: aws:PrincipalArn, PrincipalAccount, PrincipalType, PrincipalIsAWSService, PrincipalServiceName, ViaAWSService, username, ResourceAccount; for kms: CallerAccount. A given aws:PrincipalArn tells the path of a session's role.
void fill_keys(Call& call);

struct Document {
  std::string name;  // "policy/trainers", a file
  Policy policy;
};

// Why a statement has no part in a call, or that it has.
struct StatementView {
  enum class Verdict : std::uint8_t { Applies, OtherPrincipal, OtherAction, OtherResource, ConditionFails };
  std::size_t document = 0, statement = 0;
  Verdict verdict = Verdict::Applies;
  bool unknown = false;       // it could not be told: a Deny applies then, an Allow does not
  std::string detail;         // for people: which action, resource or condition
};

// How far an Allow of a resource's policy goes: Delegated names the account, whose own policies then have to allow too; Broad names everybody or the role; Direct names the user or the very session, and is not cut by boundaries.
enum class Grant : std::uint8_t { None, Delegated, Broad, Direct };

// Documents that are attached to one thing, ready to be asked. Immutable: may be shared between threads. Memory: about twice that of the documents.
class Bundle {
 public:
  Bundle(std::vector<Document> documents, PolicyKind kind);

  struct Found {
    std::optional<std::pair<std::size_t, std::size_t>> denied, allowed;  // document, statement: the first that denies, the first of those that grant the most
    Grant grant = Grant::None;
  };
  // O(statements that mean the action, and whose resource begins as the call's does up to the first wildcard of its last field).
  Found find(const Call& call) const;
  std::vector<StatementView> explain(const Call& call) const;  // each statement, in order
  const std::vector<Document>& documents() const { return documents_; }
  PolicyKind kind() const { return kind_; }
  std::string title(std::size_t document, std::size_t statement) const;  // "policy/trainers, statement AttachVolumes", "..., statement 3"

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  // Statements by how the last field of their resources begins, up to the first wildcard or variable.
  struct Rules {
    std::unordered_map<std::string, std::vector<std::uint32_t>, Hash, std::equal_to<>> by_beginning;
    std::vector<std::size_t> lengths;  // that beginnings have; ascending
    void add(std::uint32_t index, const Statement& statement, bool variables);
  };
  struct Group {
    bool not_actions = false;
    std::vector<std::string> actions;
    Rules rules;
  };
  struct Place {
    std::uint32_t document, statement;
  };
  const Statement& at(std::uint32_t index) const { return documents_[places_[index].document].policy.statements[places_[index].statement]; }
  static bool means(bool not_actions, const std::vector<std::string>& actions, std::string_view action);
  StatementView look(std::uint32_t index, const Call& call, const std::string& action, bool words, Grant& grant) const;

  std::vector<Document> documents_;
  PolicyKind kind_;
  std::vector<Place> places_;
  std::unordered_map<std::string, Rules> by_action_;  // by whole name, in lower case
  std::vector<Group> groups_;                         // with wildcards, or NotAction: those with the same actions together
};

struct Attached {
  const Bundle* identity = nullptr;  // of the caller
  const Bundle* boundary = nullptr;  // of the caller; nullptr: none
  const Bundle* session = nullptr;   // given when the role was assumed; nullptr: none
  const Bundle* resource = nullptr;  // of what is asked for
  bool resource_must_allow = false;  // keys and roles: without their own policy's word nobody has access
};

enum class Outcome : std::uint8_t { Allowed, ExplicitDeny, ImplicitDeny };
struct Decision {
  Outcome outcome = Outcome::ImplicitDeny;
  std::string reason;  // one sentence
  bool allowed() const { return outcome == Outcome::Allowed; }
};
Decision decide(const Call& call, const Attached& attached);

}  // namespace fairlead::iam
