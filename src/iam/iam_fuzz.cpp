// SPDX-License-Identifier: Apache-2.0
// A document of anything: read or refused, never half. What was read decides the same with and without its index, and a Deny more never allows.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "iam/decide.h"

using namespace fairlead;
using namespace fairlead::iam;

// The first line: caller, action, resource and a value of aws:username, divided by blanks. The rest: the document.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = text.find('\n');
  std::string_view head = text.substr(0, line);
  const std::string_view body = line == text.npos ? std::string_view() : text.substr(line + 1);
  const auto word = [&] {
    const std::size_t end = head.find(' ');
    const std::string out(head.substr(0, end));
    head = end == head.npos ? std::string_view() : head.substr(end + 1);
    return out;
  };
  auto caller = read_caller(word());
  Call call{.caller = caller ? *caller : *read_caller("arn:aws:iam::111122223333:user/ada"), .action = word(), .resource = word(), .resource_account = {}, .keys = {}};
  if (const std::string name = word(); !name.empty()) call.keys.set("aws:username", {name});
  fill_keys(call);
  for (const PolicyKind kind : {PolicyKind::Identity, PolicyKind::Resource}) {
    auto policy = read_policy(body, kind);
    if (!policy) {
      INVARIANT(policy.error().code == Code::Invalid && !policy.error().message.empty());
      continue;
    }
    const Bundle bundle({{"document", *policy}}, kind);
    const Bundle::Found found = bundle.find(call);
    bool allowed = false, denied = false;
    for (const StatementView& view : bundle.explain(call)) {
      const Effect effect = policy->statements[view.statement].effect;
      if (view.verdict == StatementView::Verdict::Applies) (effect == Effect::Allow ? allowed : denied) = true;
      INVARIANT(!(view.unknown && view.verdict == StatementView::Verdict::Applies && effect == Effect::Allow));
    }
    INVARIANT(found.allowed.has_value() == allowed && found.denied.has_value() == denied);
    Policy more = *policy;
    more.statements.push_back({.sid = {}, .effect = Effect::Deny, .principals = {{}}, .actions = {"*"}, .resources = {"*"}, .conditions = {}});
    const Bundle closed({{"document", std::move(more)}}, kind);
    INVARIANT(!decide(call, {.identity = kind == PolicyKind::Identity ? &closed : nullptr, .resource = kind == PolicyKind::Resource ? &closed : nullptr}).allowed());
  }
  return 0;
}
