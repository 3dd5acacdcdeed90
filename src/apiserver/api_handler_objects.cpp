// SPDX-License-Identifier: Apache-2.0
#include "apiserver/api_handler_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "apiserver/discovery.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;

http::Buffer buffer(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

bool serves(const Kind& kind, std::string_view subresource) {
  return (subresource == "status" && kind.status_subresource) || std::find(kind.subresources.begin(), kind.subresources.end(), subresource) != kind.subresources.end();
}

// Lists of custom resources always tell the token, as kube-apiserver's do.
Json list_metadata(const ListPage& page, bool always_token = false) {
  Json metadata = Json::object({{"resourceVersion", std::to_string(page.revision)}});
  if (always_token || !page.continue_token.empty()) metadata.set("continue", page.continue_token);
  if (page.remaining > 0) metadata.set("remainingItemCount", page.remaining);
  return metadata;
}

std::string list_kind(const Kind& kind) { return kind.list_kind.empty() ? kind.resource.kind + "List" : kind.list_kind; }

// The stored bytes one after the other, never joined.
http::Response list_in_parts(const Kind& kind, const ListPage& page) {
  static const http::Buffer comma = buffer(","), end = buffer("]}\n");
  std::string head = "{\"kind\":";
  kube::append_json_string(head, list_kind(kind));
  head += ",\"apiVersion\":";
  kube::append_json_string(head, kind.resource.api_version());
  head += ",\"metadata\":";
  append_json(head, list_metadata(page, kind.schema != nullptr));
  head += ",\"items\":[";
  http::Response response{.headers = {{"Content-Type", "application/json"}}};
  response.parts.reserve(4 * page.objects.size() + 2);
  std::vector<std::string_view> pieces;
  response.parts.push_back(buffer(std::move(head)));
  for (std::size_t i = 0; i < page.objects.size(); ++i) {
    if (i > 0) response.parts.push_back(comma);
    const Value& value = page.objects[i].value;
    pieces.clear();
    value.pieces(pieces);
    for (const std::string_view piece : pieces) response.parts.emplace_back(value.held(), piece);
  }
  response.parts.push_back(end);
  return response;
}

Result<http::Response> list_in_form(const Call& call, const Kind& kind, const ListPage& page, Instant now) {
  if (call.form == Form::Json && !call.pretty) return list_in_parts(kind, page);
  auto include = parse_include(call.query("includeObject"));
  if (!include) return std::unexpected(std::move(include.error()));
  std::vector<Json> items;
  items.reserve(page.objects.size());
  const TableShape shape(kind);
  for (const Listed& object : page.objects) {
    auto parsed = kube::parse_json(*object.value.bytes());
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    if (call.form == Form::Table) {
      items.push_back(shape.row(*parsed, *include, now));
    } else {
      items.push_back(call.form == Form::Partial ? partial_object(*parsed) : std::move(*parsed));
    }
  }
  Json out;
  if (call.form == Form::Table) {
    out = table_frame(shape, list_metadata(page), std::move(items));
  } else {
    const bool partial = call.form == Form::Partial;
    out = Json::object({{"kind", partial ? "PartialObjectMetadataList" : list_kind(kind)}, {"apiVersion", partial ? "meta.k8s.io/v1" : kind.resource.api_version()}});
    out.set("metadata", list_metadata(page, !partial && kind.schema != nullptr)).set("items", Json::array(std::move(items)));
  }
  return http::Response{.headers = {{"Content-Type", std::string(content_type(call.form))}}, .body = text_in_form(out, call.form, call.pretty)};
}

Result<std::int64_t> parse_number(const Call& call, std::string_view name) {
  const std::string_view text = call.query(name);
  if (text.empty()) return 0;
  const std::string_view unsigned_text = text.substr(text.starts_with('-') ? 1 : 0);
  const bool digits = !unsigned_text.empty() && unsigned_text.size() < 19 && unsigned_text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits) return fail(Code::Invalid, fmt::format("strconv.ParseInt: parsing \"{}\": invalid syntax", text));
  return std::stoll(std::string(text));
}

constexpr std::size_t largest_body = 3 << 20;  // as kube-apiserver
Status too_large_body() { return {.code = 413, .reason = "RequestEntityTooLarge", .message = fmt::format("Request entity too large: limit is {}", largest_body)}; }

