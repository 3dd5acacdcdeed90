// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "api/network_ways.h"
#include "base/encoding.h"
#include "hyperpod/paging.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t kMostEvents = 10'000;
constexpr std::size_t kMostBytes = 1 << 20;        // of a page
constexpr std::size_t kStreamsOfPage = 100;        // that are read for one page of FilterLogEvents
constexpr auto kPatience = std::chrono::seconds(15);   // after which a page begins no further stream
constexpr auto kEnd = std::chrono::seconds(30);        // after which a page that may not end earlier is given up
constexpr auto kReadLimit = std::chrono::seconds(10);  // of one log
constexpr std::size_t kMark = 8;                   // hex digits by which a token names a stream
constexpr std::string_view kGroupBegin = "/aws/sagemaker/Clusters/";

std::unexpected<AwsError> wrong(std::string why) { return refuse("InvalidParameterException", std::move(why)); }
std::unexpected<AwsError> no_group() { return refuse("ResourceNotFoundException", "The specified log group does not exist."); }
std::unexpected<AwsError> no_stream() { return refuse("ResourceNotFoundException", "The specified log stream does not exist."); }
std::unexpected<AwsError> away(std::string why) { return refuse("ServiceUnavailableException", std::move(why), 503); }

std::int64_t millis(Instant time) { return std::chrono::floor<std::chrono::milliseconds>(time).time_since_epoch().count(); }

std::string group_name(const ClusterRow& row) { return fmt::format("{}{}/{}", kGroupBegin, row.name, row.id); }
std::string group_arn(const Site& site, std::string_view group) { return fmt::format("arn:aws:logs:{}:{}:log-group:{}", site.region, site.account, group); }

struct Field {
  const char* name;
  enum class Kind { Text, Open, Number, Flag, Texts } kind;  // Open: a text that may be empty
};
using Kind = Field::Kind;

// What is not of the operation is refused by its name.
Answer<void> check_fields(const Json& input, std::initializer_list<Field> known, std::initializer_list<const char*> unserved = {}) {
  for (const auto& [name, value] : input.members()) {
    for (const char* one : unserved)
      if (name == one && !(value.is_bool() && !value.boolean())) return wrong(fmt::format("{} is not served here", name));
    if (std::ranges::any_of(unserved, [&](const char* one) { return name == one; })) continue;
    const auto field = std::ranges::find_if(known, [&](const Field& one) { return name == one.name; });
    if (field == known.end()) return wrong(fmt::format("{} is no parameter of this operation", cut(name, 64)));
    const bool fits = field->kind == Kind::Text || field->kind == Kind::Open ? value.is_string() && (field->kind == Kind::Open || !value.string().empty()) && value.string().size() <= 8192 : field->kind == Kind::Flag ? value.is_bool()
                    : field->kind == Kind::Number ? value.is_number() && value.integer(-1) >= 0 && value.integer(-1) <= 9'000'000'000'000
                                                  : value.is_array() && !value.items().empty() && value.items().size() <= 100 && std::ranges::all_of(value.items(), [](const Json& one) { return one.is_string(); });
    if (!fits) return wrong(fmt::format("1 validation error detected: Value at '{}' failed to satisfy constraint: {}", name, field->kind == Kind::Text || field->kind == Kind::Open ? "a text is expected" : field->kind == Kind::Number ? "a whole number from 0 on is expected" : field->kind == Kind::Flag ? "true or false is expected" : "1 to 100 texts are expected"));
  }
  return {};
}

Answer<std::size_t> limit_of(const Json& input, std::size_t most) {
  const std::int64_t limit = input["limit"].integer(static_cast<std::int64_t>(most));
  if (limit < 1 || limit > static_cast<std::int64_t>(most)) return wrong(fmt::format("1 validation error detected: Value '{}' at 'limit' failed to satisfy constraint: Member must be from 1 to {}", limit, most));
  return static_cast<std::size_t>(limit);
}

