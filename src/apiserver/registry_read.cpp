// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "apiserver/registry_impl.h"
#include "apiserver/status.h"
#include "base/encoding.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

Result<Revision> parse_revision(const std::string& text) {
  Revision revision = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), revision);
  if (error != std::errc() || end != text.data() + text.size() || revision < 0) return fail(Code::Invalid, fmt::format("invalid resource version: resourceVersion: Invalid value: \"{0}\": strconv.ParseUint: parsing \"{0}\": invalid syntax", text));
  return revision;
}

std::unexpected<Error> too_large(Revision asked, Revision now) { return fail(Code::Unavailable, fmt::format("Too large resource version: {}, current: {}", asked, now)); }

constexpr std::string_view continue_expired =
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve "
    "the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned "
    "and now may show up in the list.";

// An opaque token for clients: which snapshot, and the last key that was given.
std::string continue_token(Revision revision, const std::string& last) {
  return base64(print_json(Json::object({{"v", "meta.k8s.io/v1"}, {"rv", revision}, {"start", last}})));
}

struct From {
  Revision at = 0;  // 0: now
  std::string after;
};

Result<From> where_to_start(const ListQuery& query, const std::string& prefix, Revision now) {
  const std::string& match = query.resource_version_match;
  const auto invalid = [](std::string_view why) { return fail(Code::Invalid, fmt::format("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: {}", why)); };
  if (!match.empty() && query.resource_version.empty()) return invalid("Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided");
  if (!match.empty() && !query.continue_token.empty()) return invalid("Forbidden: resourceVersionMatch is forbidden when continue is provided");
  if (!match.empty() && match != "Exact" && match != "NotOlderThan") return invalid(fmt::format("Unsupported value: \"{}\": supported values: \"Exact\", \"NotOlderThan\", \"\"", match));
  if (match == "Exact" && query.resource_version == "0") return invalid("Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
  if (!query.continue_token.empty()) {
    if (!query.resource_version.empty() && query.resource_version != "0") return fail(Code::Invalid, "specifying resource version is not allowed when using continue");
    const auto bytes = parse_base64(query.continue_token);
    const auto token = bytes ? kube::parse_json(*bytes) : Result<Json>(fail(Code::Invalid, ""));
    const Revision revision = token ? (*token)["rv"].integer() : 0;
    constexpr Revision whatever_is_there = -1;  // of a token that was given with a 410: the rest, as of now
    if (revision == whatever_is_there && !(*token)["start"].string().empty()) return From{0, prefix + (*token)["start"].string()};
    if (revision <= 0 || (*token)["start"].string().empty()) return fail(Code::Invalid, "invalid continue token: continue key is not valid");
    return From{revision, prefix + (*token)["start"].string()};
  }
  if (query.resource_version.empty()) return From{};
  const auto asked = parse_revision(query.resource_version);
  if (!asked) return std::unexpected(asked.error());
  if (*asked == 0) return From{};
  if (*asked > now) return too_large(*asked, now);
  const bool exact = match == "Exact" || (match.empty() && query.limit > 0);
  return From{exact ? *asked : 0, {}};
}

}  // namespace

Result<Value> EmbeddedRegistry::plain(const Kind& kind, const std::string& key, const Value& stored, Revision revision) const {
  Value value = stored;
  if (sealed(kind.resource)) {
    if (!seal_) return fail(Code::Unsupported, "Secrets need a key: the server was started without one");
    auto opened = seal_->open(key, *stored.bytes(), revision);
    if (!opened) return std::unexpected(std::move(opened.error()));
    value = Value(std::move(*opened));
  }
  if (has_api_version(value.head(), kind.resource.api_version())) return value;
  std::vector<Value> one{std::move(value)};
  if (auto done = in_version(kind, one); !done) return std::unexpected(std::move(done.error()));
  return std::move(one.front());
}

Result<Object> EmbeddedRegistry::get(const Kind& kind, const kube::ObjectKey& key) const {
  const std::string at = store_key(kind.resource, key);
  const auto entry = key.name.empty() ? std::nullopt : store_.get(at);
  if (!entry) return not_found(kind.resource, key.name);
  auto bytes = plain(kind, at, entry->value, entry->revision);
  if (!bytes) return std::unexpected(std::move(bytes.error()));
  return Object{bytes->bytes(), entry->revision};
}

Result<ListPage> EmbeddedRegistry::list(const Kind& kind, const std::string& space, const ListQuery& query) const {
  const auto selection = Selection::make(kind, query.label_selector, query.field_selector);
  if (!selection) return std::unexpected(selection.error());
  const std::string whole = store_prefix(kind.resource);
  const std::string prefix = store_prefix(kind.resource, kind.resource.namespaced ? space : std::string());
  auto from = where_to_start(query, whole, store_.revision());
  if (!from) return std::unexpected(std::move(from.error()));
  if (!from->after.empty() && from->after.compare(0, prefix.size(), prefix) != 0) return fail(Code::Invalid, "continue key is not valid");

  const auto limit = static_cast<std::size_t>(std::max<std::int64_t>(query.limit, 0));
  ListPage page;
  std::string after = from->after;
  Revision at = from->at;
  // A selector that few objects fit looks at many for one page: at more and more at a time, for each look at an earlier state costs something of its own.
  constexpr std::size_t most_at_once = 4'096;
  for (std::size_t look_at = limit;; look_at = std::max(limit, std::min(4 * look_at, most_at_once))) {
    auto range = store_.range(prefix, after, look_at, at);
    if (!range) {
      if (range.error().code != Code::Expired) return std::unexpected(std::move(range.error()));
      if (query.continue_token.empty()) return fail(Code::Expired, "The resourceVersion for the provided list is too old.");
      return fail(Code::Expired, fmt::format("{}{}{}", continue_expired, fresh_token_mark, continue_token(-1, after.substr(whole.size()))));
    }
    page.revision = at = range->revision;
    std::optional<std::vector<Value>> converted;  // all at once; else one by one, as far as the page goes
    if (kind.converts) {
      auto all = plain_all(kind, range->entries);
      if (!all) return std::unexpected(std::move(all.error()));
      converted = std::move(*all);
    }
    for (std::size_t i = 0; i < range->entries.size(); ++i) {
      const Entry& entry = range->entries[i];
      after = entry.key;
      auto bytes = converted ? Result<Value>(std::move((*converted)[i])) : plain(kind, entry.key, entry.value, entry.revision);
      if (!bytes) return std::unexpected(std::move(bytes.error()));
      if (selection->everything() || selection->matches(entry.key, *bytes->bytes())) page.objects.push_back({std::move(*bytes), entry.revision});
      if (limit > 0 && page.objects.size() >= limit) break;
    }
    const bool full = limit > 0 && page.objects.size() >= limit;
    const bool more = range->more || (full && after != range->entries.back().key);
    if (!more) return page;
    if (!full) continue;
    page.continue_token = continue_token(page.revision, after.substr(whole.size()));
    if (selection->everything())
      if (auto rest = store_.range(prefix, after, 0, at)) page.remaining = static_cast<std::int64_t>(rest->entries.size());
    return page;
  }
}

}  // namespace fairlead::apiserver
