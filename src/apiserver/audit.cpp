// SPDX-License-Identifier: Apache-2.0
#include "apiserver/audit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "apiserver/registry_bytes.h"
#include "base/log.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::size_t message_limit = 1024;

// A command or a joined container is no read, though a WebSocket begins with a GET.
bool is_read(const AuditRecord& record) {
  const std::string& subresource = record.about.subresource;
  return (record.verb == "get" || record.verb == "list" || record.verb == "watch") && subresource != "exec" && subresource != "attach";
}

class AuditedStream final : public http::Stream {
 public:
  AuditedStream(std::shared_ptr<http::Stream> inner, std::function<void()> over) : inner_(std::move(inner)), over_(std::move(over)) {}
  ~AuditedStream() override {
    inner_.reset();
    over_();
  }
  bool write(http::Buffer piece) override { return inner_->write(std::move(piece)); }
  std::size_t waiting() const override { return inner_->waiting(); }
  bool open() const override { return inner_->open(); }
  void on_close(std::function<void()> callback) override { inner_->on_close(std::move(callback)); }

 private:
  std::shared_ptr<http::Stream> inner_;
  std::function<void()> over_;
};

class AuditedExchange final : public http::Exchange {
 public:
  AuditedExchange(std::shared_ptr<http::Exchange> inner, AuditLog& log, const Clock& clock, AuditRecord record)
      : inner_(std::move(inner)), log_(log), clock_(clock), record_(std::make_shared<const AuditRecord>(std::move(record))) {}

  void respond(http::Response response) override {
    AuditOutcome outcome{.code = response.status};
    const std::string_view body = response.parts.empty() ? std::string_view(response.body) : response.parts.front().bytes;
    const bool created = response.status == 201 && record_->about.name.empty();
    // Single fields of the answer, never the whole.
    if (created) outcome.name = Peek(body).field("metadata.name").value_or("");
    if (response.status >= 400) {
      outcome.status_reason = Peek(body).field("reason").value_or("");
      outcome.message = Peek(body).field("message").value_or("").substr(0, message_limit);
    }
    tell(outcome);
    inner_->respond(std::move(response));
  }
  std::shared_ptr<http::Stream> stream(int status, http::Headers headers) override {
    tell({.stage = "ResponseStarted", .code = status});
    auto inner = inner_->stream(status, std::move(headers));
    if (!inner) return inner;
    return std::make_shared<AuditedStream>(std::move(inner), [record = record_, &log = log_, &clock = clock_, status] { log.write(audit_event(*record, {.code = status}, clock.now())); });
  }
  Result<std::shared_ptr<http::WebSocket>> accept_websocket(std::string_view subprotocol) override {
    tell({.stage = "ResponseStarted", .code = 101});
    return inner_->accept_websocket(subprotocol);
  }
  Result<std::shared_ptr<http::WebSocket>> accept_upgrade(std::string_view protocol, http::Headers headers) override {
    tell({.stage = "ResponseStarted", .code = 101});
    return inner_->accept_upgrade(protocol, std::move(headers));
  }

 private:
  void tell(const AuditOutcome& outcome) const { log_.write(audit_event(*record_, outcome, clock_.now())); }
  std::shared_ptr<http::Exchange> inner_;
  AuditLog& log_;
  const Clock& clock_;
  std::shared_ptr<const AuditRecord> record_;
};

}  // namespace

Result<std::unique_ptr<AuditLog>> AuditLog::open(AuditOptions options) {
  std::unique_ptr<AuditLog> log(new AuditLog(std::move(options)));
  if (auto done = log->reopen(); !done) return std::unexpected(std::move(done.error()));
  return log;
}

Result<void> AuditLog::reopen() {
  file_ = Fd(::open(options_.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) return fail_errno(errno, "audit log " + options_.path);
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) return fail(Code::Invalid, fmt::format("audit log {}: not an ordinary file", options_.path));
  size_ = static_cast<std::uint64_t>(info.st_size);
  return {};
}

