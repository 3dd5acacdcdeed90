// SPDX-License-Identifier: Apache-2.0
#include "apiserver/apply_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr int depth_limit = 128;

char letter(PathElement::Kind kind) {
  switch (kind) {
    case PathElement::Kind::Field: return 'f';
    case PathElement::Kind::Key: return 'k';
    case PathElement::Kind::Value: return 'v';
    case PathElement::Kind::Index: return 'i';
  }
  return 'f';
}

bool of_number(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'; }

// Compares two texts of compact JSON with the same shape: by characters, but numbers by their size.
std::strong_ordering compare_json_text(std::string_view a, std::string_view b) {
  const auto differs = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto of_text = [&](std::size_t place) { return place < a.size() && place < b.size() && !of_number(a[place]) && !of_number(b[place]); };
  if (of_text(differs) && (differs == 0 || !of_number(a[differs - 1]))) return static_cast<unsigned char>(a[differs]) <=> static_cast<unsigned char>(b[differs]);  // no number begins or ends here
  // Nor within a string.
  const std::string_view same = a.substr(0, differs);
  if (same.find('\\') == std::string_view::npos && std::count(same.begin(), same.end(), '"') % 2 == 1) return a.substr(differs).compare(b.substr(differs)) <=> 0;

  std::size_t at = 0, number = std::string_view::npos;
  bool in_string = false, escaped = false;
  while (at < a.size() && at < b.size() && a[at] == b[at]) {
    const char c = a[at];
    if (in_string) {
      if (escaped) escaped = false;
      else if (c == '\\') escaped = true;
      else if (c == '"') in_string = false;
      number = std::string_view::npos;
    } else {
      if (c == '"') in_string = true;
      if (!of_number(c)) number = std::string_view::npos;
      else if (number == std::string_view::npos) number = at;
    }
    ++at;
  }
  if (!in_string) {
    const std::size_t start = number == std::string_view::npos ? at : number;
    double left = 0, right = 0;
    const auto l = std::from_chars(a.data() + start, a.data() + a.size(), left), r = std::from_chars(b.data() + start, b.data() + b.size(), right);
    if (l.ec == std::errc() && r.ec == std::errc() && left != right) return left < right ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return a.substr(at).compare(b.substr(at)) <=> 0;
}

Result<FieldSet> read(const Json& object, int depth, bool* self) {
  if (!object.is_object()) return fail(Code::Invalid, "fieldsV1 must be an object of objects");
  if (depth > depth_limit) return fail(Code::Invalid, "fieldsV1 is nested too deeply");
  FieldSet out;
  auto& nodes = out.nodes();
  nodes.reserve(object.members().size());
  for (const auto& [name, value] : object.members()) {
    if (name == ".") {
      *self = true;
      continue;
    }
    auto element = parse_path_element(name);
    if (!element && element.error().code == Code::Unsupported) continue;
    if (!element) return std::unexpected(std::move(element.error()));
    bool member = false;
    auto below = read(value, depth + 1, &member);
    if (!below) return below;
    nodes.push_back({std::move(*element), member, std::move(*below)});
  }
  if (nodes.empty()) *self = true;
  const auto before = [](const FieldSet::Node& a, const FieldSet::Node& b) { return a.element < b.element; };
  if (!std::is_sorted(nodes.begin(), nodes.end(), before)) std::sort(nodes.begin(), nodes.end(), before);
  // The same element written in two ways counts once.
  for (std::size_t i = 1; i < nodes.size();) {
    if (!(nodes[i].element == nodes[i - 1].element)) {
      ++i;
      continue;
    }
    nodes[i - 1].member = nodes[i - 1].member || nodes[i].member;
    nodes[i - 1].children = nodes[i - 1].children.united(nodes[i].children);
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return out;
}

void write(std::string& out, const FieldSet& set, bool self) {
  out += '{';
  bool first = true;
  if (self && !set.empty()) {
    out += "\".\":{}";
    first = false;
  }
  for (const auto& node : set.nodes()) {
    if (!first) out += ',';
    first = false;
    const char prefix[] = {letter(node.element.kind), ':'};
    const std::size_t quote = out.size();
    kube::append_json_string(out, node.element.text);
    out.insert(quote + 1, prefix, sizeof prefix);
    out += ':';
    write(out, node.children, node.member);
  }
  out += '}';
}

}  // namespace

PathElement PathElement::key(std::vector<kube::JsonMember> fields) {
  if (fields.size() > 1) std::sort(fields.begin(), fields.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  PathElement out{Kind::Key, "{"};
  for (const auto& [name, value] : fields) {
    if (out.text.size() > 1) out.text += ',';
    kube::append_json_string(out.text, name);
    out.text += ':';
    kube::append_json(out.text, value);
  }
  out.text += '}';
  return out;
}

PathElement PathElement::key(std::string_view name, std::string_view value) {
  PathElement out{Kind::Key, "{"};
  kube::append_json_string(out.text, name);
  out.text += ':';
  kube::append_json_string(out.text, value);
  out.text += '}';
  return out;
}

std::strong_ordering operator<=>(const PathElement& a, const PathElement& b) {
  if (a.kind != b.kind) return a.kind <=> b.kind;
  if (a.kind == PathElement::Kind::Field) return a.text.compare(b.text) <=> 0;
  return compare_json_text(a.text, b.text);
}

std::string print(const PathElement& element) { return fmt::format("{}:{}", letter(element.kind), element.text); }

Result<PathElement> parse_path_element(std::string_view text) {
  if (text.size() < 2 || text[1] != ':') return fail(Code::Invalid, fmt::format("\"{}\" is no path element", text.substr(0, 80)));
  const std::string_view rest = text.substr(2);
  if (text[0] == 'f') return PathElement::field(rest);
  if (text[0] == 'k') {
    auto keys = kube::parse_json(rest, {.depth_limit = 8});
    if (!keys) return std::unexpected(std::move(keys.error()));
    if (!keys->is_object()) return fail(Code::Invalid, "keys in a path element must be an object");
    return PathElement::key(std::move(keys->members()));
  }
  if (text[0] == 'v') {
    auto value = kube::parse_json(rest, {.depth_limit = 8});
    if (!value) return std::unexpected(std::move(value.error()));
    return PathElement::value(*value);
  }
  if (text[0] == 'i') {
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
    if (error != std::errc() || end != rest.data() + rest.size()) return fail(Code::Invalid, "an index in a path element must be a number");
    return PathElement{PathElement::Kind::Index, std::to_string(index)};
  }
  return fail(Code::Unsupported, "unknown kind of path element");
}

std::string path_text(const FieldPath& path) {
  std::string out;
  const auto value_text = [](const Json& value) { return print_json(value); };
  for (const auto& element : path) {
    switch (element.kind) {
      case PathElement::Kind::Field: out.append(".").append(element.text); break;
      case PathElement::Kind::Index: out.append("[").append(element.text).append("]"); break;
      case PathElement::Kind::Value: out.append("[=").append(element.text).append("]"); break;
      case PathElement::Kind::Key: {
        out += '[';
        const auto keys = kube::parse_json(element.text);
        bool first = true;
        if (keys) {
          for (const auto& [name, value] : keys->members()) {
            if (!std::exchange(first, false)) out += ',';
            out.append(name).append("=").append(value_text(value));
          }
        }
        out += ']';
        break;
      }
    }
  }
  return out;
}

Result<FieldSet> FieldSet::parse(const Json& fields_v1) {
  bool self = false;
  return read(fields_v1, 0, &self);
}

Json FieldSet::json() const {
  std::string text;
  append(text);
  auto parsed = kube::parse_json(text, {.depth_limit = depth_limit + 8});
  INVARIANT(parsed.has_value());
  return std::move(*parsed);
}

void FieldSet::append(std::string& out) const { write(out, *this, false); }

const FieldSet::Node* FieldSet::find(const PathElement& element) const {
  const auto found = std::lower_bound(nodes_.begin(), nodes_.end(), element, [](const Node& node, const PathElement& wanted) { return node.element < wanted; });
  return found != nodes_.end() && found->element == element ? &*found : nullptr;
}
FieldSet::Node* FieldSet::find(const PathElement& element) { return const_cast<Node*>(std::as_const(*this).find(element)); }

FieldSet::Node& FieldSet::make(const PathElement& element) {
  auto at = nodes_.end();
  if (!nodes_.empty() && !(nodes_.back().element < element)) at = std::lower_bound(nodes_.begin(), nodes_.end(), element, [](const Node& node, const PathElement& wanted) { return node.element < wanted; });
  if (at != nodes_.end() && at->element == element) return *at;
  return *nodes_.insert(at, Node{element, false, {}});
}

bool FieldSet::has(const FieldPath& path) const {
  const FieldSet* set = this;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Node* node = set->find(path[i]);
    if (node == nullptr) return false;
    if (i + 1 == path.size()) return node->member;
    set = &node->children;
  }
  return false;
}

void FieldSet::insert(const FieldPath& path) {
  FieldSet* set = this;
  for (std::size_t i = 0; i < path.size(); ++i) {
    Node& node = set->make(path[i]);
    if (i + 1 == path.size()) node.member = true;
    set = &node.children;
  }
}

const FieldSet& FieldSet::below(const PathElement& element) const {
  static const FieldSet none;
  const Node* node = find(element);
  return node == nullptr ? none : node->children;
}
bool FieldSet::member(const PathElement& element) const {
  const Node* node = find(element);
  return node != nullptr && node->member;
}
FieldSet& FieldSet::descend(const PathElement& element) { return make(element).children; }

void FieldSet::tidy() {
  for (Node& node : nodes_) node.children.tidy();
  std::erase_if(nodes_, [](const Node& node) { return !node.member && node.children.empty(); });
}

std::size_t FieldSet::size() const {
  std::size_t count = 0;
  for (const Node& node : nodes_) count += (node.member ? 1 : 0) + node.children.size();
  return count;
}

FieldSet FieldSet::united(const FieldSet& other) const {
  FieldSet out;
  out.nodes_.reserve(std::max(nodes_.size(), other.nodes_.size()));
  std::size_t i = 0, j = 0;
  while (i < nodes_.size() || j < other.nodes_.size()) {
    const auto order = i == nodes_.size()         ? std::strong_ordering::greater
                       : j == other.nodes_.size() ? std::strong_ordering::less
                                                  : nodes_[i].element <=> other.nodes_[j].element;
    if (order < 0) {
      out.nodes_.push_back(nodes_[i++]);
    } else if (order > 0) {
      out.nodes_.push_back(other.nodes_[j++]);
    } else {
      const Node &a = nodes_[i++], &b = other.nodes_[j++];
      out.nodes_.push_back({a.element, a.member || b.member, a.children.united(b.children)});
    }
  }
  return out;
}

FieldSet FieldSet::intersected(const FieldSet& other) const {
  FieldSet out;
  for (const Node& node : nodes_) {
    const Node* there = other.find(node.element);
    if (there == nullptr) continue;
    Node both{node.element, node.member && there->member, node.children.intersected(there->children)};
    if (both.member || !both.children.empty()) out.nodes_.push_back(std::move(both));
  }
  return out;
}

FieldSet FieldSet::without(const FieldSet& other) const {
  FieldSet out;
  for (const Node& node : nodes_) {
    const Node* there = other.find(node.element);
    if (there == nullptr) {
      out.nodes_.push_back(node);
      continue;
    }
    Node rest{node.element, node.member && !there->member, node.children.without(there->children)};
    if (rest.member || !rest.children.empty()) out.nodes_.push_back(std::move(rest));
  }
  return out;
}

FieldSet FieldSet::without_trees(const FieldSet& other) const {
  FieldSet out;
  for (const Node& node : nodes_) {
    const Node* there = other.find(node.element);
    if (there == nullptr) {
      out.nodes_.push_back(node);
    } else if (!there->member) {
      Node rest{node.element, node.member, node.children.without_trees(there->children)};
      if (rest.member || !rest.children.empty()) out.nodes_.push_back(std::move(rest));
    }
  }
  return out;
}

namespace {
void visit_each(const FieldSet& set, FieldPath& path, const std::function<void(const FieldPath&)>& visit) {
  for (const bool members : {true, false}) {
    for (const auto& node : set.nodes()) {
      if (members && !node.member) continue;
      path.push_back(node.element);
      if (members) visit(path);
      else visit_each(node.children, path, visit);
      path.pop_back();
    }
  }
}
}  // namespace

void FieldSet::each(const std::function<void(const FieldPath&)>& visit) const {
  FieldPath path;
  visit_each(*this, path, visit);
}

bool operator==(const FieldSet& a, const FieldSet& b) { return a.nodes_ == b.nodes_; }

}  // namespace fairlead::apiserver
