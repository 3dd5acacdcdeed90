// SPDX-License-Identifier: Apache-2.0
// Strategic merge patch. Semantics: k8s.io/apimachinery/pkg/util/strategicpatch as kube-apiserver uses it (nulls that match nothing are dropped).
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "kube/patch.h"
#include "kube/patch_internal.h"

namespace fairlead::kube {

namespace {

constexpr std::string_view directive = "$patch", retain_keys = "$retainKeys";
constexpr std::string_view set_order = "$setElementOrder/", delete_primitives = "$deleteFromPrimitiveList/";

bool is_directive(std::string_view key) { return key == directive || key == retain_keys || key.starts_with(set_order) || key.starts_with(delete_primitives); }

// What a patch puts where nothing was: without directives and nulls. Maps that carry $patch speak of something that is not there, and go.
Json without_directives(const Json& patch) {
  if (patch.is_array()) {
    Json list = Json::array();
    for (const Json& item : patch.items())
      if (!item.has(directive)) list.push(without_directives(item));
    return list;
  }
  if (!patch.is_object()) return patch;
  Json object = Json::object();
  for (const auto& [key, value] : patch.members())
    if (!is_directive(key) && !value.is_null() && !value.has(directive)) object.members().emplace_back(key, without_directives(value));
  return object;
}

// How a list is merged: by a key of its items, or its items being the keys.
struct Key {
  std::string_view name;  // empty: primitives
  // Text that is equal for equal keys; nullopt: an item without one.
  std::optional<std::string> of(const Json& item) const {
    if (name.empty()) return print_json(item);
    const Json* value = item.find(name);
    return value && !value->is_null() ? std::optional(print_json(*value)) : std::nullopt;
  }
};
using Places = std::unordered_map<std::string, std::size_t>;

Places places_of(const Json& list, const Key& key) {
  Places places;
  for (std::size_t i = 0; i < list.items().size(); ++i)
    if (auto text = key.of(list.items()[i])) places.emplace(*std::move(text), i);
  return places;
}

class Merge {
 public:
  explicit Merge(const TypeTable& table) : table_(table) {}

  Result<Json> object(Json target, const Json& patch, const Type* type) {
    if (!target.is_object()) target = Json::object();
    if (const Json* what = patch.find(directive)) {
      if (what->string() == "replace") return without_directives(patch);
      if (what->string() == "delete") return Json::object();
      if (what->string() != "merge") return fail(Code::Invalid, fmt::format("unknown patch type {} in map", print_json(*what)));
    }
    if (auto done = retain(target, patch); !done) return std::unexpected(std::move(done.error()));

    MemberEdit edit(target, patch.members().size());
    for (const auto& [key, value] : patch.members()) {
      if (!key.starts_with(delete_primitives)) continue;
      const std::string_view name = std::string_view(key).substr(delete_primitives.size());
      if (value.is_null()) {
        edit.erase(name);
      } else if (auto done = remove_primitives(edit.find(name), key, value); !done) {
        return std::unexpected(std::move(done.error()));
      }
    }
    for (const auto& [key, value] : patch.members()) {
      if (is_directive(key)) continue;
      if (value.is_null()) {
        edit.erase(key);
        continue;
      }
      const Field* field = type ? type->find(key) : nullptr;
      const Json* order = patch.find(fmt::format("{}{}", set_order, key));
      Json* present = edit.find(key);
      if (!present || present->type() != value.type() || !(value.is_object() || value.is_array())) {
        if (value.is_array() && order && mergeable(field))
          if (auto fits = check_order(value, *order, Key{field->merge_key}, key); !fits) return std::unexpected(std::move(fits.error()));
        if (value.has(directive)) {
          edit.erase(key);
        } else {
          edit.set(key, without_directives(value));
        }
        continue;
      }
      auto merged = value.is_object() ? object(std::move(*present), value, field && field->type == FieldType::Message && !field->map ? field->message : nullptr)
                                      : list(std::move(*present), value, order, field, key);
      if (!merged) return pass(std::move(merged.error()), key);
      edit.set(key, *std::move(merged));
    }
    // An order alone also sorts what is there.
    for (const auto& [key, value] : patch.members()) {
      if (!key.starts_with(set_order)) continue;
      const std::string_view name = std::string_view(key).substr(set_order.size());
      Json* present = edit.find(name);
      const Field* field = type ? type->find(name) : nullptr;
      if (!present || !present->is_array() || patch.find(name) || !mergeable(field)) continue;
      auto sorted = list(std::move(*present), Json::array(), &value, field, name);
      if (!sorted) return pass(std::move(sorted.error()), name);
      edit.set(name, *std::move(sorted));
    }
    return target;
  }

 private:
  static bool mergeable(const Field* field) { return field && (field->list == ListKind::Map || field->list == ListKind::Set); }

  static Result<void> retain(Json& target, const Json& patch) {
    const Json* kept = patch.find(retain_keys);
    if (!kept) return {};
    if (!kept->is_array()) return fail(Code::Invalid, "$retainKeys must be a list");
    std::unordered_set<std::string> names;
    for (const Json& name : kept->items()) names.insert(name.string());
    for (const auto& [key, value] : patch.members())
      if (!is_directive(key) && !value.is_null() && !names.contains(key))
        return fail(Code::Invalid, fmt::format("the list of $retainKeys must be a superset of the fields present in the patch; {} is not in it", key));
    std::erase_if(target.members(), [&](const JsonMember& member) { return !names.contains(member.first); });
    return {};
  }