// Its name: of logGroupName, or of logGroupIdentifier, which may be an ARN of this site.
Answer<std::string> group_of(const Json& input, const Site& site) {
  if (input.has("logGroupName") == input.has("logGroupIdentifier")) return wrong("exactly one of logGroupName and logGroupIdentifier is expected");
  std::string name = input.has("logGroupName") ? input["logGroupName"].string() : input["logGroupIdentifier"].string();
  if (input.has("logGroupIdentifier") && name.starts_with("arn:")) {
    const std::string begin = group_arn(site, "");
    if (!name.starts_with(begin)) return no_group();
    name.erase(0, begin.size());
    if (name.ends_with(":*")) name.resize(name.size() - 2);
  }
  if (name.empty() || name.size() > 512 || !std::ranges::all_of(name, [](unsigned char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || std::string_view(".-_/#").find(static_cast<char>(c)) != std::string_view::npos; })) return wrong("a log group's name has 1 to 512 of letters, digits and .-_/#");
  return name;
}

Answer<ClusterRow> find_group(const Sources& sources, const std::string& group) {
  const auto slash = group.rfind('/');
  if (!group.starts_with(kGroupBegin) || slash < kGroupBegin.size()) return no_group();
  const auto row = sources.index.with_id(std::string_view(group).substr(slash + 1));
  if (!row || group_name(*row) != group) return no_group();
  return *row;
}

class Reader {
 public:
  explicit Reader(const LogSources& from) : from_(from), begun_(from.clock.monotonic()) {}

  // `about`: the one stream that is asked for; empty: all.
  Answer<std::map<std::string, LogStream>> streams(const ClusterRow& row, const std::string& about = {}) {
    const Sources& sources = from_.sources;
    const auto cluster = row.key.space.empty() ? sources.made.get(row.key) : sources.clusters.get(row.key);
    if (!cluster) return no_group();
    const bool made = is_made(*cluster);
    const std::string space = made ? api::space_of_cluster(kube::name_of(*cluster)) : kube::space_of(*cluster);
    std::string selector = made ? "" : fmt::format("{}={}", api::kSlurmClusterLabel, kube::name_of(*cluster));
    const std::string id = about.substr(about.rfind('/') + 1);
    if (made && about.starts_with("Slurm/")) selector = api::kSlurmRoleLabel;
    else if (made && !about.empty()) selector = id.size() == 19 && id.starts_with("i-") && id.find_first_not_of("0123456789abcdef", 2) == id.npos ? fmt::format("{}={}", api::kLifecycleLabel, id) : "";
    if (!about.empty() && made && selector.empty()) return no_stream();
    auto pods = sources.api.list(kube::resources::pods, space, {.label_selector = selector, .field_selector = {}, .limit = 0, .continue_token = {}, .resource_version = "0"});
    if (!pods) return std::unexpected(failed(pods.error(), "read the cluster's pods"));
    std::vector<Json> instances, events;
    if (made && !about.starts_with("Slurm/")) {
      if (about.empty()) {
        sources.instances.each("", [&](const Json& one) { if (one["spec"]["clusterUid"].string() == kube::uid_of(*cluster)) instances.push_back(one); });
      } else if (auto one = sources.instances.get({"", id})) {
        instances.push_back(std::move(*one));
      }
      auto told = sources.api.list(api::kClusterEvents, space);
      if (!told && told.error().code != Code::NotFound) return std::unexpected(failed(told.error(), "read the cluster's events"));
      if (told) events = std::move(told->items);
    }
    return log_streams(*cluster, pods->items, instances, events);
  }