void AuditLog::rotate() {
  ::unlink(fmt::format("{}.{}", options_.path, options_.backups).c_str());
  for (int i = options_.backups - 1; i >= 0; --i) {
    const std::string from = i == 0 ? options_.path : fmt::format("{}.{}", options_.path, i);
    ::rename(from.c_str(), fmt::format("{}.{}", options_.path, i + 1).c_str());
  }
  if (options_.backups <= 0) ::unlink(options_.path.c_str());
  if (auto done = reopen(); !done) log_error("audit log cannot be begun anew", {{"reason", done.error().message}});
}

void AuditLog::write(const std::string& line) {
  const std::string text = line + "\n";
  const std::scoped_lock lock(mutex_);
  if (size_ > 0 && size_ + text.size() > static_cast<std::uint64_t>(options_.size_limit.value)) rotate();
  const ssize_t written = file_ ? ::write(file_.get(), text.data(), text.size()) : -1;
  if (written == static_cast<ssize_t>(text.size())) {
    size_ += text.size();
    failing_ = false;
    return;
  }
  if (!failing_) log_error("audit log cannot be written: requests go on unrecorded", {{"path", options_.path}, {"errno", std::to_string(errno)}});
  failing_ = true;
}

namespace {
// An object's text, written member by member: it is only printed, so no tree is built.
class ObjectText {
 public:
  ObjectText& text(std::string_view name, std::string_view value) {
    begin(name);
    kube::append_json_string(out_, value);
    return *this;
  }
  ObjectText& json(std::string_view name, std::string_view value) {
    begin(name);
    out_ += value;
    return *this;
  }
  ObjectText& text_if_any(std::string_view name, std::string_view value) { return value.empty() ? *this : text(name, value); }
  std::string end() { return std::move(out_ += '}'); }

 private:
  void begin(std::string_view name) {
    if (out_.size() > 1) out_ += ',';
    kube::append_json_string(out_, name);
    out_ += ':';
  }
  std::string out_ = "{";
};
}  // namespace

std::string audit_event(const AuditRecord& record, const AuditOutcome& outcome, Instant now) {
  ObjectText event;
  event.text("kind", "Event").text("apiVersion", "audit.k8s.io/v1").text("level", "Metadata").text("auditID", record.id).text("stage", outcome.stage);
  event.text("requestURI", record.uri).text("verb", record.verb).json("user", print_json(to_user_info(record.real ? *record.real : record.user)));
  if (record.real) event.json("impersonatedUser", print_json(to_user_info(record.user)));
  if (!record.source.empty()) event.json("sourceIPs", print_json(Json::array({record.source})));
  event.text_if_any("userAgent", record.agent);
  const Attributes& about = record.about;
  if (about.resource_request) {
    ObjectText object;
    object.text("resource", about.resource).text_if_any("namespace", about.space).text_if_any("name", about.name.empty() ? outcome.name : about.name);
    object.text_if_any("apiGroup", about.group).text("apiVersion", record.version).text_if_any("subresource", about.subresource);
    event.json("objectRef", object.end());
  }
  ObjectText status;
  status.json("metadata", "{}");
  if (outcome.code >= 400) status.text("status", "Failure").text_if_any("message", outcome.message).text_if_any("reason", outcome.status_reason);
  event.json("responseStatus", status.json("code", std::to_string(outcome.code)).end());
  event.text("requestReceivedTimestamp", print_micro_time(record.received)).text("stageTimestamp", print_micro_time(now));
  ObjectText annotations;
  if (!record.user.name.empty()) annotations.text("authorization.k8s.io/decision", outcome.code == 403 ? "forbid" : "allow");
  if (record.notes) {
    const std::scoped_lock lock(record.notes->mutex);
    for (const auto& [name, text] : record.notes->annotations) annotations.text(name, text);
  }
  if (const std::string all = annotations.end(); all != "{}") event.json("annotations", all);
  return event.end();
}

std::shared_ptr<http::Exchange> audited(std::shared_ptr<http::Exchange> exchange, AuditLog& log, const Clock& clock, AuditRecord record) {
  if (log.options().writes_only && is_read(record)) return exchange;
  return std::make_shared<AuditedExchange>(std::move(exchange), log, clock, std::move(record));
}

}  // namespace fairlead::apiserver
