// SPDX-License-Identifier: Apache-2.0
#include "apiserver/negotiate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "kube/type_table.h"

namespace fairlead::apiserver {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_json(std::string_view type) { return type == "application/json" || type == "*/*" || type == "application/*"; }

std::optional<Form> form_of(const MediaType& media, Asked asked) {
  if (media.type == "application/yaml" || media.type == "application/x-yaml") return asked == Asked::Discovery ? std::nullopt : std::optional(Form::Yaml);
  if (!is_json(media.type)) return std::nullopt;
  const std::string_view as = media.parameter("as");
  if (as.empty()) return Form::Json;
  const std::string_view group = media.parameter("g"), version = media.parameter("v");
  if (asked == Asked::Objects && group == "meta.k8s.io" && version == "v1") {
    if (as == "Table") return Form::Table;
    if (as == "PartialObjectMetadata" || as == "PartialObjectMetadataList") return Form::Partial;
  }
  if (asked == Asked::Discovery && group == "apidiscovery.k8s.io" && as == "APIGroupDiscoveryList") {
    if (version == "v2") return Form::DiscoveryV2;  // v2beta1 is gone in 1.33: clients that know only it take plain discovery
  }
  return std::nullopt;
}

void sort_keys(kube::Json& json) {
  if (json.is_array()) {
    for (kube::Json& item : json.items()) sort_keys(item);
  }
  if (!json.is_object()) return;
  auto& members = json.members();
  std::sort(members.begin(), members.end(), [](const kube::JsonMember& a, const kube::JsonMember& b) { return a.first < b.first; });
  for (auto& [key, value] : members) sort_keys(value);
}

}  // namespace

std::string_view MediaType::parameter(std::string_view name) const {
  for (const auto& [key, value] : parameters) {
    if (key == name) return value;
  }
  return {};
}

MediaType parse_media_type(std::string_view text) {
  MediaType out;
  bool first = true;
  for (const std::string& part : split(text, ';')) {
    const std::string_view piece = trim(part);
    if (first) {
      out.type = lower(piece);
      first = false;
      continue;
    }
    const std::size_t equals = piece.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view value = trim(piece.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    const std::string key = lower(trim(piece.substr(0, equals)));
    if (key == "q") {
      double quality = 0;
      std::from_chars(value.data(), value.data() + value.size(), quality);
      out.quality = quality;
    } else {
      out.parameters.emplace_back(key, std::string(value));
    }
  }
  return out;
}

std::vector<MediaType> parse_accept(std::string_view header) {
  std::vector<MediaType> out;
  for (const std::string& part : split(header, ',')) {
    if (trim(part).empty()) continue;
    out.push_back(parse_media_type(part));
  }
  std::stable_sort(out.begin(), out.end(), [](const MediaType& a, const MediaType& b) { return a.quality > b.quality; });
  return out;
}

std::optional<Form> choose_form(std::string_view accept, Asked asked) {
  if (trim(accept).empty()) return Form::Json;
  for (const MediaType& media : parse_accept(accept)) {
    if (media.quality <= 0) continue;
    if (auto form = form_of(media, asked)) return form;
  }
  return std::nullopt;
}

std::string_view content_type(Form form) {
  switch (form) {
    case Form::Yaml: return "application/yaml";
    case Form::DiscoveryV2: return "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    case Form::Json:
    case Form::Table:
    case Form::Partial: break;
  }
  return "application/json";
}

std::string text_in_form(const kube::Json& json, Form form, bool pretty) {
  if (form == Form::Yaml) {
    kube::Json sorted = json;
    sort_keys(sorted);
    return print_yaml(sorted);
  }
  return (pretty ? kube::print_json_indented(json) : kube::print_json(json)) + "\n";
}

bool parse_flag(std::string_view value) { return lower(value) != "false" && value != "0" && value != "f" && value != "F"; }

bool flag(const http::Query& query, std::string_view name, bool otherwise) {
  for (const auto& [key, value] : query) {
    if (key == name) return parse_flag(value);
  }
  return otherwise;
}

Result<Body> parse_body(std::string_view content_type, std::string_view body) {
  const std::string type = parse_media_type(content_type).type;
  Body out;
  if (type == "application/vnd.kubernetes.protobuf" && !kube::is_protobuf(body))
    return fail(Code::Invalid, "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
  if (type == "application/vnd.kubernetes.protobuf" || kube::is_protobuf(body)) {
    auto decoded = kube::decode_protobuf(body, kube::TypeTable::builtin());
    if (!decoded) return std::unexpected(std::move(decoded.error()));
    out.json = std::move(*decoded);
    return out;
  }
  if (type == "application/yaml" || type == "application/x-yaml" || type == "text/yaml") {
    auto documents = kube::parse_yaml(body);
    if (!documents) return pass(std::move(documents.error()), "yaml");
    if (documents->size() != 1) return fail(Code::Invalid, fmt::format("yaml: one document was expected, there are {}", documents->size()));
    out.json = std::move(documents->front());
    return out;
  }
  if (!type.empty() && !is_json(type)) {
    return fail(Code::Unsupported,
                fmt::format("the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, "
                            "application/vnd.kubernetes.protobuf"));
  }
  auto parsed = kube::parse_json(body, {.duplicates = &out.duplicates});
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  out.json = std::move(*parsed);
  return out;
}

std::string summary_of_body(std::string_view body) {
  constexpr std::size_t shown = 30;
  if (body.empty()) return "<empty>";
  const std::string_view start = body.substr(0, shown);
  const std::string text = start.front() == '{' ? std::string(start) : hex(start);
  return body.size() > shown ? text + " ..." : text;
}

Result<PatchForm> parse_patch_form(std::string_view content_type, bool custom_resource) {
  const std::string type = parse_media_type(content_type).type;
  if (type == "application/merge-patch+json") return PatchForm{.type = kube::PatchType::Merge};
  if (type == "application/json-patch+json") return PatchForm{.type = kube::PatchType::JsonPatch};
  if (type == "application/strategic-merge-patch+json" && !custom_resource) return PatchForm{.type = kube::PatchType::Strategic};
  if (type == "application/apply-patch+yaml") return PatchForm{.apply = true};
  return fail(Code::Unsupported, fmt::format("the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
                                             "application/merge-patch+json{}, application/apply-patch+yaml",
                                             custom_resource ? "" : ", application/strategic-merge-patch+json"));
}

Result<Body> parse_apply_body(std::string_view body) {
  const auto first = body.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && body[first] == '{') {
    Body out;
    if (auto parsed = kube::parse_json(body, {.duplicates = &out.duplicates})) {
      out.json = std::move(*parsed);
      return out;
    }
  }
  return parse_body("application/yaml", body);
}

}  // namespace fairlead::apiserver
