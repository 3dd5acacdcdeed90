// SPDX-License-Identifier: Apache-2.0
// JSON merge patch (RFC 7386) and JSON patch (RFC 6902). The strategic one is in patch_strategic.cpp.
#include "kube/patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kube/patch_internal.h"

namespace fairlead::kube {

MemberEdit::MemberEdit(Json& object, std::size_t changes) : members_(object.members()), erased_(members_.size(), false) {
  if (changes < 16 || members_.size() + changes < 64) return;
  index_.emplace();
  for (std::size_t i = 0; i < members_.size(); ++i) index_->emplace(members_[i].first, i);
}

MemberEdit::~MemberEdit() {
  if (!any_erased_) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (erased_[i]) continue;
    if (kept != i) members_[kept] = std::move(members_[i]);
    ++kept;
  }
  members_.resize(kept);
}

std::size_t MemberEdit::place(std::string_view key) {
  if (index_) {
    const auto found = index_->find(std::string(key));
    return found == index_->end() || erased_[found->second] ? none : found->second;
  }
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (!erased_[i] && members_[i].first == key) return i;
  return none;
}

Json* MemberEdit::find(std::string_view key) {
  const std::size_t at = place(key);
  return at == none ? nullptr : &members_[at].second;
}

void MemberEdit::set(std::string_view key, Json value) {
  const std::size_t at = place(key);
  if (at != none) {
    members_[at].second = std::move(value);
    return;
  }
  if (index_) index_->insert_or_assign(std::string(key), members_.size());
  members_.emplace_back(std::string(key), std::move(value));
  erased_.push_back(false);
}

void MemberEdit::erase(std::string_view key) {
  const std::size_t at = place(key);
  if (at == none) return;
  erased_[at] = true;
  any_erased_ = true;
}

Json merge_patch(Json target, const Json& patch) {
  if (!patch.is_object()) return patch;
  if (!target.is_object()) target = Json::object();
  MemberEdit edit(target, patch.members().size());
  for (const auto& [key, value] : patch.members()) {
    if (value.is_null()) {
      edit.erase(key);
      continue;
    }
    Json* present = edit.find(key);
    edit.set(key, merge_patch(present ? std::move(*present) : Json(), value));
  }
  return target;
}

namespace {

constexpr std::size_t most_operations = 10'000;          // as kube-apiserver
constexpr std::size_t most_copied = std::size_t{3} << 20;  // bytes of text that "copy" may add in one patch
constexpr std::size_t depth_limit = 256;

using Pointer = std::vector<std::string>;

Result<Pointer> parse_pointer(const Json& text, std::string_view name) {
  if (!text.is_string()) return fail(Code::Invalid, fmt::format("\"{}\" must be a string", name));
  const std::string& path = text.string();
  Pointer tokens;
  if (path.empty()) return tokens;
  if (path[0] != '/') return fail(Code::Invalid, fmt::format("\"{}\" must start with /: {}", name, path));
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '/') {
      tokens.emplace_back();
    } else if (path[i] != '~') {
      tokens.back() += path[i];
    } else if (++i < path.size() && (path[i] == '0' || path[i] == '1')) {
      tokens.back() += path[i] == '0' ? '~' : '/';
    } else {
      return fail(Code::Invalid, fmt::format("\"{}\" has a ~ that is neither ~0 nor ~1: {}", name, path));
    }
  }
  return tokens;
}

std::optional<std::size_t> list_index(const std::string& token, std::size_t below) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), index);
  if (token.empty() || error != std::errc() || end != token.data() + token.size() || (token.size() > 1 && token[0] == '0') || index >= below) return std::nullopt;
  return index;
}

std::string print_pointer(const Pointer& path, std::size_t tokens) {
  std::string out;
  for (std::size_t i = 0; i < tokens; ++i) out += "/" + path[i];
  return out;
}

std::unexpected<Error> missing(const Pointer& path, std::size_t tokens) { return fail(Code::Invalid, fmt::format("there is no {}", print_pointer(path, tokens))); }

// The value that the first `tokens` steps lead to.
Result<Json*> walk(Json& root, const Pointer& path, std::size_t tokens) {
  Json* here = &root;
  for (std::size_t i = 0; i < tokens; ++i) {
    Json* next = nullptr;
    if (here->is_array()) {
      if (const auto index = list_index(path[i], here->items().size())) next = &here->items()[*index];
    } else if (here->is_object()) {
      next = here->find(path[i]);
    }
    if (!next) return missing(path, i + 1);
    here = next;
  }
  return here;
}

std::size_t depth_of(const Json& value) {
  std::size_t deepest = 0;
  for (const Json& item : value.items()) deepest = std::max(deepest, depth_of(item));
  for (const auto& [key, member] : value.members()) deepest = std::max(deepest, depth_of(member));
  return deepest + 1;
}

