// SPDX-License-Identifier: Apache-2.0
// Pages of a list that changes while it is read. A token names the place in the order, not a count, so it holds after a restart, on another server, and where what it named is gone. Pure.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hyperpod/aws_error.h"
#include "kube/json.h"

namespace fairlead::hyperpod {

using kube::Json;

struct Entry {
  std::string name, id;  // id: unique in the list
  Instant created;
  std::string status, cluster;
  std::size_t at = 0;    // where whoever asks has the rest of it
};
struct Page {
  Json items = Json::array();
  std::string next;  // NextToken; empty: the end
};
// Reads of the input: SortBy (NAME or Name, Status, ClusterArn; else by the time of creation), SortOrder (Ascending, where it is left out), MaxResults, NextToken, and the filters NameContains, Status, ClusterArn, Creat(ed|ionTime)(After|Before).
// ValidationException: a token that is none, or of another question. O(n + m log n) for a page of m.
// `summarize` is asked for those of the page alone.
Answer<Page> page_of(std::vector<Entry> entries, const Json& input, const std::function<Json(const Entry&)>& summarize, std::size_t default_size = 100);

double epoch(Instant time);      // seconds, as bodies have times
Instant read_epoch(const Json& value);  // a number, or RFC 3339

}  // namespace fairlead::hyperpod
