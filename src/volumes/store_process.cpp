// SPDX-License-Identifier: Apache-2.0
#include "volumes/store_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"

namespace fairlead::volumes {

using blocks::Words;
using namespace std::chrono_literals;

std::vector<std::string> CephPlace::arguments() const {
  std::vector<std::string> out{"--ceph-user", user, "--ceph-pool", pool, "--ceph-namespace", space, "--host", host};
  if (!conf.empty()) out.insert(out.end(), {"--ceph-conf", conf});
  return out;
}

// One process, from its start to its end.
class StoreProcess::Session {
 public:
  static Result<std::shared_ptr<Session>> start(const CephPlace& place, bool take_over) {
    int to[2], from[2];
    if (::pipe2(to, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
    Fd theirs_in(to[0]), ours_out(to[1]);
    if (::pipe2(from, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
    Fd ours_in(from[0]), theirs_out(from[1]);
    Command command{.argv = {place.program, "store"}, .environment = {}, .working_directory = "/", .stdin_fd = theirs_in.get(), .stdout_fd = theirs_out.get(), .stderr_fd = 2, .new_session = true, .before_exec = {}};
    for (std::string& one : place.arguments()) command.argv.push_back(std::move(one));
    if (take_over) command.argv.push_back("--take-over");
    auto child = Child::start(command);
    if (!child) return pass(std::move(child.error()), "start " + place.program);
    ::fcntl(ours_out.get(), F_SETFL, O_NONBLOCK);
    std::shared_ptr<Session> out(new Session(std::move(*child), std::move(ours_out), std::move(ours_in)));
    out->waiting_[0] = {};
    out->reader_ = std::thread([one = out.get()] { one->read(); });
    return out;
  }
  ~Session() {
    end();
    reader_.join();
    (void)child_.wait(10s);
  }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_ || killed_;
  }
  // Nobody begins anything with it from here on, though its end is seen a moment later.
  void end() {
    killed_ = true;
    (void)child_.signal(SIGKILL);
  }

  Result<Words> ask(Words request, std::chrono::milliseconds limit) {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = ++last_;
      waiting_[number] = {};
    }
    request.insert(request.begin(), std::to_string(number));
    if (!send(blocks::print_words(request), limit)) end();
    return wait(number, limit);
  }
  // An end of the process ends the wait, too.
  Result<Words> wait(std::uint64_t number, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    for (;;) {
      Waiting& own = waiting_[number];
      const auto signs = own.signs;
      const bool heard = changed_.wait_for(lock, limit, [&] { return own.answer || ended_ || own.signs != signs; });
      if (own.answer || ended_) {
        auto out = own.answer ? std::move(*own.answer) : Result<Words>(fail(Code::Unavailable, "the process that reaches the Ceph pool (fairlead-rbd store) has ended: see the log"));
        waiting_.erase(number);
        return out;
      }
      if (heard) continue;
      end();
      waiting_.erase(number);
      return fail(Code::Unavailable, fmt::format("the Ceph cluster does not answer for {} s: whether what was asked for is done is not known", limit.count() / 1000));
    }
  }

 private:
  struct Waiting {
    std::uint64_t signs = 0;  // of life
    std::optional<Result<Words>> answer;
  };
  Session(Child child, Fd to, Fd from) : child_(std::move(child)), to_(std::move(to)), from_(std::move(from)) {}
  bool send(std::string_view line, std::chrono::milliseconds limit) {
    const std::lock_guard lock(writing_);
    while (!line.empty()) {
      const ssize_t put = write_without_sigpipe(to_.get(), line.data(), line.size());
      if (put > 0) {
        line.remove_prefix(static_cast<std::size_t>(put));
        continue;
      }
      if (put < 0 && errno == EINTR) continue;
      pollfd ready{to_.get(), POLLOUT, 0};
      if (put < 0 && errno == EAGAIN && ::poll(&ready, 1, static_cast<int>(limit.count())) > 0) continue;
      return false;
    }
    return true;
  }
  void read() {
    std::string rest, piece(64 << 10, '\0');
    for (bool good = true; good;) {
      const ssize_t got = ::read(from_.get(), piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      rest.append(piece.data(), static_cast<std::size_t>(got));
      std::size_t begin = 0;
      const std::lock_guard lock(mutex_);
      for (std::size_t at = 0; good && (at = rest.find('\n', begin)) != rest.npos; begin = at + 1) {
        auto answer = blocks::read_answer(std::string_view(rest).substr(begin, at - begin));
        good = answer.has_value();
        if (!good) continue;
        const auto found = waiting_.find(answer->number);
        if (found == waiting_.end()) continue;
        if (answer->goes) ++found->second.signs;
        else found->second.answer = std::move(answer->words);
      }
      rest.erase(0, begin);
      changed_.notify_all();
    }
    end();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  Child child_;
  const Fd to_, from_;
  std::mutex mutex_, writing_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::uint64_t last_ = 0;
  bool ended_ = false;
  std::atomic<bool> killed_ = false;
  std::thread reader_;
};

Result<std::unique_ptr<StoreProcess>> StoreProcess::start(CephPlace place) {
  std::unique_ptr<StoreProcess> out(new StoreProcess(std::move(place)));
  const auto session = out->session();
  if (!session) return std::unexpected(session.error());
  out->place_.take_over = false;
  return out;
}
StoreProcess::~StoreProcess() = default;

Result<std::shared_ptr<StoreProcess::Session>> StoreProcess::session() {
  const std::lock_guard lock(mutex_);
  if (session_ && !session_->ended()) return session_;
  const bool again = session_ != nullptr;
  session_.reset();
  auto next = Session::start(place_, place_.take_over);
  if (!next) return std::unexpected(std::move(next.error()));
  auto ready = (*next)->wait(0, 60s);
  if (!ready) return std::unexpected(std::move(ready.error()));
  if (ready->size() != 1 || (!id_.empty() && id_ != ready->front())) return fail(Code::Internal, "the Ceph pool has another id than it had: nothing is done in it");
  id_ = ready->front();
  session_ = *next;
  if (again) log_warn("what reaches the Ceph pool was started anew", {{"pool", place_.pool}});
  return session_;
}

Result<Words> StoreProcess::ask(Words request, std::chrono::milliseconds limit) {
  auto one = session();
  return one ? (*one)->ask(std::move(request), limit) : std::unexpected(std::move(one.error()));
}

}  // namespace fairlead::volumes
