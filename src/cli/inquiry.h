// SPDX-License-Identifier: Apache-2.0
// Asks the server where we may not read what an answer needs: an Inquiry in a namespace where we may make one (docs/design/039-members-and-inquiries.md).
#pragma once
#include <string>

#include "cli/command.h"

namespace fairlead::cli {

// `question`: {explain: {workload: ...}} and so on. The answer, as the hooks give it. Errors are the server's; Forbidden: `because`, with what right is missing here, too.
Result<kube::Json> ask_server(Context& context, Session& session, const std::string& space, kube::Json question, const Error& because);

// ... if that is what `objects` failed for, else that failure.
template <class T>
Result<kube::Json> ask_instead(const Result<T>& objects, Context& context, Session& session, const std::string& space, kube::Json question) {
  if (objects.error().code != Code::Forbidden) return std::unexpected(objects.error());
  return ask_server(context, session, space, std::move(question), objects.error());
}

}  // namespace fairlead::cli
