// SPDX-License-Identifier: Apache-2.0
#include "cli/inquiry.h"

#include <fmt/format.h>

#include <thread>

#include "api/team_crds.h"
#include "base/encoding.h"
#include "base/rng.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

Result<Json> ask_server(Context& context, Session& session, const std::string& space, Json question, const Error& because) {
  constexpr auto patience = 30s;
  question.set("ttlSeconds", 60);  // if we do not come to take it away
  const kube::ObjectKey key{space, "ask-" + hex(secret_bytes(5))};
  const kube::Resource& kind = api::teams::inquiries;
  auto made = session.api().create(kind, Json::object({{"apiVersion", kind.api_version()}, {"kind", kind.kind}, {"metadata", Json::object({{"name", key.name}, {"namespace", key.space}})}, {"spec", std::move(question)}}));
  if (!made && (made.error().code == Code::Forbidden || made.error().code == Code::NotFound))
    return fail(Code::Forbidden, fmt::format("{}; and the server cannot be asked in namespace {}: {} (-n names a namespace of which you are a member)", because.message, space, made.error().message));
  if (!made) return pass(std::move(made.error()), "ask the server");
  const auto began = context.clock.monotonic();
  Result<Json> answer = fail(Code::Unavailable, fmt::format("nobody answered Inquiry {} within 30 s: is fairlead-server running, and of this version?", key.text()));
  while (context.clock.monotonic() - began < patience) {
    auto now = session.get(kind, key.space, key.name);
    if (!now) {
      answer = pass(std::move(now.error()), "read Inquiry " + key.text());
      break;
    }
    if (const Json* said = kube::find_condition(*now, "Answered"); said != nullptr) {
      const std::string& reason = (*said)["reason"].string();
      if ((*said)["status"].string() == "True") answer = (*now)["status"]["answer"];
      else answer = fail(reason == "NotFound" ? Code::NotFound : reason == "Invalid" || reason == "TooLarge" ? Code::Invalid : Code::Unavailable, (*said)["message"].string());
      break;
    }
    std::this_thread::sleep_for(50ms);
  }
  (void)session.api().remove(kind, key);  // else its time takes it away
  return answer;
}

}  // namespace fairlead::cli
