// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/entity.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/encoding.h"

namespace fairlead::hyperpod {
namespace {

Json renamed(const Json& value, bool upper) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.items()) out.push(renamed(item, upper));
    return out;
  }
  if (!value.is_object()) return value;
  Json out = Json::object();
  for (const auto& [name, part] : value.members()) {
    std::string other = name;
    if (!other.empty() && upper && other[0] >= 'a' && other[0] <= 'z') other[0] = static_cast<char>(other[0] - 'a' + 'A');
    if (!other.empty() && !upper && other[0] >= 'A' && other[0] <= 'Z') other[0] = static_cast<char>(other[0] - 'A' + 'a');
    out.set(other, renamed(part, upper));
  }
  return out;
}

}  // namespace

std::string arn_of(const Site& site, std::string_view kind, std::string_view id) { return fmt::format("arn:aws:sagemaker:{}:{}:{}/{}", site.region, site.account, kind, id); }

std::string object_name_of(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  if (!name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), plain) && name.front() != '-' && name.back() != '-') return std::string(name);
  std::string lower;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    lower += plain(c) ? c : '-';
  }
  lower = lower.substr(0, 50);
  while (!lower.empty() && lower.back() == '-') lower.pop_back();
  while (!lower.empty() && lower.front() == '-') lower.erase(0, 1);
  return fmt::format("{}.{}", lower.empty() ? "x" : lower, hex(sha256(name)).substr(0, 10));
}

std::string name_of_entity(const Json& object) { return object["metadata"]["annotations"][name_note].string_or(kube::name_of(object)); }
Instant created_at(const Json& object) { return parse_time(object["metadata"]["creationTimestamp"].string()).value_or(Instant()); }

void note(Json& object, const char* annotation, std::string text) {
  if (text.empty()) {
    if (Json* notes = object.child("metadata").find("annotations")) notes->erase(annotation);
    return;
  }
  object.child("metadata").child("annotations").set(annotation, std::move(text));
}

Tags tags_of(const Json& object) {
  Tags out;
  const auto json = kube::parse_json(object["metadata"]["annotations"][tags_note].string());
  if (json)
    for (const auto& [key, value] : json->members()) out[key] = value.string();
  return out;
}

Json tag_list(const Tags& tags) {
  Json out = Json::array();
  for (const auto& [key, value] : tags) out.push(Json::object({{"Key", key}, {"Value", value}}));
  return out;
}

Answer<void> check_case(const Tags& tags) {
  std::map<std::string, std::string> seen;
  for (const auto& [key, value] : tags)
    if (const auto [at, fresh] = seen.emplace(iam::lower(key), key); !fresh) return invalid(fmt::format("Tag keys '{}' and '{}' differ only in case: conditions of policies could not tell them apart", at->second, key));
  return {};
}

Answer<Tags> read_tags(const Json& list) {
  Tags out;
  for (const Json& tag : list.items()) {
    const std::string& key = tag["Key"].string();
    std::string lower = key.substr(0, 4);
    for (char& c : lower)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (lower == "aws:") return invalid(fmt::format("Tag key '{}': keys that begin with aws: are reserved", key));
    if (!out.emplace(key, tag["Value"].string()).second) return invalid(fmt::format("Tag key '{}' is there twice", key));
  }
  if (auto done = check_case(out); !done) return std::unexpected(done.error());
  return out;
}

void set_tags(Json& object, const Tags& tags) {
  Json json = Json::object();
  for (const auto& [key, value] : tags) json.set(key, value);
  note(object, tags_note, tags.empty() ? "" : kube::print_json(json));
}

void set_request_keys(iam::Keys& keys, const Json& input) {
  std::set<std::string> types, subnets, security;
  const auto add_network = [&](const Json& network) {
    for (const Json& one : network["Subnets"].items()) subnets.insert(one.string());
    for (const Json& one : network["SecurityGroupIds"].items()) security.insert(one.string());
  };
  add_network(input["VpcConfig"]);
  for (const Json& group : input["InstanceGroups"].items()) {
    if (group.has("InstanceType")) types.insert(group["InstanceType"].string());
    add_network(group["OverrideVpcConfig"]);
  }
  keys.set("sagemaker:InstanceTypes", {types.begin(), types.end()});
  keys.set("sagemaker:VpcSubnets", {subnets.begin(), subnets.end()});
  keys.set("sagemaker:VpcSecurityGroupIds", {security.begin(), security.end()});
}

iam::Keys tag_keys(const Tags& asked, const Tags& there) {
  iam::Keys keys;
  std::vector<std::string> names;
  for (const auto& [key, value] : asked) {
    keys.set("aws:RequestTag/" + key, {value});
    names.push_back(key);
  }
  if (!names.empty()) keys.set("aws:TagKeys", names);
  // Tags that were written by other means may differ in case alone; then both values are told, and no condition holds for sure.
  std::map<std::string, std::vector<std::string>> values;
  for (const auto& [key, value] : there) values[iam::lower(key)].push_back(value);
  for (const auto& [key, all] : values)
    for (const char* const family : {"aws:ResourceTag/", "sagemaker:ResourceTag/", "iam:ResourceTag/"}) keys.set(family + key, all);
  return keys;
}

Json as_context(const Call& call) { return Json::object({{"Arn", call.who.arn}, {"PrincipalId", call.who.user_id}}); }

Json user_context(const Json& object, const char* annotation) {
  const auto json = kube::parse_json(object["metadata"]["annotations"][annotation].string());
  if (!json || !json->is_object()) return Json();
  return Json::object({{"IamIdentity", Json::object({{"Arn", (*json)["Arn"].string()}, {"PrincipalId", (*json)["PrincipalId"].string()}})}});
}

Json lower_names(const Json& value) { return renamed(value, false); }
Json upper_names(const Json& value) { return renamed(value, true); }

namespace {

// Labels are put back as they were.
Json with_labels(Json out, const Json& from, const char* groups, const char* groups_from, const char* config, const char* config_from, const char* labels, const char* labels_from) {
  const auto put = [&](Json& group, const Json& original) {
    if (const Json& kept = original[config_from][labels_from]; kept.is_object()) group.child(config).set(labels, kept);
  };
  put(out, from);
  if (Json* list = out.find(groups); list != nullptr && list->is_array())
    for (std::size_t i = 0; i < list->items().size(); ++i) put(list->items()[i], from[groups_from].items()[i]);
  return out;
}

}  // namespace

Json cluster_to_spec(const Json& input) { return with_labels(lower_names(input), input, "instanceGroups", "InstanceGroups", "kubernetesConfig", "KubernetesConfig", "labels", "Labels"); }
Json spec_to_cluster(const Json& spec) { return with_labels(upper_names(spec), spec, "InstanceGroups", "instanceGroups", "KubernetesConfig", "kubernetesConfig", "Labels", "labels"); }

Json only_known(const Model& model, const Model::Shape& shape, const Json& value) {
  if (shape.kind == Model::Kind::List && value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.items()) out.push(only_known(model, model.shapes()[shape.element], item));
    return out;
  }
  if (shape.kind != Model::Kind::Structure || !value.is_object()) return value;
  Json out = Json::object();
  for (const Model::Member& member : shape.members)
    if (const Json& part = value[member.name]; !part.is_null()) out.set(member.name, only_known(model, model.shapes()[member.shape], part));
  return out;
}

}  // namespace fairlead::hyperpod
