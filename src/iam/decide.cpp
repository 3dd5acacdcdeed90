// SPDX-License-Identifier: Apache-2.0
#include "iam/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace fairlead::iam {

namespace {

std::string_view account_of(std::string_view arn) { return arn_field(arn, 4); }

// Of a role's ARN: its name without the path. Names are unique in an account.
std::string_view role_name(std::string_view arn) {
  const std::string_view rest = arn_field(arn, 5);
  return rest.starts_with("role/") ? rest.substr(rest.rfind('/') + 1) : std::string_view();
}

// How `principal` names this caller. `widely`: for a Deny.
Grant names(const Principal& principal, const Caller& caller, bool widely) {
  switch (principal.type) {
    // Whom a provider vouches for is let in by the provider's name alone: tokens of everybody's are too many.
    case Principal::Type::Everyone: return caller.type == Caller::Type::Federated && !widely ? Grant::None : Grant::Broad;
    case Principal::Type::Federated: return caller.type == Caller::Type::Federated && principal.value == caller.arn ? Grant::Direct : Grant::None;
    case Principal::Type::Service: return caller.type == Caller::Type::Service && principal.value == caller.arn ? Grant::Direct : Grant::None;
    case Principal::Type::Aws: {
      if (caller.account.empty()) return Grant::None;
      if (is_account(principal.value)) return principal.value == caller.account ? Grant::Delegated : Grant::None;
      if (arn_field(principal.value, 5) == "root" && account_of(principal.value) == caller.account) return Grant::Delegated;
      if (caller.type == Caller::Type::Role && principal.value == caller.role_arn) return Grant::Broad;
      if (widely && caller.role_guessed && account_of(principal.value) == caller.account && role_name(principal.value) == role_name(caller.role_arn)) return Grant::Broad;
      return principal.value == caller.arn ? Grant::Direct : Grant::None;
    }
    default: return Grant::None;
  }
}

// "Deny with NotPrincipal": one is excepted who is listed with all that he is: the account, the user or role, the session (docs.aws.amazon.com, "NotPrincipal").
bool excepted(const std::vector<Principal>& principals, const Caller& caller) {
  bool account = false, role = false, self = false;
  for (const Principal& one : principals) {
    const Grant how = names(one, caller, false);
    if (one.type == Principal::Type::Everyone) return true;
    account = account || how == Grant::Delegated;
    self = self || how == Grant::Direct;
    role = role || (how == Grant::Broad && one.type == Principal::Type::Aws);
  }
  switch (caller.type) {
    case Caller::Type::Anonymous: return false;
    case Caller::Type::Root: return account;
    case Caller::Type::Service:
    case Caller::Type::Federated: return self;
    case Caller::Type::User: return account && self;
    case Caller::Type::Role: return account && role && (self || caller.arn == caller.role_arn);
  }
  return false;
}

bool has_wildcard(std::string_view text) { return text.find_first_of("*?$") != text.npos; }

// The last field of a pattern of ARNs up to where it is open. Empty: any ARN may match. Whatever arn_matches matches, its last field begins so.
std::string_view last_field_beginning(std::string_view pattern, bool variables) {
  if (!pattern.starts_with("arn:")) return {};
  for (int field = 0; field < 5; ++field) {
    std::size_t end = 0;
    for (bool inside = false; end < pattern.size() && (pattern[end] != ':' || inside); ++end) {
      if (variables && pattern.substr(end).starts_with("${")) inside = true;
      if (pattern[end] == '}') inside = false;
    }
    if (end == pattern.size()) return {};
    pattern.remove_prefix(end + 1);
  }
  return pattern.substr(0, pattern.find_first_of("*?$"));
}

std::string words_of(const Condition& condition, const Keys& keys) {
  std::string wanted, given;
  for (const std::string& value : condition.values) wanted += fmt::format("{}{}", wanted.empty() ? "" : ", ", value);
  if (const auto* values = keys.find(condition.lookup)) {
    for (const std::string& value : *values) given += fmt::format("{}{}", given.empty() ? "" : ", ", value);
    given = "it is " + given;
  } else {
    given = in_every_call(condition.lookup) ? "every call has it, but its value was not given" : known_key(condition.lookup) ? "the call has no such key" : "no such key is known";
  }
  return fmt::format("{} {} [{}]: {}", condition.operation, condition.key, wanted, given);
}

}  // namespace

