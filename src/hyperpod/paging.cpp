// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/paging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/encoding.h"

namespace fairlead::hyperpod {
namespace {

enum class By { Created, Name, Status, Cluster };

using Place = std::tuple<std::string, std::string, std::string>;  // what is sorted by; then name and id

std::string sortable(Instant time) { return fmt::format("{:020}", std::max<std::int64_t>(0, time.time_since_epoch().count())); }

Place place_of(const Entry& entry, By by) {
  switch (by) {
    case By::Name: return {entry.name, "", entry.id};
    case By::Status: return {entry.status, entry.name, entry.id};
    case By::Cluster: return {entry.cluster, entry.name, entry.id};
    case By::Created: break;
  }
  return {sortable(entry.created), entry.name, entry.id};
}

// Of everything in the question but the token and the size of a page.
std::string fingerprint(const Json& input) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : input.members())
    if (name != "NextToken" && name != "MaxResults" && !value.is_null()) parts.push_back(name + "=" + kube::print_json(value));
  std::sort(parts.begin(), parts.end());
  return hex(sha256(fmt::format("{}", fmt::join(parts, "\n")))).substr(0, 16);
}

std::string write_token(const Place& place, const std::string& question) {
  return base64(kube::print_json(Json::array({Json(question), Json(std::get<0>(place)), Json(std::get<1>(place)), Json(std::get<2>(place))})));
}

Answer<Place> read_token(const std::string& token, const std::string& question) {
  const auto wrong = [] { return invalid("1 validation error detected: Value at 'nextToken' failed to satisfy constraint: Member must be the token of a former answer to the same question"); };
  const auto text = parse_base64(token);
  if (!text) return wrong();
  const auto json = kube::parse_json(*text);
  if (!json || json->items().size() != 4 || json->items()[0].string() != question) return wrong();
  for (const Json& part : json->items())
    if (!part.is_string()) return wrong();
  return Place{json->items()[1].string(), json->items()[2].string(), json->items()[3].string()};
}

}  // namespace

double epoch(Instant time) { return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count()) / 1000; }

Instant read_epoch(const Json& value) {
  if (value.is_string()) return parse_time(value.string()).value_or(Instant());
  const double seconds = std::clamp(value.number(), -9e9, 9e9);  // what nanoseconds in 64 bits hold
  return Instant(std::chrono::nanoseconds(static_cast<std::int64_t>(std::floor(seconds))) * 1'000'000'000 + std::chrono::nanoseconds(static_cast<std::int64_t>((seconds - std::floor(seconds)) * 1e9)));
}

Answer<Page> page_of(std::vector<Entry> entries, const Json& input, const std::function<Json(const Entry&)>& summarize, std::size_t default_size) {
  const std::string& sort = input["SortBy"].string();
  const By by = sort == "NAME" || sort == "Name" ? By::Name : sort == "Status" ? By::Status : sort == "ClusterArn" ? By::Cluster : By::Created;
  const bool falling = input["SortOrder"].string() == "Descending";
  const std::string question = fingerprint(input);
  const auto wanted = [&](const Entry& entry) {
    if (const std::string& part = input["NameContains"].string(); entry.name.find(part) == std::string::npos) return false;
    if (input.has("Status") && entry.status != input["Status"].string()) return false;
    if (input.has("ClusterArn") && entry.cluster != input["ClusterArn"].string()) return false;
    for (const char* const after : {"CreatedAfter", "CreationTimeAfter"})
      if (!input[after].is_null() && entry.created <= read_epoch(input[after])) return false;
    for (const char* const before : {"CreatedBefore", "CreationTimeBefore"})
      if (!input[before].is_null() && entry.created >= read_epoch(input[before])) return false;
    return true;
  };
  std::erase_if(entries, [&](const Entry& entry) { return !wanted(entry); });
  std::optional<Place> after;
  if (const std::string& token = input["NextToken"].string(); !token.empty()) {
    auto place = read_token(token, question);
    if (!place) return std::unexpected(place.error());
    after = std::move(*place);
  }
  std::vector<std::pair<Place, const Entry*>> places;
  places.reserve(entries.size());
  for (const Entry& entry : entries) {
    Place place = place_of(entry, by);
    if (!after || (falling ? place < *after : *after < place)) places.emplace_back(std::move(place), &entry);
  }
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(1, input["MaxResults"].integer(static_cast<std::int64_t>(default_size))));
  const auto end = places.begin() + static_cast<std::ptrdiff_t>(std::min(size, places.size()));
  std::partial_sort(places.begin(), end, places.end(), [&](const auto& a, const auto& b) { return falling ? b.first < a.first : a.first < b.first; });
  Page page;
  for (auto at = places.begin(); at != end; ++at) page.items.push(summarize(*at->second));
  if (end != places.end()) page.next = write_token((end - 1)->first, question);
  return page;
}

}  // namespace fairlead::hyperpod
