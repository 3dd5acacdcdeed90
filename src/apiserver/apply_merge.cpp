// SPDX-License-Identifier: Apache-2.0
#include "apiserver/apply_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>

namespace fairlead::apiserver {

using kube::Json;
using Relation = Shape::Relation;

namespace {

constexpr std::array<std::string_view, 9> unowned_metadata{"clusterName", "creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid"};

bool empty_or_null(const Json* value) { return value == nullptr || value->is_null() || (value->is_object() && value->members().empty()) || (value->is_array() && value->items().empty()); }

// How two values of one place are looked at. Empty on both sides, or of different types: as one leaf.
Relation common_relation(const Json* left, const Json* right, const Shape& shape) {
  if (empty_or_null(left) && empty_or_null(right)) return Relation::Leaf;
  const Json& telling = empty_or_null(right) && left != nullptr ? *left : *right;
  const Relation relation = shape.relation(telling);
  const auto fits = [&](const Json* value) { return value == nullptr || value->is_null() || value->type() == telling.type(); };
  return fits(left) && fits(right) ? relation : Relation::Leaf;
}

Shape member_shape(const Shape& shape, std::string_view name) {
  static const Shape unknown = *Shape::of(Kind{}).member("x");  // anything
  auto found = shape.member(name);
  return found ? *found : unknown;
}

// The items of a list by their elements, in order of appearance; several if an element occurs more than once. Items without an element are left out.
struct Items {
  std::vector<PathElement> order;
  std::map<PathElement, std::vector<const Json*>> by_element;
};
Items items_of(const Json* list, const Shape& shape) {
  Items out;
  if (list == nullptr) return out;
  for (const Json& item : list->items()) {
    auto element = shape.element(item);
    if (!element) continue;
    auto& there = out.by_element[*element];
    if (there.empty()) out.order.push_back(std::move(*element));
    there.push_back(&item);
  }
  return out;
}

class Comparer {
 public:
  explicit Comparer(Comparison& out) : out_(out) {}

  void at(const Json* left, const Json* right, const Shape& shape) {
    const Relation relation = common_relation(left, right, shape);
    if (relation == Relation::Leaf) {
      if (left == nullptr) out_.added.insert(path_);
      else if (right == nullptr) out_.removed.insert(path_);
      else if (!(*left == *right)) out_.modified.insert(path_);
      return;
    }
    if (relation == Relation::Map) members(left, right, shape);
    else items(left, right, shape);
    if (left == nullptr && !path_.empty()) out_.added.insert(path_);
    if (right == nullptr && !path_.empty()) out_.removed.insert(path_);
  }

 private:
  void step(PathElement element, const Json* left, const Json* right, const Shape& shape) {
    path_.push_back(std::move(element));
    at(left, right, shape);
    path_.pop_back();
  }

  void members(const Json* left, const Json* right, const Shape& shape) {
    static const Json none = Json::object();
    const Json &l = left == nullptr ? none : *left, &r = right == nullptr ? none : *right;
    for (const auto& [name, value] : l.members()) {
      const Json* other = r.find(name);
      if (other != nullptr && other->is_string() && *other == value) continue;  // nothing to say, and most members are
      step(PathElement::field(name), &value, other, member_shape(shape, name));
    }
    for (const auto& [name, value] : r.members())
      if (!l.has(name)) step(PathElement::field(name), nullptr, &value, member_shape(shape, name));
  }

  void items(const Json* left, const Json* right, const Shape& shape) {
    const Items l = items_of(left, shape), r = items_of(right, shape);
    const Shape item = shape.item();
    static const std::vector<const Json*> none;
    const auto one = [&](const PathElement& element) {
      const auto in_l = l.by_element.find(element), in_r = r.by_element.find(element);
      const auto& ls = in_l == l.by_element.end() ? none : in_l->second;
      const auto& rs = in_r == r.by_element.end() ? none : in_r->second;
      if (ls.size() <= 1 && rs.size() <= 1) return step(element, ls.empty() ? nullptr : ls[0], rs.empty() ? nullptr : rs[0], item);
      path_.push_back(element);
      // Items that occur twice are one thing together.
      if (ls.size() >= 2 && rs.size() >= 2) {
        if (!std::equal(ls.begin(), ls.end(), rs.begin(), rs.end(), [](const Json* a, const Json* b) { return *a == *b; })) out_.modified.insert(path_);
      } else if (ls.size() >= 2) {
        if (!rs.empty()) at(nullptr, rs[0], item);
        out_.removed.insert(path_);
      } else {
        if (!ls.empty()) at(ls[0], nullptr, item);
        out_.added.insert(path_);
      }
      path_.pop_back();
    };
    for (const PathElement& element : l.order) one(element);
    for (const PathElement& element : r.order)
      if (!l.by_element.contains(element)) one(element);
  }

