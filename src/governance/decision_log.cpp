// SPDX-License-Identifier: Apache-2.0
#include "governance/decision_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace fairlead::governance {

namespace {

std::unexpected<Error> trouble(const std::string& doing) { return fail(Code::Unavailable, doing + ": " + std::strerror(errno)); }

}  // namespace

DecisionLogFile::DecisionLogFile(DecisionLogOptions options) : options_(std::move(options)), retry_(options_.retry) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [this] { return open_ || !problem_.empty(); });
}

DecisionLogFile::~DecisionLogFile() {
  thread_.request_stop();
  thread_.join();
}

// ---- any thread

bool DecisionLogFile::ready() {
  const std::scoped_lock lock(mutex_);
  return open_ && !resting_ && todo_.empty() && !writing_;
}

std::string DecisionLogFile::problem() {
  const std::scoped_lock lock(mutex_);
  return problem_;
}

DecisionSink::Then DecisionLogFile::begin(std::string lines) {
  const std::scoped_lock lock(mutex_);
  if (!open_ || resting_) return Then::Off;
  if (static_cast<std::int64_t>(lines.size()) > options_.limit.value / 2) {  // it would be begun anew again and again
    rest("what holds quota and waits takes " + print(Bytes{static_cast<std::int64_t>(lines.size())}) + ", more than half of its limit of " + print(options_.limit) + ": give it more");
    return Then::Off;
  }
  lost_ = false;
  return put({.begins = true, .lines = std::move(lines)});
}

DecisionSink::Then DecisionLogFile::append(std::string lines) {
  const std::scoped_lock lock(mutex_);
  if (lost_) return Then::Off;
  return put({.begins = false, .lines = std::move(lines)});
}

DecisionSink::Then DecisionLogFile::put(Piece piece) {
  const auto size = static_cast<std::int64_t>(piece.lines.size());
  if (waiting_ + size > options_.limit.value) {
    rest(waiting_ > 0 ? "the disk does not keep up with it" : "the decisions of one moment take more than its limit of " + print(options_.limit) + ": give it more");
    return Then::Off;
  }
  waiting_ += size;
  will_be_ = (takes_a_new_file(piece, will_be_) ? 0 : will_be_) + size;
  todo_.push_back(std::move(piece));
  changed_.notify_all();
  return will_be_ > options_.limit.value ? Then::BeginAnew : Then::GoOn;
}

bool DecisionLogFile::takes_a_new_file(const Piece& piece, std::int64_t size) const { return piece.begins && size > 0 && size + static_cast<std::int64_t>(piece.lines.size()) > options_.limit.value; }

void DecisionLogFile::rest(std::string why) {
  log_warn("the decision log is off for now; decisions go on", {{"file", options_.path}, {"why", why}, {"tried_again_in_seconds", std::to_string(std::chrono::duration_cast<std::chrono::seconds>(retry_).count())}});
  problem_ = std::move(why);
  todo_.clear();
  waiting_ = 0;
  lost_ = resting_ = true;
  changed_.notify_all();
}

void DecisionLogFile::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return todo_.empty() && !writing_; });
}

// ---- the thread

void DecisionLogFile::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (resting_) {
      if (changed_.wait_for(lock, stop, retry_, [] { return false; }); stop.stop_requested()) return;
      retry_ = std::min(2 * retry_, options_.most_retry);
      resting_ = false, will_be_ = size_;  // what waited was dropped
    }
    if (!open_) {
      lock.unlock();
      auto done = open_file(0);
      if (done) done = cut_open_line();
      if (!done) file_ = Fd();
      const std::int64_t size = size_;
      lock.lock();
      if (!done) {
        rest(std::move(done.error().message));
        continue;
      }
      open_ = true, will_be_ = size;
      problem_.clear();
      changed_.notify_all();
    }
    changed_.wait(lock, stop, [this] { return !todo_.empty() || resting_; });
    if (resting_) continue;
    if (todo_.empty()) return;  // to stop was asked for
    const Piece piece = std::move(todo_.front());
    todo_.pop_front();
    writing_ = true;
    lock.unlock();
    auto done = write(piece);
    const std::int64_t size = size_;
    if (!done) file_ = Fd();
    lock.lock();
    writing_ = false;
    if (!done) {
      open_ = false;
      rest(std::move(done.error().message));
      continue;
    }
    if (todo_.empty()) will_be_ = size;  // whatever others did to the file
    if (!resting_) {
      waiting_ -= static_cast<std::int64_t>(piece.lines.size());
      problem_.clear();
      retry_ = options_.retry;
    }
    changed_.notify_all();
  }
}

Result<void> DecisionLogFile::open_file(int more_flags) {
  file_ = Fd(::open(options_.path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | more_flags, 0600));
  if (!file_) return trouble("open");
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return trouble("look at it");
  if (!S_ISREG(about.st_mode)) return fail(Code::Invalid, "it is no file");
  if (about.st_uid != ::geteuid()) return fail(Code::Invalid, "it belongs to another user");
  if ((about.st_mode & 07777) != 0600 && ::fchmod(file_.get(), 0600) != 0) return trouble("change its mode to 0600");
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Result<void>(fail(Code::Conflict, "another process writes it")) : Result<void>(trouble("lock it"));
  size_ = about.st_size;
  return {};
}

// What stands behind the last end of a line was cut short by a crash.
Result<void> DecisionLogFile::cut_open_line() {
  std::array<char, 64 * 1024> block{};
  std::int64_t end = size_;
  while (end > 0) {
    const std::int64_t from = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(block.size()));
    const ssize_t got = ::pread(file_.get(), block.data(), static_cast<std::size_t>(end - from), from);
    if (got != end - from) return got < 0 ? Result<void>(trouble("read")) : Result<void>(fail(Code::Unavailable, "it is changed by somebody else"));
    const std::string_view text(block.data(), static_cast<std::size_t>(got));
    if (const auto last = text.rfind('\n'); last != std::string_view::npos) {
      end = from + static_cast<std::int64_t>(last) + 1;
      break;
    }
    end = from;
  }
  if (end == size_) return {};
  if (::ftruncate(file_.get(), end) != 0) return trouble("cut its last line off");
  size_ = end;
  return {};
}

Result<void> DecisionLogFile::write(const Piece& piece) {
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return trouble("look at it");
  if (about.st_nlink == 0) return fail(Code::Unavailable, "somebody deleted it");
  size_ = about.st_size;
  if (takes_a_new_file(piece, size_)) {
    if (std::rename(options_.path.c_str(), (options_.path + ".1").c_str()) != 0) return trouble("rename it to " + options_.path + ".1");
    if (auto opened = open_file(O_EXCL); !opened) return opened;
  }
  const std::int64_t begin = size_;
  for (std::string_view rest = piece.lines; !rest.empty();) {
    const ssize_t wrote = options_.write ? options_.write(file_.get(), rest.data(), rest.size()) : ::write(file_.get(), rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const std::string why = wrote == 0 ? "nothing was written" : std::string("write: ") + std::strerror(errno);
      if (::ftruncate(file_.get(), begin) != 0) return fail(Code::Unavailable, why + "; and its last line could not be cut off");  // it is when the file is opened again
      return fail(Code::Unavailable, why);
    }
    size_ += wrote;
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

}  // namespace fairlead::governance