Result<Caller> read_caller(std::string_view text) {
  Caller out;
  out.arn = text;
  if (text == "anonymous") return Caller{};
  if (is_account(text)) {
    out.type = Caller::Type::Root, out.account = text, out.arn = fmt::format("arn:aws:iam::{}:root", text);
    return out;
  }
  if (text.starts_with("arn:")) {
    const std::string_view rest = arn_field(text, 5);
    out.account = account_of(text);
    const bool iam = text.find(":iam::") != text.npos, sts = text.find(":sts::") != text.npos;
    if (is_account(out.account)) {
      if (iam && rest == "root") {
        out.type = Caller::Type::Root;
        return out;
      }
      if (iam && rest.starts_with("user/") && rest.size() > 5 && rest.back() != '/') {
        out.type = Caller::Type::User;
        return out;
      }
      if (iam && rest.starts_with("role/") && rest.size() > 5 && rest.back() != '/') {
        out.type = Caller::Type::Role, out.role_arn = text;
        return out;
      }
      if (iam && rest.starts_with("oidc-provider/") && rest.size() > 14) {
        out.type = Caller::Type::Federated, out.account.clear();
        return out;
      }
      const std::size_t slash = rest.rfind('/');
      if (sts && rest.starts_with("assumed-role/") && slash > 13 && slash + 1 < rest.size()) {
        const std::string_view partition = text.substr(4, text.find(':', 4) - 4);
        out.type = Caller::Type::Role, out.role_guessed = true, out.role_arn = fmt::format("arn:{}:iam::{}:role/{}", partition, out.account, rest.substr(13, slash - 13));
        return out;
      }
    }
  } else if ((text.ends_with(".amazonaws.com") || text.ends_with(".amazonaws.com.cn")) && text.front() != '.') {
    out.type = Caller::Type::Service;
    return out;
  }
  return fail(Code::Invalid, fmt::format("\"{}\" is no caller; say arn:aws:iam::111122223333:user/NAME, ...:role/NAME, arn:aws:sts::111122223333:assumed-role/NAME/SESSION, an account of twelve digits (its root), a service such as ec2.amazonaws.com, arn:aws:iam::111122223333:oidc-provider/HOST (whom that provider vouches for), or anonymous", text));
}

void fill_keys(Call& call) {
  Caller& caller = call.caller;
  const bool role = caller.type == Caller::Type::Role;
  if (const auto* given = call.keys.find("aws:principalarn"); given != nullptr && caller.role_guessed && account_of(given->front()) == caller.account && role_name(given->front()) == role_name(caller.role_arn)) caller.role_arn = given->front(), caller.role_guessed = false;
  if (!caller.account.empty()) {
    if (!caller.role_guessed) call.keys.set_default("aws:PrincipalArn", role ? caller.role_arn : caller.arn);
    call.keys.set_default("aws:PrincipalAccount", caller.account);
    if (lower(call.action).starts_with("kms:")) call.keys.set_default("kms:CallerAccount", caller.account);
  }
  constexpr std::array types{"Anonymous", "Account", "User", "AssumedRole", "Service"};
  if (caller.type == Caller::Type::Service) call.keys.set_default("aws:PrincipalServiceName", caller.arn);
  else if (caller.type == Caller::Type::Federated) call.keys.set_default("aws:FederatedProvider", caller.arn);
  else call.keys.set_default("aws:PrincipalType", types[static_cast<std::size_t>(caller.type)]);
  call.keys.set_default("aws:PrincipalIsAWSService", caller.type == Caller::Type::Service ? "true" : "false");
  if (caller.type == Caller::Type::User) call.keys.set_default("aws:username", caller.arn.substr(caller.arn.rfind('/') + 1));
  call.keys.set_default("aws:ViaAWSService", "false");
  if (const auto* given = call.keys.find("aws:resourceaccount"); given != nullptr && call.resource_account.empty()) call.resource_account = given->front();
  if (call.resource_account.empty() && is_account(account_of(call.resource))) call.resource_account = account_of(call.resource);
  if (call.resource_account.empty() && call.resource == "*") call.resource_account = caller.account;
  if (is_account(call.resource_account)) call.keys.set_default("aws:ResourceAccount", call.resource_account);
  else if (account_of(call.resource) == "aws") call.resource_account = caller.account;  // arn:aws:iam::aws:policy/...: AWS' own, for everybody
}

void Bundle::Rules::add(std::uint32_t index, const Statement& statement, bool variables) {
  const auto note = [&](std::string_view beginning) {
    auto& where = by_beginning[std::string(beginning)];
    if (where.empty() || where.back() != index) where.push_back(index);
    if (const auto at = std::lower_bound(lengths.begin(), lengths.end(), beginning.size()); at == lengths.end() || *at != beginning.size()) lengths.insert(at, beginning.size());
  };
  if (statement.not_resources) return note("");
  // What takes away is matched widely: with a wildcard before the last field it may begin with anything there.
  std::vector<std::string_view> beginnings;
  for (const std::string& resource : statement.resources) {
    const std::string_view beginning = last_field_beginning(resource, variables);
    const std::string_view closed = std::string_view(resource).substr(0, resource.find_first_of("*?$"));
    const bool open_before = closed.size() < resource.size() && std::count(closed.begin(), closed.end(), ':') < 5;
    beginnings.push_back(statement.effect == Effect::Deny && open_before ? std::string_view() : beginning);
  }
  // One look is enough: of several beginnings of which one begins with the other the shorter is kept.
  std::sort(beginnings.begin(), beginnings.end());
  const std::string_view* last = nullptr;
  for (const std::string_view& one : beginnings) {
    if (last != nullptr && one.starts_with(*last)) continue;
    note(one);
    last = &one;
  }
}