Result<void> add(Json& root, const Pointer& path, Json value) {
  if (path.size() + depth_of(value) > depth_limit) return fail(Code::Invalid, fmt::format("the result would be nested deeper than {} levels", depth_limit));
  if (path.empty()) {
    root = std::move(value);
    return {};
  }
  auto parent = walk(root, path, path.size() - 1);
  if (!parent) return std::unexpected(std::move(parent.error()));
  if ((*parent)->is_object()) {
    (*parent)->set(path.back(), std::move(value));
    return {};
  }
  if (!(*parent)->is_array()) return missing(path, path.size());
  auto& items = (*parent)->items();
  const auto index = path.back() == "-" ? std::optional(items.size()) : list_index(path.back(), items.size() + 1);
  if (!index) return missing(path, path.size());
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(*index), std::move(value));
  return {};
}

Result<Json> take(Json& root, const Pointer& path) {
  if (path.empty()) return std::exchange(root, Json());
  auto found = walk(root, path, path.size());
  if (!found) return std::unexpected(std::move(found.error()));
  Json taken = std::move(**found);
  Json& parent = **walk(root, path, path.size() - 1);
  if (parent.is_object()) {
    parent.erase(path.back());
  } else {
    parent.items().erase(parent.items().begin() + static_cast<std::ptrdiff_t>(*list_index(path.back(), parent.items().size())));
  }
  return taken;
}

Result<void> apply(Json& root, const Json& operation, std::size_t& copied) {
  if (!operation.is_object()) return fail(Code::Invalid, "not an object");
  const std::string& op = operation["op"].string();
  auto path = parse_pointer(operation["path"], "path");
  if (!path) return std::unexpected(std::move(path.error()));
  const Json* value = operation.find("value");
  if ((op == "add" || op == "replace" || op == "test") && !value) return fail(Code::Invalid, fmt::format("\"{}\" needs a value", op));

  if (op == "add") return add(root, *path, *value);
  if (op == "remove") {
    auto gone = take(root, *path);
    if (!gone) return std::unexpected(std::move(gone.error()));
    return {};
  }
  if (op == "replace" || op == "test") {
    auto found = walk(root, *path, path->size());
    if (!found && op == "replace" && !path->empty()) {
      // kube-apiserver's library lets a replace put a member into an object that is there.
      const auto parent = walk(root, *path, path->size() - 1);
      if (parent && (*parent)->is_object()) return add(root, *path, *value);
    }
    if (!found) return std::unexpected(std::move(found.error()));
    if (op == "test") {
      if (**found == *value) return {};
      return fail(Code::Conflict, fmt::format("testing value {} failed", operation["path"].string()));
    }
    if (path->size() + depth_of(*value) > depth_limit) return fail(Code::Invalid, fmt::format("the result would be nested deeper than {} levels", depth_limit));
    **found = *value;
    return {};
  }
  if (op == "move" || op == "copy") {
    auto from = parse_pointer(operation["from"], "from");
    if (!from) return std::unexpected(std::move(from.error()));
    if (op == "copy") {
      auto source = walk(root, *from, from->size());
      if (!source) return std::unexpected(std::move(source.error()));
      copied += print_json(**source).size();
      if (copied > most_copied) return fail(Code::Exhausted, fmt::format("the patch copies more than {} bytes", most_copied));
      return add(root, *path, Json(**source));
    }
    if (*from == *path) {
      auto there = walk(root, *from, from->size());
      if (!there) return std::unexpected(std::move(there.error()));
      return {};
    }
    if (from->size() < path->size() && std::equal(from->begin(), from->end(), path->begin())) return fail(Code::Invalid, "a value cannot move into itself");
    auto taken = take(root, *from);
    if (!taken) return std::unexpected(std::move(taken.error()));
    return add(root, *path, *std::move(taken));
  }
  return fail(Code::Invalid, fmt::format("unknown operation \"{}\"", op));
}

}  // namespace

Result<Json> json_patch(Json target, const Json& patch) {
  if (!patch.is_array()) return fail(Code::Invalid, "a JSON patch must be an array of operations");
  if (patch.items().size() > most_operations) return fail(Code::Exhausted, fmt::format("a JSON patch may have at most {} operations", most_operations));
  std::size_t copied = 0;
  for (std::size_t i = 0; i < patch.items().size(); ++i) {
    const Json& operation = patch.items()[i];
    if (auto done = apply(target, operation, copied); !done) return pass(std::move(done.error()), fmt::format("operation {} ({})", i, operation["op"].string()));
  }
  return target;
}

}  // namespace fairlead::kube
