// SPDX-License-Identifier: Apache-2.0
// What `fairlead quota`, `queue`, `explain`, `eta` and `whatif` draw, from the views of governance (-o json prints those as they are; api/queue_views.h has the parts of them). Pure.
#pragma once
#include <string>

#include "base/clock.h"
#include "cli/text.h"
#include "kube/json.h"

namespace fairlead::cli {

std::string draw_quotas(const kube::Json& view, const Look& look);

std::string draw_queue(const kube::Json& view, Instant now, const Look& look);
std::string draw_explanation(const kube::Json& view, const Look& look);
std::string draw_eta(const kube::Json& view, const Look& look);
std::string draw_whatif(const kube::Json& view, const Look& look);

// Parts of explanations that others draw, too.
std::string place_of(const kube::Json& one);                 // "team-a/train" of {namespace, name, owner}
std::string draw_bullet(const std::string& text, const Look& look);  // broken at blanks; further lines are indented
std::string draw_heading(const char* text, const Look& look);

}  // namespace fairlead::cli