Bundle::Bundle(std::vector<Document> documents, PolicyKind kind) : documents_(std::move(documents)), kind_(kind) {
  for (std::uint32_t d = 0; d < documents_.size(); ++d)
    for (std::uint32_t s = 0; s < documents_[d].policy.statements.size(); ++s) places_.push_back({d, s});
  std::map<std::pair<bool, std::vector<std::string>>, std::size_t> groups;
  for (std::uint32_t index = 0; index < places_.size(); ++index) {
    const Statement& statement = at(index);
    const bool variables = documents_[places_[index].document].policy.variables;
    if (statement.not_actions || std::any_of(statement.actions.begin(), statement.actions.end(), [](const std::string& one) { return has_wildcard(one); })) {
      const auto [group, fresh] = groups.try_emplace({statement.not_actions, statement.actions}, groups_.size());
      if (fresh) groups_.push_back({.not_actions = statement.not_actions, .actions = statement.actions, .rules = {}});
      groups_[group->second].rules.add(index, statement, variables);
      continue;
    }
    for (const std::string& action : statement.actions) by_action_[action].add(index, statement, variables);
  }
}

std::string Bundle::title(std::size_t document, std::size_t statement) const {
  const Statement& of = documents_[document].policy.statements[statement];
  return of.sid.empty() ? fmt::format("{}, statement {}", documents_[document].name, statement + 1) : fmt::format("{}, statement {}", documents_[document].name, of.sid);
}

bool Bundle::means(bool not_actions, const std::vector<std::string>& actions, std::string_view action) {
  return std::any_of(actions.begin(), actions.end(), [&](const std::string& one) { return glob_matches(one, action); }) != not_actions;
}

StatementView Bundle::look(std::uint32_t index, const Call& call, const std::string& action, bool words, Grant& grant) const {
  using Verdict = StatementView::Verdict;
  const Statement& statement = at(index);
  const bool variables = documents_[places_[index].document].policy.variables, deny = statement.effect == Effect::Deny;
  StatementView out{.document = places_[index].document, .statement = places_[index].statement, .detail = {}};
  grant = Grant::Broad;
  if (kind_ == PolicyKind::Resource) {
    grant = Grant::None;
    for (const Principal& one : statement.principals) grant = std::max(grant, names(one, call.caller, deny));
    if (statement.not_principals) grant = excepted(statement.principals, call.caller) ? Grant::None : Grant::Broad;
    if (grant == Grant::None) {
      out.verdict = Verdict::OtherPrincipal;
      if (words) out.detail = call.caller.type == Caller::Type::Anonymous ? "it is not about callers without a name" : fmt::format("it is not about {}", call.caller.arn);
      return out;
    }
  }
  if (!means(statement.not_actions, statement.actions, action)) {
    out.verdict = Verdict::OtherAction;
    if (words) out.detail = statement.not_actions ? "NotAction excepts this action" : "it is about other actions";
    return out;
  }
  // In an Allow what cannot be told does not hold; in a Deny it does. True: the statement goes on.
  const auto holds = [&](Truth truth) {
    out.unknown = out.unknown || truth == Truth::Unknown;
    return truth == Truth::Yes || (truth == Truth::Unknown && deny);
  };
  Truth resource = Truth::No;
  bool lacking = false;
  for (const std::string& one : statement.resources) {
    resource = std::max(resource, (deny != statement.not_resources ? arn_matches_widely : arn_matches)(one, call.resource, call.keys, variables));
    if (statement.not_resources && variables && !expand(one, call.keys, true).pattern) lacking = true;
    if (resource == Truth::Yes) break;
  }
  if (lacking && resource == Truth::No) resource = Truth::Unknown;
  if (statement.not_resources) resource = opposite(resource);
  if (!holds(resource)) {
    out.verdict = Verdict::OtherResource;
    if (words) out.detail = resource == Truth::Unknown ? "a variable of its resource has no value that is known" : statement.not_resources ? "NotResource excepts this resource" : "it is about other resources";
    return out;
  }
  if (words && resource == Truth::Unknown) out.detail = "a variable of its resource has no value that is known: it counts as meant";
  for (const Condition& condition : statement.conditions) {
    const Truth truth = judge(condition, call.keys, variables);
    if (!holds(truth)) {
      out.verdict = Verdict::ConditionFails;
      if (words) out.detail = words_of(condition, call.keys);
      return out;
    }
    if (words && truth == Truth::Unknown) out.detail = words_of(condition, call.keys) + ": it cannot be told, so the Deny holds";
  }
  return out;
}