  // Lines from `since` on (some before it may come, too), each once and in order, until `take` wants no more.
  Result<void> scan(const LogStream& stream, Instant since, const LogLines::Take& take) {
    LogLines lines;
    lost_ = false;
    for (const LogSegment& segment : stream.segments) {
      if (segment.to && *segment.to < since) continue;
      if (segment.pod.is_null()) {
        for (const auto& [time, text] : segment.kept)
          if (!lines.give(time, text, take)) return {};
        continue;
      }
      const std::string& node = segment.pod["spec"]["nodeName"].string();
      if (const auto known = unreachable_.find(node); known != unreachable_.end()) return fail(Code::Unavailable, known->second);
      if (!from_.log) return fail(Code::Unavailable, "logs cannot be read here");
      kube::PodLogQuery query = segment.query;
      if (since > segment.from) query.since = std::chrono::floor<std::chrono::seconds>(since);
      bool more = true, answered = false;
      auto done = from_.log(segment.pod, query, std::chrono::duration_cast<std::chrono::milliseconds>(kReadLimit), [&](std::string_view piece) { return answered = true, more = lines.add(piece, take); });
      const bool gone = !done && (done.error().code == Code::NotFound || done.error().code == Code::Invalid);
      if (!done && !gone) {
        std::string why = fmt::format("the log of pod {} on node {} cannot be read now: {}", kube::key_of(segment.pod).text(), node, done.error().message);
        // A log that is too long, or one that this container cannot give, says nothing of the others of its node.
        if (done.error().code == Code::Unavailable && !answered) unreachable_[node] = why;
        return fail(Code::Unavailable, std::move(why));
      }
      if (!more || !lines.end(take)) return {};
      // It had begun, so it had a log.
      if (gone) {
        lost_ = true;
        if (!lines.give(segment.from, fmt::format("[fairlead] the log of pod {}, container {}{}, is not there any more: {}", kube::key_of(segment.pod).text(), query.container, query.previous ? " (its run before)" : "", as_utf8(done.error().message)), take)) return {};
      }
    }
    return {};
  }
  bool lost() const { return lost_; }  // of what the last scan() read something is gone for good
  bool late(std::chrono::seconds after = kPatience) const { return from_.clock.monotonic() - begun_ > after; }
  static AwsError failed(const Error& error, const char* doing) {
    AwsError out = aws_error(error, doing);
    if (out.status >= 500) out = {"ServiceUnavailableException", out.message, 503};
    return out;
  }

 private:
  const LogSources& from_;
  const std::chrono::nanoseconds begun_;
  bool lost_ = false;
  std::map<std::string, std::string> unreachable_;  // nodes that did not answer, and why: nobody waits for them twice in one call
};

Answer<Json> describe_groups(const Json& input, const Call& call, const LogSources& from) {
  if (auto done = check_fields(input, {{"logGroupNamePrefix", Kind::Text}, {"logGroupNamePattern", Kind::Text}, {"nextToken", Kind::Text}, {"limit", Kind::Number}, {"logGroupClass", Kind::Text}}, {"accountIdentifiers", "includeLinkedAccounts", "logGroupIdentifiers"}); !done) return std::unexpected(done.error());
  if (auto done = call.allow("logs:DescribeLogGroups", group_arn(call.site, ":log-stream:")); !done) return std::unexpected(done.error());
  const auto most = limit_of(input, 50);
  if (!most) return std::unexpected(most.error());
  const std::string &prefix = input["logGroupNamePrefix"].string(), pattern = iam::lower(input["logGroupNamePattern"].string());
  if (!prefix.empty() && !pattern.empty()) return wrong("logGroupNamePrefix and logGroupNamePattern exclude one another");
  if (const std::string& of = input["logGroupClass"].string(); !of.empty() && of != "STANDARD" && of != "INFREQUENT_ACCESS" && of != "DELIVERY") return wrong("logGroupClass: STANDARD, INFREQUENT_ACCESS or DELIVERY is expected");
  const std::vector<ClusterRow> rows = input["logGroupClass"].string_or("STANDARD") == "STANDARD" ? from.sources.index.all() : std::vector<ClusterRow>();
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const std::string name = group_name(rows[i]); name.starts_with(prefix) && iam::lower(name).find(pattern) != std::string::npos) entries.push_back({.name = name, .id = rows[i].id, .created = rows[i].created, .status = {}, .cluster = {}, .at = i});
  Json question = Json::object({{"SortBy", "Name"}, {"MaxResults", static_cast<std::int64_t>(*most)}, {"of", "log groups " + prefix + " " + pattern}});
  if (input.has("nextToken")) question.set("NextToken", input["nextToken"]);
  auto page = page_of(std::move(entries), question, [&](const Entry& one) {
    const std::string arn = group_arn(call.site, one.name);
    return Json::object({{"logGroupName", one.name}, {"creationTime", millis(one.created)}, {"metricFilterCount", 0}, {"arn", arn + ":*"}, {"logGroupArn", arn}, {"storedBytes", 0}, {"logGroupClass", "STANDARD"}});
  });
  if (!page) return wrong("The specified nextToken is invalid.");
  Json out = Json::object({{"logGroups", std::move(page->items)}});
  if (!page->next.empty()) out.set("nextToken", page->next);
  return out;
}