// As the validation of PatchOptions and its like says it.
std::string options_error(std::string_view verb, const std::vector<std::string>& errors) {
  std::string_view kind = "DeleteOptions";
  if (verb == "list") kind = "ListOptions";
  if (verb == "create") kind = "CreateOptions";
  if (verb == "update") kind = "UpdateOptions";
  if (verb == "patch") kind = "PatchOptions";
  const std::string text = fmt::format("{}", fmt::join(errors, ", "));
  return fmt::format("{}.meta.k8s.io \"\" is invalid: {}", kind, errors.size() == 1 ? text : "[" + text + "]");
}

}  // namespace

// ---- Call, InFlight

void Call::refuse(const Error& error) const {
  // What a body may hold is refused as a media type, everything else that is not done here as not implemented.
  refuse(status_of(error, about()));
}

void Call::refuse(const Status& status) const {
  // Not `form`: what is refused early has none yet.
  exchange->respond(to_response(status, choose_form(http::find(request.headers, "Accept"), Asked::Plain).value_or(Form::Json)));
}

void Call::answer(int status, const kube::Json& json) const {
  const Form written = form == Form::Yaml ? Form::Yaml : Form::Json;
  exchange->respond({.status = status, .headers = {{"Content-Type", std::string(content_type(written))}}, .body = text_in_form(json, written, pretty)});
}

void InFlight::change(int by) {
  const std::lock_guard lock(mutex_);
  count_ += by;
  if (count_ == 0) changed_.notify_all();
}

bool InFlight::wait_until_none(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return count_ == 0; });
}

// ---- parameters

Result<ListQuery> parse_list_query(const Call& call) {
  ListQuery out;
  out.label_selector = call.query("labelSelector");
  out.field_selector = call.query("fieldSelector");
  out.continue_token = call.query("continue");
  out.resource_version = call.query("resourceVersion");
  out.resource_version_match = call.query("resourceVersionMatch");
  auto limit = parse_number(call, "limit");
  if (!limit) return std::unexpected(std::move(limit.error()));
  out.limit = std::max<std::int64_t>(*limit, 0);
  if (!out.continue_token.empty() && !out.resource_version.empty() && out.resource_version != "0") {
    return fail(Code::Invalid, "specifying resource version is not allowed when using continue");
  }
  return out;
}

