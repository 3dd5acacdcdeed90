// SPDX-License-Identifier: Apache-2.0
// Who did what, when, with what outcome: one JSON line a request, an audit.k8s.io/v1 Event at level Metadata. Bodies are never written, so no Secret and no token reaches it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "apiserver/auth_types.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/units.h"
#include "http/server.h"

namespace fairlead::apiserver {

struct AuditOptions {
  std::string path;              // empty: no log, at no cost
  Bytes size_limit = 100_MiB;    // then PATH becomes PATH.1, PATH.1 becomes PATH.2, ...
  int backups = 10;              // older ones are removed
  bool writes_only = false;      // leaves out get, list and watch
};

// An append-only file (0600). A line that cannot be written is told to the log once; requests go on. Thread-safe; a write is one system call.
class AuditLog {
 public:
  static Result<std::unique_ptr<AuditLog>> open(AuditOptions options);
  void write(const std::string& line);  // without its newline
  const AuditOptions& options() const { return options_; }

 private:
  explicit AuditLog(AuditOptions options) : options_(std::move(options)) {}
  Result<void> reopen();
  void rotate();
  const AuditOptions options_;
  std::mutex mutex_;
  Fd file_;
  std::uint64_t size_ = 0;
  bool failing_ = false;
};

// What a request leaves in the log beside itself. Thread-safe.
struct AuditNotes {
  std::mutex mutex;
  std::map<std::string, std::string> annotations;
};

// What is known of a request before its answer.
struct AuditRecord {
  std::string id, method, uri, verb, source, agent;
  User user;
  std::shared_ptr<const User> real;  // null: nobody impersonates
  Attributes about;
  std::string version;               // of the API
  Instant received;
  std::shared_ptr<AuditNotes> notes = nullptr;
};
struct AuditOutcome {
  const char* stage = "ResponseComplete";
  int code = 0;
  std::string name;                    // of what was created, where the request did not say
  std::string status_reason, message;  // of a refusal
};
// One line of the log, without its newline.
std::string audit_event(const AuditRecord& record, const AuditOutcome& outcome, Instant now);

// Passes everything on and writes the event when the answer is known (of a stream: when it begins and when it ends).
std::shared_ptr<http::Exchange> audited(std::shared_ptr<http::Exchange> exchange, AuditLog& log, const Clock& clock, AuditRecord record);

}  // namespace fairlead::apiserver