Answer<ClusterRow> allowed_group(const Json& input, const Call& call, const LogSources& from, const char* action, const std::string& stream, std::string& group) {
  auto name = group_of(input, call.site);
  if (!name) return std::unexpected(name.error());
  // By what it would be called, so that who may not learns nothing of what is there.
  if (auto done = call.allow(action, group_arn(call.site, *name) + ":log-stream:" + stream); !done) return std::unexpected(done.error());
  group = std::move(*name);
  return find_group(from.sources, group);
}

Answer<Json> describe_streams(const Json& input, const Call& call, const LogSources& from) {
  if (auto done = check_fields(input, {{"logGroupName", Kind::Text}, {"logGroupIdentifier", Kind::Text}, {"logStreamNamePrefix", Kind::Text}, {"orderBy", Kind::Text}, {"descending", Kind::Flag}, {"nextToken", Kind::Text}, {"limit", Kind::Number}}); !done) return std::unexpected(done.error());
  std::string group;
  const auto row = allowed_group(input, call, from, "logs:DescribeLogStreams", "", group);
  if (!row) return std::unexpected(row.error());
  const auto most = limit_of(input, 50);
  if (!most) return std::unexpected(most.error());
  const std::string order = input["orderBy"].string_or("LogStreamName"), &prefix = input["logStreamNamePrefix"].string();
  if (order != "LogStreamName" && order != "LastEventTime") return wrong("orderBy: LogStreamName or LastEventTime is expected");
  if (order == "LastEventTime" && !prefix.empty()) return wrong("Cannot order by LastEventTime with a logStreamNamePrefix.");
  const auto streams = Reader(from).streams(*row);
  if (!streams) return std::unexpected(streams.error());
  std::vector<Entry> entries;
  std::vector<const LogStream*> all;
  for (const auto& [name, stream] : *streams)
    if (name.starts_with(prefix)) {
      entries.push_back({.name = name, .id = name, .created = stream.segments.empty() ? stream.created : stream.last().value_or(call.now), .status = {}, .cluster = {}, .at = all.size()});
      all.push_back(&stream);
    }
  Json question = Json::object({{"SortBy", order == "LogStreamName" ? "Name" : "Created"}, {"SortOrder", input["descending"].boolean() ? "Descending" : "Ascending"}, {"MaxResults", static_cast<std::int64_t>(*most)}, {"of", "log streams " + group + " " + prefix}});
  if (input.has("nextToken")) question.set("NextToken", input["nextToken"]);
  auto page = page_of(std::move(entries), question, [&](const Entry& one) {
    const LogStream& stream = *all[one.at];
    Json told = Json::object({{"logStreamName", one.name}, {"creationTime", millis(stream.created)}, {"arn", group_arn(call.site, group) + ":log-stream:" + one.name}, {"storedBytes", 0}});
    if (!stream.segments.empty()) {
      told.set("firstEventTimestamp", millis(stream.segments.front().from));
      // Of what goes on nobody knows the last line without reading all of it.
      if (const auto last = stream.last()) told.set("lastEventTimestamp", millis(*last)).set("lastIngestionTime", millis(*last));
    }
    return told;
  });
  if (!page) return wrong("The specified nextToken is invalid.");
  Json out = Json::object({{"logStreams", std::move(page->items)}});
  if (!page->next.empty()) out.set("nextToken", page->next);
  return out;
}

