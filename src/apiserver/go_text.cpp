// SPDX-License-Identifier: Apache-2.0
#include "apiserver/go_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace fairlead::apiserver {

using kube::Json;

std::string go_string(const Json& text) { return print_json(Json(text.string())); }

std::string go_string_map(const Json& map) {
  if (!map.is_object()) return "map[string]string(nil)";
  std::vector<std::string> members;
  for (const auto& [key, value] : map.members()) members.push_back(fmt::format("{}:{}", go_string(Json(key)), go_string(value)));
  std::sort(members.begin(), members.end());
  return fmt::format("map[string]string{{{}}}", fmt::join(members, ", "));
}

std::string go_int_or_string(const Json& value) {
  return fmt::format("intstr.IntOrString{{Type:{}, IntVal:{}, StrVal:{}}}", value.is_string() ? 1 : 0, value.is_string() ? 0 : value.integer(), go_string(value));
}

std::string go_label_selector(const Json& selector) {
  std::vector<std::string> expressions;
  for (const Json& one : selector["matchExpressions"].items()) {
    std::vector<std::string> values;
    for (const Json& value : one["values"].items()) values.push_back(go_string(value));
    const std::string list = values.empty() ? "[]string(nil)" : fmt::format("[]string{{{}}}", fmt::join(values, ", "));
    expressions.push_back(fmt::format("v1.LabelSelectorRequirement{{Key:{}, Operator:{}, Values:{}}}", go_string(one["key"]), go_string(one["operator"]), list));
  }
  const std::string list = expressions.empty() ? "(nil)" : fmt::format("{{{}}}", fmt::join(expressions, ", "));
  return fmt::format("v1.LabelSelector{{MatchLabels:{}, MatchExpressions:[]v1.LabelSelectorRequirement{}}}", go_string_map(selector["matchLabels"]), list);
}

std::string go_taint(const Json& taint) {
  return fmt::format("core.Taint{{Key:{}, Value:{}, Effect:{}, TimeAdded:<nil>}}", go_string(taint["key"]), go_string(taint["value"]), go_string(taint["effect"]));
}

std::string go_port_key(const Json& port) {
  return fmt::format("core.ServicePort{{Name:\"\", Protocol:{}, AppProtocol:(*string)(nil), Port:{}, TargetPort:{}, NodePort:0}}", go_string(port["protocol"]), port["port"].integer(),
                     go_int_or_string(Json(0)));
}

}  // namespace fairlead::apiserver