  Comparison& out_;
  FieldPath path_;
};

void collect(const Json& value, const Shape& shape, FieldPath& path, FieldSet& out) {
  const Relation relation = shape.relation(value);
  if (relation == Relation::Leaf) return out.insert(path);
  if (value.is_null()) return;
  if (relation == Relation::Map) {
    for (const auto& [name, member] : value.members()) {
      path.push_back(PathElement::field(name));
      collect(member, member_shape(shape, name), path, out);
      if (!shape.declares(name) || member.is_null() || (member.is_object() && member.members().empty())) out.insert(path);
      path.pop_back();
    }
    return;
  }
  const Items items = items_of(&value, shape);
  for (const PathElement& element : items.order) {
    const auto& there = items.by_element.at(element);
    path.push_back(element);
    if (there.size() == 1) collect(*there[0], shape.item(), path, out);
    out.insert(path);
    path.pop_back();
  }
}

Json merged(const Json* left, const Json* right, const Shape& shape);

Json merged_members(const Json* left, const Json* right, const Shape& shape) {
  Json out = Json::object();
  if (left != nullptr)
    for (const auto& [name, value] : left->members()) out.members().emplace_back(name, merged(&value, right == nullptr ? nullptr : right->find(name), member_shape(shape, name)));
  if (right != nullptr)
    for (const auto& [name, value] : right->members())
      if (left == nullptr || !left->has(name)) out.members().emplace_back(name, value);
  return out;
}

// Items of the left that the right does not have stay where they are between their neighbours; those that both have come in the order of the right.
Json merged_items(const Json* left, const Json* right, const Shape& shape) {
  const Items l = items_of(left, shape), r = items_of(right, shape);
  const Shape item = shape.item();
  std::vector<PathElement> left_elements;  // with repeats
  std::vector<const Json*> left_items;
  if (left != nullptr) {
    for (const Json& one : left->items()) {
      auto element = shape.element(one);
      if (!element) continue;
      left_elements.push_back(std::move(*element));
      left_items.push_back(&one);
    }
  }
  const auto only = [](const Items& items, const PathElement& element) -> const Json* {
    const auto found = items.by_element.find(element);
    return found != items.by_element.end() && found->second.size() == 1 ? found->second[0] : nullptr;
  };
  std::vector<const PathElement*> shared;
  for (const PathElement& element : r.order)
    if (l.by_element.contains(element)) shared.push_back(&element);
  std::size_t next_shared = 0;
  std::set<PathElement> done;
  std::vector<Json> out;
  const auto take = [&](const PathElement& element) {
    done.insert(element);
    out.push_back(merged(only(l, element), only(r, element), item));
  };
  for (std::size_t i = 0, j = 0; i < left_elements.size() || j < r.order.size();) {
    if (i < left_elements.size() && j < r.order.size()) {
      if (left_elements[i] == r.order[j]) {
        take(r.order[j]);
        ++i, ++j, ++next_shared;
        continue;
      }
      if (r.by_element.contains(left_elements[i]) && next_shared < shared.size() && !(*shared[next_shared] == left_elements[i])) {
        ++i;  // both have it, but another one comes first
        continue;
      }
    }
    if (i < left_elements.size()) {
      if (!r.by_element.contains(left_elements[i])) {
        out.push_back(*left_items[i]);
        ++i;
        continue;
      }
      if (done.contains(left_elements[i])) ++i;
    }
    if (j < r.order.size()) {
      const PathElement& element = r.order[j];
      take(element);
      ++j;
      if (next_shared < shared.size() && *shared[next_shared] == element) ++next_shared;
    }
  }
  return Json::array(std::move(out));
}

Json merged(const Json* left, const Json* right, const Shape& shape) {
  if (left == nullptr) return *right;
  if (right == nullptr) return *left;
  const Relation relation = common_relation(left, right, shape);
  if (relation == Relation::Leaf) return *right;
  return relation == Relation::Map ? merged_members(left, right, shape) : merged_items(left, right, shape);
}

class Writer {
 public:
  // Appends the object of one place: {"f:a":{}}. False, and nothing appended: it did not change.
  bool at(const Json* left, const Json& right, const Shape& shape) {
    const Relation relation = common_relation(left, &right, shape);
    if (relation == Relation::Leaf) {
      if (left != nullptr && *left == right) return false;
      out += "{}";
      return true;
    }
    const std::size_t start = out.size();
    out += left == nullptr ? "{\".\":{}" : "{";
    if (relation == Relation::Map) members(left, right, shape, {});
    else items(right, shape);
    if (left != nullptr && out.size() == start + 1) {
      out.resize(start);
      return false;
    }
    constexpr std::size_t only_itself = 7;  // {".":{}
    if (left == nullptr && out.size() == start + only_itself) out.resize(start + 1);
    out += '}';
    return true;
  }