// Times of a request; milliseconds.
struct Window {
  Instant from{}, until = Instant::max();  // `until` is in it
};
Answer<Window> window_of(const Json& input, bool end_included) {
  Window out;
  if (input.has("startTime")) out.from = Instant(std::chrono::milliseconds(std::min<std::int64_t>(input["startTime"].integer(), 9'000'000'000'000)));
  if (input.has("endTime")) {
    out.until = Instant(std::chrono::milliseconds(std::min<std::int64_t>(input["endTime"].integer(), 9'000'000'000'000))) + (end_included ? std::chrono::nanoseconds(999'999) : std::chrono::nanoseconds(-1));
    if (out.until < out.from) return wrong("The specified time range is invalid: endTime is before startTime.");
  }
  return out;
}

Answer<Json> get_events(const Json& input, const Call& call, const LogSources& from) {
  if (auto done = check_fields(input, {{"logGroupName", Kind::Text}, {"logGroupIdentifier", Kind::Text}, {"logStreamName", Kind::Text}, {"startTime", Kind::Number}, {"endTime", Kind::Number}, {"nextToken", Kind::Text}, {"limit", Kind::Number}, {"startFromHead", Kind::Flag}}, {"unmask"}); !done) return std::unexpected(done.error());
  const std::string& name = input["logStreamName"].string();
  if (name.empty() || name.size() > 512 || name.find_first_of(":*") != name.npos) return wrong("logStreamName: 1 to 512 characters, without : and *");
  std::string group;
  const auto row = allowed_group(input, call, from, "logs:GetLogEvents", name, group);
  if (!row) return std::unexpected(row.error());
  const auto most = limit_of(input, kMostEvents);
  if (!most) return std::unexpected(most.error());
  const auto window = window_of(input, false);
  if (!window) return std::unexpected(window.error());
  // A token is a direction, a place, and whose it is.
  const std::string whose = hex(sha256(group + ":" + name)).substr(0, 12);
  const auto token = [&](char way, const LogPlace& place) { return fmt::format("{}/{}/{}", way, write_place(place), whose); };
  bool back = !input["startFromHead"].boolean();
  LogPlace place = back ? LogPlace{Instant::max(), 0} : LogPlace{window->from, -1};
  if (const std::string& given = input["nextToken"].string(); !given.empty()) {
    const std::vector<std::string> parts = split(given, '/');
    const auto read = parts.size() == 3 && (parts[0] == "f" || parts[0] == "b") && parts[2] == whose ? read_place(parts[1]) : std::nullopt;
    if (!read) return wrong("The specified nextToken is invalid.");
    back = parts[0] == "b", place = *read;
  }
  Reader reader(from);
  const auto streams = reader.streams(*row, name);
  if (!streams) return std::unexpected(streams.error());
  const auto stream = streams->find(name);
  if (stream == streams->end()) return no_stream();

  std::vector<LogLine> lines;
  std::size_t bytes = 0, dropped = 0;  // of `lines`, at its beginning
  const auto done = reader.scan(stream->second, back ? window->from : std::max(window->from, place.time), [&](LogLine&& line) {
    if (line.place.time < window->from) return true;
    if (line.place.time > window->until) return false;
    if (!back && line.place <= place) return true;
    if (back && line.place >= place) return false;
    const std::size_t size = line.text.size() + 26;  // as AWS counts
    if (!back && (lines.size() >= *most || (bytes + size > kMostBytes && !lines.empty()))) return false;
    bytes += size;
    lines.push_back(std::move(line));
    while (back && (lines.size() - dropped > *most || (bytes > kMostBytes && lines.size() - dropped > 1))) {
      bytes -= lines[dropped].text.size() + 26;
      lines[dropped++].text = {};
    }
    if (dropped > 2 * kMostEvents) lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(dropped)), dropped = 0;
    return true;
  });
  if (!done) return away(done.error().message);
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(dropped));

  Json events = Json::array();
  for (const LogLine& line : lines) events.push(Json::object({{"timestamp", millis(line.place.time)}, {"message", line.text}, {"ingestionTime", millis(line.place.time)}}));
  // At either end the token that came is given back, by which clients know it.
  LogPlace first = place, last = place;
  if (!lines.empty()) first = lines.front().place, last = lines.back().place;
  else if (place.time == Instant::max()) first = last = {window->from, -1};
  return Json::object({{"events", std::move(events)}, {"nextForwardToken", token('f', last)}, {"nextBackwardToken", token('b', first)}});
}

