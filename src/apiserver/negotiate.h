// SPDX-License-Identifier: Apache-2.0
// What a client sends and what it can read: Accept, Content-Type, and the values of query parameters. Pure.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "http/message.h"
#include "kube/json.h"
#include "kube/kube_api.h"

namespace fairlead::apiserver {

struct MediaType {
  std::string type;  // "application/json", lower case
  std::vector<std::pair<std::string, std::string>> parameters;
  double quality = 1;
  std::string_view parameter(std::string_view name) const;
};
MediaType parse_media_type(std::string_view text);
std::vector<MediaType> parse_accept(std::string_view header);  // best first; equal quality keeps the order

// How an answer is written.
enum class Form { Json, Yaml, Table, Partial, DiscoveryV2 };
enum class Asked { Plain, Objects, Discovery };  // which forms make sense
// The client's first choice among those we can write; empty: none (406). Protobuf is never written: a client that only takes protobuf gets 406.
std::optional<Form> choose_form(std::string_view accept, Asked asked);
std::string_view content_type(Form form);
// An answer as text, with a newline at the end. YAML has its keys in order, as kube-apiserver writes them.
std::string text_in_form(const kube::Json& json, Form form, bool pretty);

// Kubernetes' conversion of a boolean query value (a superset of what clients write: True, 1, t):
// "false" (any case), "f" and "0" are false, everything else is true.
bool parse_flag(std::string_view value);
// A flag of the query: absent is `otherwise`, present but empty is true.
bool flag(const http::Query& query, std::string_view name, bool otherwise = false);

struct Body {
  kube::Json json;
  std::vector<std::string> duplicates;  // paths of members that occur twice
};
// JSON, YAML or protobuf by its content. Invalid: malformed (400). Unsupported: another media type (415), the message says which are taken.
Result<Body> parse_body(std::string_view content_type, std::string_view body);
// How Kubernetes shows a body that it cannot read: the beginning of it, in hex unless it looks like JSON.
std::string summary_of_body(std::string_view body);
// What a PATCH asks for. `apply`: server-side apply, `type` says nothing then.
struct PatchForm {
  bool apply = false;
  kube::PatchType type = kube::PatchType::Merge;
};
// Unsupported: not a patch type that is served, the message says which are.
Result<PatchForm> parse_patch_form(std::string_view content_type, bool custom_resource);
// The body of an apply: YAML, or JSON, which is YAML as well and what kubectl sends.
Result<Body> parse_apply_body(std::string_view body);

}  // namespace fairlead::apiserver