  void members(const Json* left, const Json& right, const Shape& shape, const std::function<bool(std::string_view)>& skip) {
    // Nearly all objects are small: no memory is asked for then.
    std::array<const kube::JsonMember*, 32> few;
    std::vector<const kube::JsonMember*> many;
    if (right.members().size() > few.size()) many.resize(right.members().size());
    const kube::JsonMember** const begin = many.empty() ? few.data() : many.data();
    const kube::JsonMember** end = begin;
    for (const auto& member : right.members())
      if (!skip || !skip(member.first)) *end++ = &member;
    std::sort(begin, end, [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* member : std::span(begin, end)) {
      const std::size_t before = open("f:", member->first);
      if (!at(left == nullptr ? nullptr : left->find(member->first), member->second, member_shape(shape, member->first))) out.resize(before);
    }
  }

  // Whatever was in the list before, a create adds all its items.
  void items(const Json& right, const Shape& shape) {
    std::vector<std::pair<PathElement, const Json*>> sorted;
    sorted.reserve(right.items().size());
    for (const Json& item : right.items())
      if (auto element = shape.element(item)) sorted.emplace_back(std::move(*element), &item);
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const Shape item = shape.item();
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const bool repeated = i + 1 < sorted.size() && sorted[i + 1].first == sorted[i].first;
      open(sorted[i].first.kind == PathElement::Kind::Key ? "k:" : "v:", sorted[i].first.text);
      if (repeated) {
        while (i + 1 < sorted.size() && sorted[i + 1].first == sorted[i].first) ++i;
        out += "{}";
      } else {
        at(nullptr, *sorted[i].second, item);
      }
    }
  }

  // Begins a member; gives the length to go back to.
  std::size_t open(std::string_view prefix, std::string_view name) {
    const std::size_t before = out.size();
    if (out.back() != '{') out += ',';
    name_.assign(prefix).append(name);
    kube::append_json_string(out, name_);
    out += ':';
    return before;
  }

  std::string out;