// Where FilterLogEvents goes on: with streams from `first` to `last` (empty: as many as a page takes), after this line of them, without those of which a page has told that they cannot be read.
struct Going {
  std::string first, last;
  std::optional<std::pair<LogPlace, std::string>> after;
  std::set<std::string> told;  // marks of streams
};
std::string mark_of(const std::string& stream) { return hex(sha256(stream)).substr(0, kMark); }
std::string write_going(const Going& going, const std::string& question) {
  std::string marks;
  for (const std::string& mark : going.told) marks += mark;
  return base64(kube::print_json(Json::array({Json(question), Json(going.first), Json(going.last), Json(going.after ? write_place(going.after->first) : ""), Json(going.after ? going.after->second : ""), Json(marks)})));
}
std::optional<Going> read_going(const std::string& token, const std::string& question) {
  const auto text = parse_base64(token);
  const auto json = text ? kube::parse_json(*text, {.depth_limit = 4}) : Result<Json>(fail(Code::Invalid, ""));
  if (!json || json->items().size() != 6 || json->items()[0].string() != question) return std::nullopt;
  for (const Json& part : json->items())
    if (!part.is_string()) return std::nullopt;
  Going out{json->items()[1].string(), json->items()[2].string(), {}, {}};
  for (std::string_view marks = json->items()[5].string(); !marks.empty(); marks.remove_prefix(std::min(marks.size(), kMark))) out.told.emplace(marks.substr(0, kMark));
  if (const std::string& place = json->items()[3].string(); !place.empty()) {
    const auto read = read_place(place);
    if (!read) return std::nullopt;
    out.after = {*read, json->items()[4].string()};
  }
  return out;
}