Bundle::Found Bundle::find(const Call& call) const {
  Found out;
  const std::string action = lower(call.action);
  const auto consider = [&](const std::vector<std::uint32_t>& indexes) {
    for (const std::uint32_t index : indexes) {
      Grant grant;
      const StatementView view = look(index, call, action, false, grant);
      if (view.verdict != StatementView::Verdict::Applies) continue;
      const std::pair<std::size_t, std::size_t> place{view.document, view.statement};
      if (at(index).effect == Effect::Deny) {
        if (!out.denied || place < *out.denied) out.denied = place;
      } else if (!out.allowed || grant > out.grant || (grant == out.grant && place < *out.allowed)) {
        out.allowed = place, out.grant = grant;
      }
    }
  };
  const std::string_view field = call.resource.starts_with("arn:") ? arn_field(call.resource, 5) : std::string_view();
  const auto consider_rules = [&](const Rules& rules) {
    for (const std::size_t length : rules.lengths) {
      if (length > field.size()) break;
      if (const auto of = rules.by_beginning.find(field.substr(0, length)); of != rules.by_beginning.end()) consider(of->second);
    }
  };
  if (const auto rules = by_action_.find(action); rules != by_action_.end()) consider_rules(rules->second);
  for (const Group& group : groups_)
    if (means(group.not_actions, group.actions, action)) consider_rules(group.rules);
  return out;
}

std::vector<StatementView> Bundle::explain(const Call& call) const {
  std::vector<StatementView> out;
  const std::string action = lower(call.action);
  for (std::uint32_t index = 0; index < places_.size(); ++index) {
    Grant grant;
    out.push_back(look(index, call, action, true, grant));
  }
  return out;
}

Decision decide(const Call& call, const Attached& attached) {
  const auto ask = [&](const Bundle* bundle) { return bundle == nullptr ? Bundle::Found{} : bundle->find(call); };
  const auto title = [](const Bundle* bundle, const std::pair<std::size_t, std::size_t>& place) { return bundle->title(place.first, place.second); };
  const Bundle::Found identity = ask(attached.identity), boundary = ask(attached.boundary), session = ask(attached.session), resource = ask(attached.resource);
  for (const auto& [bundle, found] : {std::pair(attached.identity, &identity), std::pair(attached.boundary, &boundary), std::pair(attached.session, &session), std::pair(attached.resource, &resource)})
    if (found->denied) return {Outcome::ExplicitDeny, fmt::format("denied by {}", title(bundle, *found->denied))};

  const bool nameless = call.caller.account.empty();  // a service, or nobody: no policies of its own
  const bool ownerless = call.resource_account.empty();  // nobody knows whose it is
  const bool foreign = !nameless && (ownerless || call.resource_account != call.caller.account);
  const bool root = call.caller.type == Caller::Type::Root;
  const bool identity_allows = !nameless && (root || identity.allowed);
  const bool resource_alone = resource.grant >= Grant::Broad;
  const bool resource_with = resource.grant >= Grant::Delegated;
  bool granted;
  if (nameless) granted = resource_alone;
  else if (foreign) granted = identity_allows && resource_with;
  else if (attached.resource_must_allow) granted = resource_alone || (resource_with && identity_allows);
  else granted = identity_allows || resource_alone;
  if (!granted) {
    std::string why;
    if (identity_allows) why = fmt::format("the caller's policies allow it, but the policy of the resource does not{}", !foreign ? "" : ownerless ? "; nobody knows whose it is: say its account, where it is the caller's" : fmt::format(", which belongs to another account ({})", call.resource_account));
    else if (resource_with) why = "the policy of the resource leaves it to the caller's account, whose policies do not allow it";
    else why = "no statement allows it";
    return {Outcome::ImplicitDeny, std::move(why)};
  }
  const bool uncut = !foreign && resource.grant == Grant::Direct;  // the resource names the caller himself
  if (attached.boundary != nullptr && !boundary.allowed && !uncut) return {Outcome::ImplicitDeny, "the caller's permissions boundary does not allow it"};
  if (attached.session != nullptr && !session.allowed && !uncut) return {Outcome::ImplicitDeny, "the policy of the session does not allow it"};
  if (identity.allowed) return {Outcome::Allowed, fmt::format("allowed by {}", title(attached.identity, *identity.allowed))};
  if (resource_alone) return {Outcome::Allowed, fmt::format("allowed by {}", title(attached.resource, *resource.allowed))};
  return {Outcome::Allowed, "the root of the account may do all that nothing denies"};
}

}  // namespace fairlead::iam