  static Result<void> remove_primitives(Json* list, std::string_view directive_key, const Json& values) {
    if (!list || !list->is_array()) return {};
    if (!values.is_array()) return fail(Code::Invalid, fmt::format("{} must be a list", directive_key));
    std::unordered_set<std::string> gone;
    for (const Json& value : values.items()) gone.insert(print_json(value));
    std::erase_if(list->items(), [&](const Json& item) { return gone.contains(print_json(item)); });
    return {};
  }

  Result<Json> list(Json target, const Json& patch, const Json* order, const Field* field, std::string_view name) {
    if (!mergeable(field)) return without_directives(patch);
    const Key key{field->list == ListKind::Map ? field->merge_key : std::string_view()};
    const std::size_t length = target.items().size();
    bool replace = false;
    Json plain = Json::array();
    for (const Json& item : patch.items()) {
      if (key.name.empty() ? item.is_object() || item.is_array() : !item.is_object())
        return fail(Code::Invalid, key.name.empty() ? "the items of a list of primitives must be primitives" : fmt::format("item {} is not an object", print_json(item)));
      const Json* what = key.name.empty() ? nullptr : item.find(directive);
      if (!what) {
        plain.push(item);
        continue;
      }
      if (what->string() == "replace") {
        replace = true;  // this item only says so
      } else if (what->string() == "delete") {
        const auto gone = key.of(item);
        if (!gone) return fail(Code::Invalid, fmt::format("delete patch type with no merge key {} defined", key.name));
        std::erase_if(target.items(), [&](const Json& one) { return key.of(one) == gone; });
      } else if (what->string() == "merge") {
        plain.push(item);
      } else {
        return fail(Code::Invalid, fmt::format("unknown patch type {} in list {}", print_json(*what), name));
      }
    }
    if (replace) return without_directives(plain);
    if (order)
      if (auto fits = check_order(plain, *order, key, name); !fits) return std::unexpected(std::move(fits.error()));

    Places server = places_of(target, key);
    if (auto done = merge_items(target, plain, key, field->message); !done) return std::unexpected(std::move(done.error()));
    if (order) {
      // With an explicit order apimachinery compares by a list in which new items have already taken the places that deleted ones left.
      server = places_of(target, key);
      std::erase_if(server, [&](const auto& place) { return place.second >= length; });
    }
    put_in_order(target, server, order ? *order : plain, key);
    return target;
  }

  Result<void> merge_items(Json& target, const Json& patch, const Key& key, const Type* type) {
    Places places = places_of(target, key);
    for (const Json& item : patch.items()) {
      const auto text = key.of(item);
      if (!text) return fail(Code::Invalid, fmt::format("map: {} does not contain declared merge key: {}", print_json(item), key.name));
      const auto found = places.find(*text);
      if (found == places.end()) {
        places.emplace(*text, target.items().size());
        target.push(without_directives(item));
      } else if (!key.name.empty()) {
        Json& present = target.items()[found->second];
        auto merged = object(std::move(present), item, type);
        if (!merged) return pass(std::move(merged.error()), *text);
        present = *std::move(merged);
      }
    }
    return {};
  }

  // The items of a patch must stand in the order that its $setElementOrder gives, and all be in it.
  static Result<void> check_order(const Json& patch, const Json& order, const Key& key, std::string_view name) {
    if (!order.is_array()) return fail(Code::Invalid, fmt::format("{}{} must be a list", set_order, name));
    std::size_t at = 0;
    for (const Json& item : patch.items()) {
      if (item[directive].string() == "delete") continue;
      const auto text = key.of(item);
      while (at < order.items().size() && key.of(order.items()[at]) != text) ++at;
      if (at == order.items().size()) return fail(Code::Invalid, fmt::format("the order in patch list {} doesn't match {}{} list {}", print_json(patch), set_order, name, print_json(order)));
    }
    return {};
  }

  // Items named by `order` (or, without one, by the patch) take its order; those that only the server has keep their places relative to the named ones
  // that stood behind them. New items come before both: clients count on this odd rule.
  static void put_in_order(Json& target, const Places& server, const Json& order, const Key& key) {
    const Places wanted = places_of(order, key);
    std::vector<Json> named, others;
    for (Json& item : target.items()) {
      const auto text = key.of(item);
      (text && wanted.contains(*text) ? named : others).push_back(std::move(item));
    }
    std::stable_sort(named.begin(), named.end(), [&](const Json& a, const Json& b) { return wanted.at(*key.of(a)) < wanted.at(*key.of(b)); });

    std::vector<Json> sorted;
    std::size_t i = 0, j = 0;
    while (i < others.size() || j < named.size()) {
      bool other_first = j == named.size();
      if (!other_first && i < others.size()) {
        const auto left = key.of(others[i]);
        const auto l = left ? server.find(*left) : server.end(), r = server.find(*key.of(named[j]));
        other_first = l != server.end() && r != server.end() && l->second < r->second;
      }
      sorted.push_back(std::move(other_first ? others[i++] : named[j++]));
    }
    target.items() = std::move(sorted);
  }

  [[maybe_unused]] const TypeTable& table_;
};

}  // namespace

Result<Json> strategic_merge(Json target, const Json& patch, const TypeTable& table, const Type* type) {
  if (!patch.is_object()) return fail(Code::Invalid, "a strategic merge patch must be an object");
  return Merge(table).object(std::move(target), patch, type);
}

}  // namespace fairlead::kube