Answer<Json> filter_events(const Json& input, const Call& call, const LogSources& from) {
  if (auto done = check_fields(input, {{"logGroupName", Kind::Text}, {"logGroupIdentifier", Kind::Text}, {"logStreamNames", Kind::Texts}, {"logStreamNamePrefix", Kind::Text}, {"startTime", Kind::Number}, {"endTime", Kind::Number}, {"nextToken", Kind::Text}, {"limit", Kind::Number}, {"interleaved", Kind::Flag}, {"startFromHead", Kind::Flag}, {"filterPattern", Kind::Open}}, {"unmask"}); !done) return std::unexpected(done.error());
  std::string group;
  const auto row = allowed_group(input, call, from, "logs:FilterLogEvents", "", group);
  if (!row) return std::unexpected(row.error());
  const auto most = limit_of(input, kMostEvents);
  if (!most) return std::unexpected(most.error());
  const auto window = window_of(input, true);
  if (!window) return std::unexpected(window.error());
  if (!input["startFromHead"].boolean(true)) return wrong("startFromHead: false is not served here; GetLogEvents reads one stream from its end");
  const auto pattern = read_filter_pattern(input["filterPattern"].string());
  if (!pattern) return wrong(pattern.error().message);
  std::set<std::string> named;
  for (const Json& one : input["logStreamNames"].items()) named.insert(one.string());
  const std::string& prefix = input["logStreamNamePrefix"].string();
  if (!named.empty() && !prefix.empty()) return wrong("logStreamNames and logStreamNamePrefix exclude one another");
  std::string question;
  for (const char* field : {"logStreamNames", "logStreamNamePrefix", "startTime", "endTime", "filterPattern"}) question += fmt::format("{}={};", field, kube::print_json(input[field]));
  question = hex(sha256(group + ";" + question)).substr(0, 16);
  Going going;
  if (input.has("nextToken")) {
    auto read = read_going(input["nextToken"].string(), question);
    if (!read) return wrong("The specified nextToken is invalid.");
    going = std::move(*read);
  }

  Reader reader(from);
  const auto streams = reader.streams(*row);
  if (!streams) return std::unexpected(streams.error());
  for (const std::string& name : named)
    if (!streams->contains(name)) return no_stream();
  std::vector<const LogStream*> chosen;  // by name, those that have lines in the window
  for (const auto& [name, stream] : *streams) {
    if ((!named.empty() && !named.contains(name)) || !name.starts_with(prefix) || name < going.first || stream.segments.empty()) continue;
    if (const auto last = stream.last(); (last && *last < window->from) || stream.segments.front().from > window->until) continue;
    chosen.push_back(&stream);
  }

  // The earliest lines of all of them: a line that comes when there is no room takes the place of the latest.
  using Key = std::tuple<Instant, std::string, int>;
  std::map<Key, std::string> page, notices;  // `notices`: of streams that cannot be read; they are of the page, and no line pushes them out
  std::size_t bytes = 0, read = 0, unread = 0;
  bool more = false;
  std::string why, last_read;
  Json searched = Json::array();
  const auto put = [&](std::map<Key, std::string>& where, Key key, std::string text) {
    bytes += text.size() + 26;
    where.emplace(std::move(key), std::move(text));
    while (page.size() + notices.size() > *most || (bytes > kMostBytes && page.size() + notices.size() > 1)) {
      auto& full = page.empty() ? notices : page;
      const auto latest = std::prev(full.end());
      bytes -= latest->second.size() + 26;
      full.erase(latest);
      more = true;
    }
  };
  for (const LogStream* stream : chosen) {
    if (going.last.empty() ? read >= kStreamsOfPage || (read > 0 && reader.late()) : stream->name > going.last) break;
    if (reader.late(kEnd)) return away("reading these streams takes too long; ask again, or for fewer of them");
    ++read;
    last_read = stream->name;
    const auto done = reader.scan(*stream, going.after ? std::max(window->from, going.after->first.time) : window->from, [&](LogLine&& line) {
      if (line.place.time < window->from) return true;
      if (line.place.time > window->until) return false;
      Key key{line.place.time, stream->name, line.place.nth};
      if (going.after && key <= Key{going.after->first.time, going.after->second, going.after->first.nth}) return true;
      if (more && (page.empty() || key > page.rbegin()->first)) return false;
      if (pattern->matches(line.text)) put(page, std::move(key), std::move(line.text));
      return true;
    });
    if (!done || reader.lost()) searched.push(Json::object({{"logStreamName", stream->name}, {"searchedCompletely", false}}));
    if (!done) {
      ++unread, why = done.error().message;
      if (going.told.contains(mark_of(stream->name))) continue;
      // A pattern leaves no place to tell of it, and a page that goes on would pass what this stream had: the same is asked for again.
      if (going.after || !pattern->all.empty() || !pattern->any.empty() || !pattern->none.empty()) return away(fmt::format("{}. Ask the same again, or leave {} out by logStreamNames or logStreamNamePrefix", why, stream->name));
      // Told among the lines, once for a walk: who reads a hundred machines is not to lose the others by one.
      put(notices, {std::max(window->from, stream->segments.front().from), stream->name, -1}, "[fairlead] " + why);
    }
  }
  if (read > 0 && unread == read) return away(why);

  std::set<std::string> told = going.told;
  for (const auto& [key, text] : notices) told.insert(mark_of(std::get<1>(key)));
  if (!page.empty()) going.after = {LogPlace{std::get<0>(page.rbegin()->first), std::get<2>(page.rbegin()->first)}, std::get<1>(page.rbegin()->first)};
  for (auto& [key, text] : notices) page.emplace(key, std::move(text));
  Json events = Json::array();
  for (const auto& [key, text] : page) {
    const auto& [time, stream, nth] = key;
    const std::string id = fmt::format("{:020}{}", time.time_since_epoch().count(), hex(sha256(fmt::format("{}:{}:{}", group, stream, nth))).substr(0, 24));
    events.push(Json::object({{"logStreamName", stream}, {"timestamp", millis(time)}, {"message", text}, {"ingestionTime", millis(time)}, {"eventId", id}}));
  }
  Json out = Json::object({{"events", std::move(events)}, {"searchedLogStreams", std::move(searched)}});
  if (more) {
    out.set("nextToken", write_going({.first = going.first, .last = going.last.empty() ? last_read : going.last, .after = going.after, .told = std::move(told)}, question));
  } else if (const std::string& end = going.last.empty() ? last_read : going.last; !chosen.empty() && chosen.back()->name > end) {
    out.set("nextToken", write_going({.first = end + '\x01', .last = {}, .after = {}, .told = {}}, question));
  }
  return out;
}

}  // namespace

bool is_logs_operation(std::string_view operation) { return operation == "DescribeLogGroups" || operation == "DescribeLogStreams" || operation == "GetLogEvents" || operation == "FilterLogEvents"; }

Answer<Json> answer_logs(const std::string& operation, const Json& input, const Call& call, const LogSources& from) {
  if (operation == "DescribeLogGroups") return describe_groups(input, call, from);
  if (operation == "DescribeLogStreams") return describe_streams(input, call, from);
  if (operation == "GetLogEvents") return get_events(input, call, from);
  if (operation == "FilterLogEvents") return filter_events(input, call, from);
  return refuse("UnknownOperationException", fmt::format("CloudWatch Logs: DescribeLogGroups, DescribeLogStreams, GetLogEvents and FilterLogEvents are served here, not {}", operation.empty() ? "what has no X-Amz-Target" : cut(operation, 64)));
}

}  // namespace fairlead::hyperpod