 private:
  std::string name_;
};

void check(const Json& value, const Shape& shape, const std::string& path, std::vector<std::string>& errors) {
  const auto complain = [&](const std::string& where, std::string_view why) { errors.push_back(where.empty() ? std::string(why) : fmt::format("{}: {}", where, why)); };
  if (const std::string why = shape.scalar_complaint(value); !why.empty()) return complain(path, why);
  if (value.is_object() && shape.maps()) {
    for (const auto& [name, member] : value.members()) {
      const std::string below = path + "." + name;
      const auto inner = shape.member(name);
      if (!inner) complain(below, "field not declared in schema");
      else check(member, *inner, below, errors);
    }
  }
  if (!value.is_array() || !shape.lists()) return;
  const Relation relation = shape.relation(value);
  std::set<PathElement> seen;
  for (std::size_t i = 0; i < value.items().size(); ++i) {
    const Json& item = value.items()[i];
    if (relation == Relation::Leaf) {
      check(item, shape.item(), fmt::format("{}[{}]", path, i), errors);
      continue;
    }
    auto element = shape.element(item);
    if (!element) {
      complain(path, fmt::format("element {}: {}", i, element.error().message));
      continue;
    }
    const std::string name = path_text({*element});
    if (!seen.insert(*element).second) complain(path, fmt::format("duplicate entries for key {}", name));
    check(item, shape.item(), path + name, errors);
  }
}

}  // namespace

const FieldSet& system_fields() {
  static const FieldSet set = [] {
    FieldSet out;
    for (const char* name : {"apiVersion", "kind", "metadata"}) out.insert({PathElement::field(name)});
    for (const std::string_view name : unowned_metadata) out.insert({PathElement::field("metadata"), PathElement::field(name)});
    return out;
  }();
  return set;
}

Comparison compare(const Json& left, const Json& right, const Shape& shape) {
  Comparison out;
  Comparer(out).at(&left, &right, shape);
  return out;
}

FieldSet fields_of(const Json& value, const Shape& shape) {
  FieldSet out;
  FieldPath path;
  if (value.is_object()) collect(value, shape, path, out);
  return out;
}

Json merge(const Json& left, const Json& right, const Shape& shape) { return merged(&left, &right, shape); }

Json remove_fields(const Json& value, const FieldSet& fields, const Shape& shape) {
  if (fields.empty() || empty_or_null(&value)) return value;
  const Relation relation = shape.relation(value);
  if (relation == Relation::Leaf) return value.is_object() || value.is_array() ? Json() : value;
  if (relation == Relation::Map) {
    Json out = Json::object();
    for (const auto& [name, member] : value.members()) {
      const PathElement element = PathElement::field(name);
      if (fields.member(element)) continue;
      const FieldSet& below = fields.below(element);
      // What lost everything inside stays as null: it was not given up itself, so its owners keep it.
      out.members().emplace_back(name, below.empty() ? member : remove_fields(member, below, member_shape(shape, name)));
    }
    return out.members().empty() ? Json() : out;
  }
  std::vector<Json> out;
  for (const Json& item : value.items()) {
    const auto element = shape.element(item);
    if (element && fields.member(*element)) continue;
    out.push_back(element ? remove_fields(item, fields.below(*element), shape.item()) : item);
  }
  return out.empty() ? Json() : Json::array(std::move(out));
}

FieldSet with_named(const FieldSet& set, const Shape& shape) {
  FieldSet out = set;
  for (auto& node : out.nodes()) {
    if (node.children.empty()) continue;
    const bool field = node.element.kind == PathElement::Kind::Field;
    if (field && shape.declares(node.element.text)) node.member = true;
    if (field && shape.maps()) node.children = with_named(node.children, member_shape(shape, node.element.text));
    else if (node.element.kind == PathElement::Kind::Key && shape.lists()) node.children = with_named(node.children, shape.item());
  }
  return out;
}

FieldSet reconciled(FieldSet set, const Shape& shape) {
  for (auto& node : set.nodes()) {
    if (node.children.empty()) continue;
    std::optional<Shape> inner;
    if (node.element.kind == PathElement::Kind::Field && shape.maps()) inner = shape.member(node.element.text);
    if (node.element.kind != PathElement::Kind::Field && shape.lists()) inner = shape.item();
    if (!inner) continue;
    if (inner->atomic()) {
      node.member = true;
      node.children = FieldSet();
    } else {
      node.children = reconciled(std::move(node.children), *inner);
    }
  }
  return set;
}

std::vector<std::string> configuration_errors(const Json& value, const Shape& shape) {
  std::vector<std::string> errors;
  check(value, shape, "", errors);
  return errors;
}

std::string changed_fields(const Json& left, const Json& right, const Shape& shape, bool skip_status) {
  Writer writer;
  writer.out.reserve(1024);
  writer.out += '{';
  const Json* old_metadata = left.find("metadata");
  const Json& metadata = right["metadata"];
  std::vector<const kube::JsonMember*> sorted;
  for (const auto& member : right.members()) {
    const bool frame = member.first == "apiVersion" || member.first == "kind" || (skip_status && member.first == "status");
    if (!frame) sorted.push_back(&member);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  for (const auto* member : sorted) {
    const std::size_t before = writer.open("f:", member->first);
    const Shape inner = member_shape(shape, member->first);
    if (&member->second != &metadata) {
      if (!writer.at(left.find(member->first), member->second, inner)) writer.out.resize(before);
      continue;
    }
    const std::size_t start = writer.out.size();
    writer.out += '{';
    writer.members(old_metadata, metadata, inner, [](std::string_view name) { return std::find(unowned_metadata.begin(), unowned_metadata.end(), name) != unowned_metadata.end(); });
    if (writer.out.size() == start + 1) writer.out.resize(before);
    else writer.out += '}';
  }
  writer.out += '}';
  return writer.out.size() == 2 ? std::string() : std::move(writer.out);
}

}  // namespace fairlead::apiserver