Result<WatchQuery> parse_watch_query(const Call& call, Revision current) {
  WatchQuery out;
  out.label_selector = call.query("labelSelector");
  out.field_selector = call.query("fieldSelector");
  if (!call.route.name.empty()) out.field_selector += (out.field_selector.empty() ? "metadata.name=" : ",metadata.name=") + call.route.name;
  out.resource_version = call.query("resourceVersion");
  const std::string_view match = call.query("resourceVersionMatch");
  const bool asks = !call.query("sendInitialEvents").empty();
  out.initial_events = asks && flag(call.request.target.query, "sendInitialEvents");
  std::vector<std::string> errors;
  if (!asks && !match.empty()) errors.emplace_back("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
  if (asks && match != "NotOlderThan") errors.emplace_back("resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
  if (asks && !match.empty() && match != "NotOlderThan") errors.push_back(fmt::format("resourceVersionMatch: Unsupported value: \"{}\": supported values: \"NotOlderThan\"", match));
  if (!errors.empty()) return fail(Code::Invalid, options_error("list", errors));
  if (asks && !out.initial_events && (out.resource_version.empty() || out.resource_version == "0")) out.resource_version = std::to_string(current);
  return out;
}

Result<WriteContext> parse_write_context(const Call& call, bool apply) {
  WriteContext out{.user = call.user.name};
  out.requester = std::make_shared<const User>(call.user);
  out.notes = call.notes;
  out.field_manager = call.query("fieldManager");
  out.user_agent = http::find(call.request.headers, "User-Agent");
  out.force = flag(call.request.target.query, "force");
  std::vector<std::string> errors;
  for (const auto& [name, value] : call.request.target.query) {
    if (name == "dryRun" && value != "All") errors.push_back(fmt::format("dryRun: Unsupported value: []string{{\"{}\"}}: supported values: \"All\"", value));
    if (name == "dryRun") out.dry_run = true;
    if (name != "fieldValidation" || value.empty() || value == "Warn") continue;
    if (value == "Strict") {
      out.validation = FieldValidation::Strict;
    } else if (value == "Ignore") {
      out.validation = FieldValidation::Ignore;
    } else {
      errors.push_back(fmt::format("fieldValidation: Unsupported value: \"{}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"", value));
    }
  }
  if (apply && out.field_manager.empty()) errors.emplace_back("fieldManager: Required value: is required for apply patch");
  if (!apply && call.verb == "patch" && out.force) errors.emplace_back("force: Forbidden: may not be specified for non-apply patch");
  constexpr std::size_t longest_manager = 128;
  if (out.field_manager.size() > longest_manager) errors.push_back(fmt::format("fieldManager: Too long: may not be more than {} bytes", longest_manager));
  if (std::any_of(out.field_manager.begin(), out.field_manager.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    errors.push_back(fmt::format("fieldManager: Invalid value: {}: should only contain printable characters", kube::print_json(out.field_manager)));
  if (errors.empty()) return out;
  return fail(Code::Invalid, options_error(call.verb, errors));
}

Result<kube::DeleteOptions> parse_delete_options(const Call& call, const kube::Json& body, bool& dry_run) {
  kube::DeleteOptions out;
  if (!call.query("gracePeriodSeconds").empty()) {
    auto grace = parse_number(call, "gracePeriodSeconds");
    if (!grace) return std::unexpected(std::move(grace.error()));
    out.grace_seconds = *grace;
  }
  std::string propagation(call.query("propagationPolicy"));
  if (flag(call.request.target.query, "orphanDependents")) propagation = "Orphan";
  if (const Json* grace = body.find("gracePeriodSeconds"); grace != nullptr && grace->is_number()) out.grace_seconds = grace->integer();
  if (body["propagationPolicy"].is_string()) propagation = body["propagationPolicy"].string();
  if (body["orphanDependents"].is_bool()) propagation = body["orphanDependents"].boolean() ? "Orphan" : "Background";
  if (out.grace_seconds && *out.grace_seconds < 0) out.grace_seconds = 1;  // as kube-apiserver: a negative period means one second
  out.uid = body["preconditions"]["uid"].string();
  out.resource_version = body["preconditions"]["resourceVersion"].string();
  for (const Json& word : body["dryRun"].items()) {
    if (word.string() != "All") return fail(Code::Invalid, options_error("delete", {fmt::format("dryRun: Unsupported value: []string{{\"{}\"}}: supported values: \"All\"", word.string())}));
    dry_run = true;
  }
  if (body["orphanDependents"].is_bool() && !body["propagationPolicy"].string().empty())
    return fail(Code::Invalid, options_error("delete", {fmt::format("propagationPolicy: Invalid value: \"{}\": orphanDependents and deletionPropagation cannot be both set", body["propagationPolicy"].string())}));
  using Propagation = kube::DeleteOptions::Propagation;
  if (propagation == "Foreground") {
    out.propagation = Propagation::Foreground;
  } else if (propagation == "Orphan") {
    out.propagation = Propagation::Orphan;
  } else if (!propagation.empty() && propagation != "Background") {
    return fail(Code::Invalid, options_error("delete", {fmt::format("propagationPolicy: Unsupported value: \"{}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"", propagation)}));
  }
  return out;
}

void respond_object(const Call& call, const Kind& kind, int status, const Object& object, const std::vector<std::string>& warnings, Instant now) {
  http::Response response{.status = status, .headers = {{"Content-Type", std::string(content_type(call.form))}}};
  add_warnings(response.headers, warnings);
  if (call.form == Form::Json && !call.pretty) {
    static const http::Buffer newline = buffer("\n");
    response.parts = {object.bytes, newline};
    return call.exchange->respond(std::move(response));
  }
  auto parsed = kube::parse_json(*object.bytes);
  if (!parsed) return call.refuse(parsed.error());
  if (call.form == Form::Table) {
    const auto include = parse_include(call.query("includeObject"));
    if (!include) return call.refuse(include.error());
    const TableShape shape(kind);
    std::vector<Json> rows;
    rows.push_back(shape.row(*parsed, *include, now));
    response.body = text_in_form(table_frame(shape, Json::object({{"resourceVersion", std::to_string(object.revision)}}), std::move(rows)), Form::Json, call.pretty);
  } else {
    response.body = text_in_form(call.form == Form::Partial ? partial_object(*parsed) : *parsed, call.form, call.pretty);
  }
  call.exchange->respond(std::move(response));
}

namespace {
void respond_scale(const Call& call, const Kind& kind, const Object& object, const std::vector<std::string>& warnings) {
  const auto parsed = kube::parse_json(*object.bytes);
  if (!parsed) return call.refuse(parsed.error());
  const auto scale = scale_of(*parsed, *kind.scale);
  if (!scale) return call.refuse(scale.error());
  if (call.form == Form::Table) return call.refuse({.code = 406, .reason = "NotAcceptable", .message = "a Scale is not shown as a Table"});
  http::Response response{.status = 200, .headers = {{"Content-Type", std::string(content_type(call.form))}}};
  add_warnings(response.headers, warnings);
  response.body = text_in_form(call.form == Form::Partial ? partial_object(*scale) : *scale, call.form, call.pretty);
  call.exchange->respond(std::move(response));
}
}  // namespace

// ---- reads

void Objects::handle(CallPtr call, KindPtr kind, std::optional<Body> body) {
  const Route& route = call->route;
  if (!kind->resource.namespaced && !route.space.empty()) return call->refuse(not_served(call->request.target.path));
  if (kind->resource.namespaced && route.space.empty() && (!route.name.empty() || call->verb == "create" || call->verb == "deletecollection")) {
    return call->refuse(not_served(call->request.target.path));
  }
  if (!route.subresource.empty()) {
    if (!serves(*kind, route.subresource)) return call->refuse(not_served(call->request.target.path));
    // What is not in discovery is not done: a DELETE of a status would delete the object.
    const auto verbs = subresource_info(*kind, route.subresource).verbs;
    if (std::find(verbs.begin(), verbs.end(), call->verb == "watch" ? "get" : call->verb) == verbs.end()) return call->refuse(method_not_allowed(call->about()));
  }
  if (call->verb == "get") return route.subresource.empty() ? get(call, kind) : subresource_get(call, kind);
  if (call->verb == "list") return list(call, kind);
  if (call->verb == "watch") return watch(call, kind);
  if (call->verb == "delete") return remove(call, kind, std::move(body));
  if (call->verb == "deletecollection") return remove_all(call, kind, std::move(body));
  if (call->verb == "create" && (route.subresource == "exec" || route.subresource == "attach")) return subresource_get(call, kind);
  const bool to_object = call->verb == "update" || call->verb == "patch";
  if (call->verb.empty() || (to_object && route.name.empty()) || (call->verb == "create" && !route.name.empty() && route.subresource.empty())) {
    return call->refuse(method_not_allowed(call->about()));
  }
  write(call, kind, std::move(body));
}

void Objects::get(const CallPtr& call, const KindPtr& kind) {
  const auto object = registry_.get(*kind, {call->route.space, call->route.name});
  if (!object) return call->refuse(object.error());
  respond_object(*call, *kind, 200, *object, {}, clock_.now());
}

void Objects::subresource_get(const CallPtr& call, const KindPtr& kind) {
  const std::string& subresource = call->route.subresource;
  const auto object = registry_.get(*kind, {call->route.space, call->route.name});
  if (!object) return call->refuse(object.error());
  if (subresource == "scale") return respond_scale(*call, *kind, *object, {});
  if (subresource == "status") return respond_object(*call, *kind, 200, *object, {}, clock_.now());
  if (subresource != "log" && subresource != "exec" && subresource != "attach") {
    return call->refuse(method_not_allowed(call->about()));
  }
  auto pod = kube::parse_json(*object->bytes);
  if (!pod) return call->refuse(pod.error());
  if (subresource == "log") return proxy_.log(call->request, std::move(*pod), call->exchange);
  if (subresource == "attach") return proxy_.attach(call->request, std::move(*pod), call->exchange);
  proxy_.exec(call->request, std::move(*pod), call->exchange);
}

void Objects::list(const CallPtr& call, const KindPtr& kind) {
  if (!call->query("sendInitialEvents").empty()) return call->refuse(status_of({Code::Invalid, options_error("list", {"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"})}));
  const auto query = parse_list_query(*call);
  if (!query) return call->refuse(query.error());
  const auto page = registry_.list(*kind, call->route.space, *query);
  if (!page) return call->refuse(page.error());
  auto response = list_in_form(*call, *kind, *page, clock_.now());
  if (!response) return call->refuse(response.error());
  call->exchange->respond(std::move(*response));
}

void Objects::watch(const CallPtr& call, const KindPtr& kind) {
  auto query = parse_watch_query(*call, registry_.revision());
  if (!query) return call->refuse(status_of(query.error()));
  const auto include = parse_include(call->query("includeObject"));
  if (!include) return call->refuse(include.error());
  const auto timeout = parse_number(*call, "timeoutSeconds");
  if (!timeout) return call->refuse(timeout.error());
  // Without a wish, 30 to 60 minutes: watches that began together shall not end together.
  static std::atomic<int> spread{0};
  const std::chrono::seconds length(*timeout > 0 ? *timeout : 1'800 + (spread.fetch_add(373) % 1'800 + 1'800) % 1'800);
  WatchPlan plan{.kind = kind, .space = call->route.space, .query = std::move(*query), .form = call->form, .include = *include};
  plan.bookmarks = flag(call->request.target.query, "allowWatchBookmarks");
  plan.timeout = call->longest_watch ? std::min(length, *call->longest_watch) : length;
  watches_.open(std::move(plan), call->exchange);
}

// ---- writes

Reply Objects::reply(const CallPtr& call, const KindPtr& kind) {
  return [call, kind, token = in_flight_.begin(), &clock = clock_](Result<Written> written) {
    if (!written) return call->refuse(written.error());
    if (call->route.subresource == "scale" && kind->scale) return respond_scale(*call, *kind, written->object, written->warnings);
    if (!written->object.bytes) return call->answer(written->created ? 201 : 200, success(call->about()));
    respond_object(*call, *kind, written->created ? 201 : 200, written->object, written->warnings, clock.now());
  };
}

void Objects::write(const CallPtr& call, const KindPtr& kind, std::optional<Body> body) {
  if (call->request.body.size() > largest_body) return call->refuse(too_large_body());
  const std::string media(http::find(call->request.headers, "Content-Type"));
  PatchForm patch;
  if (call->verb == "patch") {
    const auto form = parse_patch_form(media, kind->type == nullptr);
    if (!form) {
      Status status = unsupported_media_type(form.error().message);
      status.empty_details = !parse_patch_form(media, false);  // none where only this kind does not take it
      return call->refuse(status);
    }
    patch = *form;
  }
  auto context = parse_write_context(*call, patch.apply);
  if (!context) return call->refuse(status_of(context.error()));
  if (!body) {
    auto parsed = patch.apply ? parse_apply_body(call->request.body) : parse_body(call->verb == "patch" ? "application/json" : media, call->request.body);
    if (!parsed && call->verb == "patch")
      return call->refuse(bad_request(fmt::format("{}: {}", patch.apply ? "error decoding YAML" : "error decoding patch", parsed.error().message)));
    if (!parsed && parsed.error().code == Code::Unsupported) return call->refuse(unsupported_media_type(parsed.error().message));
    if (!parsed) {
      return call->refuse(bad_request(
          fmt::format("the object provided is unrecognized (must be of type {}): {} ({})", kind->resource.kind, parsed.error().message, summary_of_body(call->request.body))));
    }
    body = std::move(*parsed);
  }
  call->request.body = {};  // not needed while the write waits for its commit
  context->duplicates = std::move(body->duplicates);
  const Route& route = call->route;
  const kube::ObjectKey key{route.space, route.name};
  auto done = reply(call, kind);
  if (patch.apply) return registry_.apply(*context, *kind, key, route.subresource, std::move(body->json), std::move(done));
  if (call->verb == "patch") return registry_.patch(*context, *kind, key, route.subresource, patch.type, std::move(body->json), std::move(done));
  if (call->verb == "update") return registry_.update(*context, *kind, key, route.subresource, std::move(body->json), std::move(done));
  if (route.subresource.empty()) return registry_.create(*context, *kind, route.space, std::move(body->json), std::move(done));
  registry_.post(*context, *kind, key, route.subresource, std::move(body->json), std::move(done));
}

namespace {
// DeleteOptions are optional: no body, or an empty one, means none.
Result<Json> options_body(const Call& call, std::optional<Body>& body) {
  if (body) return std::move(body->json);
  if (call.request.body.empty()) return Json::object();
  if (call.request.body.size() > largest_body) return fail(Code::Invalid, "the body is too large for DeleteOptions");
  auto parsed = parse_body(http::find(call.request.headers, "Content-Type"), call.request.body);
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  if (const std::string& kind = parsed->json["kind"].string(); !kind.empty() && kind != "DeleteOptions") return fail(Code::Invalid, fmt::format("DeleteOptions were expected, not {}", kind));
  if (const auto wrong = kube::type_errors(parsed->json, *kube::TypeTable::builtin().find_kind("v1", "DeleteOptions")); !wrong.empty())
    return fail(Code::Invalid, fmt::format("DeleteOptions cannot be read: {}", wrong.front()));
  return std::move(parsed->json);
}
}  // namespace

namespace {
// Kinds whose delete is answered with the object as it was last, as in Kubernetes; others with a Status.
bool returns_deleted(const kube::Resource& resource) {
  static constexpr std::array<std::string_view, 7> plurals{"persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates", "resourcequotas", "serviceaccounts", "services"};
  return resource.group.empty() && std::find(plurals.begin(), plurals.end(), resource.plural) != plurals.end();
}
}  // namespace

void Objects::remove(const CallPtr& call, const KindPtr& kind, std::optional<Body> body) {
  auto context = parse_write_context(*call);
  if (!context) return call->refuse(status_of(context.error()));
  const auto json = options_body(*call, body);
  if (!json) return call->refuse(json.error().code == Code::Unsupported ? unsupported_media_type(json.error().message) : status_of(json.error()));
  const auto options = parse_delete_options(*call, *json, context->dry_run);
  if (!options) return call->refuse(status_of(options.error()));
  auto done = [call, kind, token = in_flight_.begin(), &clock = clock_](Result<Written> written) {
    if (!written) return call->refuse(written.error());
    if ((!written->removed || returns_deleted(kind->resource)) && written->object.bytes) return respond_object(*call, *kind, 200, written->object, written->warnings, clock.now());
    StatusDetails about = call->about();
    if (written->object.bytes) {
      if (const auto object = kube::parse_json(*written->object.bytes)) about.uid = kube::uid_of(*object);
    }
    call->answer(200, success(about));
  };
  registry_.remove(*context, *kind, {call->route.space, call->route.name}, *options, std::move(done));
}

void Objects::remove_all(const CallPtr& call, const KindPtr& kind, std::optional<Body> body) {
  auto context = parse_write_context(*call);
  if (!context) return call->refuse(status_of(context.error()));
  const auto json = options_body(*call, body);
  if (!json) return call->refuse(status_of(json.error()));
  const auto options = parse_delete_options(*call, *json, context->dry_run);
  if (!options) return call->refuse(status_of(options.error()));
  const auto query = parse_list_query(*call);
  if (!query) return call->refuse(query.error());
  auto page = registry_.list(*kind, call->route.space, *query);
  if (!page) return call->refuse(page.error());

  // Answered with what was there, once the last delete is done. One that vanished meanwhile is no error.
  struct All {
    std::mutex mutex;
    std::size_t left = 0;
    std::optional<Error> failed;
  };
  auto all = std::make_shared<All>();
  auto shared_page = std::make_shared<const ListPage>(std::move(*page));
  auto answer = [call, kind, shared_page, &clock = clock_](const std::optional<Error>& failed) {
    if (failed) return call->refuse(*failed);
    auto response = list_in_form(*call, *kind, *shared_page, clock.now());
    if (!response) return call->refuse(response.error());
    call->exchange->respond(std::move(*response));
  };
  if (shared_page->objects.empty()) return answer(std::nullopt);
  all->left = shared_page->objects.size();
  auto token = in_flight_.begin();
  for (const Listed& object : shared_page->objects) {
    const auto parsed = kube::parse_json(*object.value.bytes());
    const kube::ObjectKey key = parsed ? kube::key_of(*parsed) : kube::ObjectKey{};
    registry_.remove(*context, *kind, key, *options, [all, answer, token](Result<Written> written) {
      std::optional<Error> failed;
      {
        const std::lock_guard lock(all->mutex);
        if (!written && written.error().code != Code::NotFound) all->failed = std::move(written.error());
        if (--all->left > 0) return;
        failed = std::move(all->failed);
      }
      answer(failed);
    });
  }
}

}  // namespace fairlead::apiserver
