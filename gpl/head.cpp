// SPDX-License-Identifier: GPL-3.0-or-later
#include "head.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rng.h"
#include "channel.h"
#include "hold.h"
#include "lease_page.h"
#include "prepare.h"
#include "probe.h"
#include "relay.h"
#include "supervise.h"
#include "terms.h"

namespace fairlead::companion {
namespace {

using quorum::Time;
constexpr Time kNever = Time(std::numeric_limits<std::int64_t>::max() / 4);

int poll_ms(Time until, Time now) { return static_cast<int>(std::clamp<std::int64_t>((until - now).count() / 1'000'000 + 1, 1, 50)); }

Fd signals_of(sigset_t& before) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, &before);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

quorum::Group group_of(const HeadOptions& options) {
  // The lease, too: a candidate that counts on a longer one than its voters keep would hold on when they are free. Which of the voters are heads is not part of it: a witness may become one, and a head a witness.
  return quorum::make_group(options.key, fmt::format("{}|{}|{}|{}", options.cluster, options.voters.size(), options.timing.ttl.count(), fmt::join(options.voters, ",")));
}

class Head {
 public:
  Head(HeadOptions options, std::unique_ptr<Channel> channel, std::unique_ptr<Relay> relay, LeasePage page, Fd control, Fd signals, sigset_t mask)
      : options_(std::move(options)), channel_(std::move(channel)), relay_(std::move(relay)), page_(std::move(page)), control_(std::move(control)), signals_(std::move(signals)), mask_(mask), chance_(seed()),
        incarnation_(chance_.next() | 1), elector_(options_.self, static_cast<std::uint8_t>(options_.voters.size()), options_.timing, incarnation_, boot_time()) {}

  int run() {
    ::setpriority(PRIO_PROCESS, 0, -15);  // a late renewal costs a failover; refused without the right to it
    while (true) {
      const Time now = boot_time();
      const Time next = std::min({elector_.next(), kill_at(), now + std::chrono::milliseconds(50)});
      pollfd watched[5] = {{channel_->fd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {daemon_ ? daemon_->pidfd() : -1, POLLIN, 0}, {probe_ ? probe_->second.get() : -1, POLLIN, 0}, {control_.get(), POLLIN, 0}};
      ::poll(watched, 5, poll_ms(next, now));
      while (auto message = channel_->receive()) channel_->send(elector_.receive(*message, boot_time()));
      renew();
      take_signals();
      if (watched[3].revents != 0) take_answers();
      if (watched[4].revents != 0) take_question();
      if (daemon_) look_at_daemon();
      reap_orphans({daemon_ ? daemon_->pid() : -1, probe_ ? probe_->first.pid() : -1});
      if (ending_ && !daemon_) break;
      act();
      pass_on();
    }
    const Time end = boot_time() + std::chrono::milliseconds(20);
    for (auto released = elector_.give_back(kNever); boot_time() < end;) {  // more than once: a lost one costs the others a second
      channel_->send(released);
      ::poll(nullptr, 0, 7);
    }
    return 0;
  }

 private:
  static std::uint64_t seed() {
    std::uint64_t value = 0;
    const std::string bytes = secret_bytes(sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  // The daemon is to be dead by the end of the lease, so that it is told a little earlier.
  Time told_until() const { return elector_.lease_until() == Time::min() ? Time::min() : elector_.lease_until() - options_.timing.ttl / 16; }
  Time kill_at() const { return daemon_ ? std::max(told_until(), Time::zero()) : kNever; }

  void renew() {
    elector_.tell(term_ ? term_->number : 0, daemon_ && answered_ != Time::min());
    channel_->send(elector_.tick(boot_time(), chance_.next()));
    page_.set(told_until());
  }

  void take_signals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (signal == SIGTERM || signal == SIGINT) {
        ending_ = true;
        stop_daemon("this head ends");
      } else if (daemon_) {
        (void)daemon_->signal(signal);
      }
    }
  }

  // ---- the daemon

  void act() {
    const Time now = boot_time();
    if (elector_.lapsed(now)) {
      if (daemon_) return kill_daemon("the lease is over: no majority of the voters answers");
      leave(now + std::chrono::milliseconds(50), "no majority of the voters answers");
      return;
    }
    forget_handicap(now);
    if (!elector_.holds(now) || daemon_ || ending_ || stopping_ || kept_from_running(now)) return;
    if (!term_) return take();
    if (told_until() > now + options_.timing.ttl / 4) start_daemon();
  }

  // To whoever serves, while that is another.
  void pass_on() {
    if (!relay_) return;
    const Time now = boot_time();
    const auto promised = elector_.voter().promised_to(now);
    std::optional<sockaddr_in> where;
    if (!ending_ && !daemon_ && !term_ && promised && *promised != options_.self && elector_.voter().last_ask().serving) where = channel_->address_of(*promised);
    if (where) where->sin_port = htons(options_.relay_port);
    relay_->to(where);
  }

  void take() {
    const passwd* user = ::getpwnam("slurm");
    auto term = take_term(options_.volume, fmt::format("held by {} since {}", options_.voters[options_.self], print_time(SystemClock().now())), user ? user->pw_uid : 0, user ? user->pw_gid : 0,
                          [this] { return elector_.holds(boot_time()); });
    if (!term) {
      refusals_ = std::min(refusals_ + 1, 6);
      log_error("the state cannot be taken over; another head may try", {{"reason", term.error().message}});
      trouble_ = term.error().message;
      return leave(boot_time() + std::chrono::seconds(1 << refusals_), trouble_);
    }
    refusals_ = 0;
    term_ = std::move(*term);
    quick_deaths_ = 0;
    if (auto linked = replace_link(term_->path, options_.state_link); !linked) {
      log_error("the state has no place", {{"reason", linked.error().message}});
      return leave(boot_time() + std::chrono::seconds(5), linked.error().message);
    }
    log_info("this head serves from now on", {{"term", std::to_string(term_->number)}, {"voters", fmt::format("{} of {}", elector_.heard(boot_time()), options_.voters.size())}});
    tell_address("take");
  }

  // They ask earlier than this head while it has its handicap; where none of them can serve, it does.
  void let_others_first(Time by) {
    elector_.handicap(by);
    handicapped_ = true;
    other_serves_since_ = Time::min();
  }
  // Over once another has served for a second.
  void forget_handicap(Time now) {
    if (!handicapped_) return;
    const auto promised = elector_.voter().promised_to(now);
    const bool other = promised && *promised != options_.self && elector_.voter().last_ask().serving;
    if (!other) other_serves_since_ = Time::min();
    else if (other_serves_since_ == Time::min()) other_serves_since_ = now;
    else if (now - other_serves_since_ > std::chrono::seconds(1)) {
      elector_.handicap(Time::zero());
      handicapped_ = false;
      setbacks_ = 0;
    }
  }

  // Nothing of ours runs any more: the others need not wait.
  void leave(Time until, const std::string& why) {
    if (term_) {
      tell_address("drop");
      log_info("this head does not serve any more", {{"term", std::to_string(term_->number)}, {"reason", why}});
    }
    term_.reset();
    channel_->send(elector_.give_back(until));
    page_.set(Time::min());
  }

  void tell_address(const char* what) {
    if (options_.address_program.empty()) return;
    auto told = fairlead::run({.argv = {options_.address_program, what, std::to_string(term_->number)}}, std::chrono::milliseconds(500));
    if (!told || told->exit.code != 0) log_warn("the address was not moved", {{"program", options_.address_program}, {"asked", what}, {"reason", told ? std::string(trim(told->err)) : told.error().message}});
  }

  void start_daemon() {
    auto conf = read_file(options_.slurm_conf);
    const std::string name = conf ? controller_name(*conf) : "";
    if (name.empty()) {
      log_error("slurmctld cannot be started", {{"reason", conf ? options_.slurm_conf + " has no SlurmctldHost" : conf.error().message}});
      return leave(boot_time() + std::chrono::seconds(10), "no configuration");
    }
    Command command{.argv = {"slurmctld", "-D"}, .environment = options_.environment, .stdout_fd = 1, .stderr_fd = 2, .die_with_parent = true};
    (*command.environment)["FAIRLEAD_LEASE"] = options_.run_dir + "/lease";
    (*command.environment)["FAIRLEAD_HOST_NAME"] = name;
    command.before_exec = [before = mask_] {
      ::setpriority(PRIO_PROCESS, 0, 0);
      return sigprocmask(SIG_SETMASK, &before, nullptr) == 0 ? 0 : errno;
    };
    if (options_.before_start)
      if (auto ready = options_.before_start(*command.environment); !ready) {
        log_error("slurmctld is not started", {{"reason", ready.error().message}});
        trouble_ = ready.error().message;
        return leave(boot_time() + std::chrono::seconds(5), trouble_);
      }
    page_.set(told_until());
    if (relay_) relay_->to(std::nullopt);  // the port is slurmctld's
    auto child = Child::start(command);
    if (!child) {
      log_error("slurmctld cannot be started", {{"reason", child.error().message}});
      return leave(boot_time() + std::chrono::seconds(10), child.error().message);
    }
    daemon_ = std::move(*child);
    started_ = boot_time();
    answered_ = Time::min();
    used_at_answer_ = Time::zero();
    killed_ = false;
    if (probe_conf_ != *conf) {
      const std::string path = options_.run_dir + "/probe.conf";
      if (auto written = write_file_atomically(path, own_address_conf(*conf), 0644); !written) log_warn("the probe has no configuration", {{"reason", written.error().message}});
      probe_conf_ = *conf;
    }
    auto probe = start_probe(options_.run_dir + "/probe.conf");
    if (probe) probe_ = std::move(*probe);
    else log_warn("slurmctld is not probed", {{"reason", probe.error().message}});
  }

  void take_answers() {
    char bytes[64];
    bool any = false, ended = false;
    while (true) {
      const ssize_t got = ::read(probe_->second.get(), bytes, sizeof bytes);
      if (got > 0) any = true;
      else ended = got == 0;
      if (got <= 0) break;
    }
    if (ended) {  // the probe itself ended: another one, unless it ends at once
      probe_.reset();
      if (daemon_ && answered_ != Time::min()) {
        if (auto probe = start_probe(options_.run_dir + "/probe.conf")) probe_ = std::move(*probe);
      } else {
        log_warn("the probe of slurmctld ended; it is not watched for being hung");
      }
    }
    if (!any || !daemon_) return;
    trouble_.clear();
    if (answered_ == Time::min())
      log_info("slurmctld answers", {{"term", std::to_string(term_->number)}, {"ms", std::to_string((boot_time() - started_).count() / 1'000'000)}});
    answered_ = boot_time();
    if (const auto look = look_at_process(daemon_->pid())) used_at_answer_ = look->processor;
    if (now_saved_) return;
    auto marked = mark_saved(options_.volume, *term_);
    if (!marked) log_warn("the volume could not be marked", {{"reason", marked.error().message}});
    else now_saved_ = *marked;
  }

  // The lease is ours and no slurmctld runs here: whoever asked may know it. What cannot be read starts nothing.
  bool kept_from_running(Time now) {
    if (now < look_for_hold_) return held_;
    look_for_hold_ = now + std::chrono::milliseconds(200);
    auto hold = read_hold(options_.volume);
    const bool before = std::exchange(held_, !hold || *hold);
    if (!held_) {
      if (before) trouble_.clear();
      return false;
    }
    trouble_ = "slurmctld is kept from running: " + (hold ? (*hold)->reason : hold.error().message);
    if (!before) log_warn("slurmctld is kept from running", {{"reason", hold ? (*hold)->reason : hold.error().message}});
    if (!hold || (*hold)->id.empty()) return true;
    if (auto noted = note_held(options_.volume, (*hold)->id); !noted && !before) log_warn("the volume could not be told that slurmctld has ended", {{"reason", noted.error().message}});
    return true;
  }

  void look_at_daemon() {
    auto exit = daemon_->wait(std::chrono::milliseconds(0));
    if (exit && *exit) return daemon_ended(**exit);
    const Time now = boot_time();
    if (!stopping_ && told_until() <= now) return kill_daemon("the lease is over");
    if (stopping_ && now > stop_by_) return kill_daemon("it did not end in time");
    if (now < look_again_) return;
    look_again_ = now + std::chrono::milliseconds(100);
    if (auto ours = still_there(*term_); ours && !*ours) return kill_daemon("another head has taken over the state");
    // A volume that does not answer ends nothing that runs.
    if (auto hold = read_hold(options_.volume); !stopping_ && hold && *hold) stop_daemon("it is kept from running: " + (*hold)->reason);
    if (!probe_ || stopping_) return;
    Silence silence{.since_answer = now - (answered_ == Time::min() ? started_ : answered_), .answered_ever = answered_ != Time::min(), .times_killed = recent_hangs(now)};
    if (silence.since_answer < std::chrono::seconds(1)) return;
    const auto look = look_at_process(daemon_->pid());
    if (!look) return;
    silence.stopped = look->stopped;
    silence.runnable = look->runnable;
    silence.processor = look->processor - used_at_answer_;
    if (!is_hung(silence)) return;
    hangs_.push_back(now);
    kill_daemon(fmt::format("no answer for {} ms{}", silence.since_answer.count() / 1'000'000, silence.stopped ? ", stopped by a signal" : ""));
  }
  int recent_hangs(Time now) {
    std::erase_if(hangs_, [&](Time at) { return at + std::chrono::minutes(10) < now; });
    return static_cast<int>(hangs_.size());
  }

  void stop_daemon(const std::string& why) {
    if (!daemon_ || stopping_) return;
    log_info("slurmctld is asked to save and end", {{"reason", why}});
    stopping_ = true;
    stop_by_ = boot_time() + options_.stop_limit;
    (void)daemon_->signal(SIGTERM);
    (void)daemon_->signal(SIGCONT);
  }

  void kill_daemon(const std::string& why) {
    if (!killed_) log_warn("slurmctld is killed", {{"reason", why}});
    killed_ = true;
    (void)daemon_->signal(SIGKILL);
  }

  void daemon_ended(const Exit& exit) {
    const Time now = boot_time();
    log_info("slurmctld ended", {{"code", std::to_string(exit.code)}, {"signal", std::to_string(exit.signal)}, {"after ms", std::to_string((now - started_).count() / 1'000'000)}});
    daemon_.reset();
    probe_.reset();
    if (options_.after_end && elector_.holds(now)) options_.after_end();  // elsewhere its path leads nowhere
    const bool wanted = std::exchange(stopping_, false);
    if (ending_) return term_ ? tell_address("drop") : void();
    if (wanted) {
      let_others_first(options_.timing.ttl);
      return leave(now, "asked to step down");
    }
    auto ours = still_there(*term_);
    if (elector_.lapsed(now) || !elector_.holds(now) || (ours && !*ours)) return leave(now + std::chrono::milliseconds(50), "its lease or its term is over");
    const bool quick = now - started_ < std::chrono::seconds(10);
    quick_deaths_ = quick ? quick_deaths_ + 1 : 0;
    if (!quick) {
      setbacks_ = 0;
      elector_.handicap(Time::zero());
    }
    if (quick_deaths_ < 2) return;  // started again in place, at once
    log_error("slurmctld ends again and again here; another head is to serve", {{"times", std::to_string(quick_deaths_)}});
    trouble_ = fmt::format("slurmctld ended {} times soon after it began, with {}; the log of this container has its last words", quick_deaths_, exit.signal ? fmt::format("signal {}", exit.signal) : fmt::format("code {}", exit.code));
    let_others_first(options_.timing.ttl / 4 * (1 << std::min(setbacks_++, 5)));
    leave(now, "slurmctld ends again and again");
  }

  // ---- questions of people and of readiness checks

  void take_question() {
    const Fd client(::accept4(control_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return;
    const timeval limit{.tv_sec = 0, .tv_usec = 20'000};
    ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char text[64];
    const ssize_t got = ::recv(client.get(), text, sizeof text, 0);
    const std::string question(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    const std::string answer = question == "status" ? "0" + status() : question == "step-down" ? step_down() : "1unknown question\n";
    (void)::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::string status() {
    const Time now = boot_time();
    const auto promised = elector_.voter().promised_to(now);
    const bool leads = promised && elector_.voter().last_ask().serving;
    if (leads && *promised != options_.self) trouble_.clear();  // another serves: what kept this one from it may be over
    return fmt::format("{{\"voter\":{},\"role\":\"{}\",\"term\":{},\"active\":{},\"leaseMs\":{},\"votersHeard\":{},\"voters\":{},\"trouble\":\"{}\"}}\n", options_.self, daemon_ ? answered_ == Time::min() ? "starting" : "active" : "standby",
                       term_ ? term_->number : promised ? elector_.voter().last_ask().epoch : 0, daemon_ && answered_ != Time::min() ? std::to_string(options_.self) : leads ? std::to_string(*promised) : "null",
                       elector_.holds(now) ? (elector_.lease_until() - now).count() / 1'000'000 : 0, elector_.heard(now), options_.voters.size(), json_safe(trouble_));
  }
  static std::string json_safe(std::string text) {
    std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; }, '\'');
    return text;
  }

  std::string step_down() {
    const Time now = boot_time();
    if (!daemon_) return "1this head does not serve; ask the one that does\n";
    bool other = false;
    for (std::uint8_t head = 0; head < options_.heads; ++head) other = other || (head != options_.self && elector_.hears(head, now));
    if (!other) return "1no other head answers: slurmctld stays here\n";
    stop_daemon("asked to step down");
    return "0slurmctld saves its state and ends here; another head takes over\n";
  }

  const HeadOptions options_;
  const std::unique_ptr<Channel> channel_;
  const std::unique_ptr<Relay> relay_;  // none: nothing is passed on
  LeasePage page_;
  const Fd control_, signals_;
  const sigset_t mask_;  // of the time before; the daemon gets it
  Rng chance_;
  const std::uint64_t incarnation_;
  quorum::Elector elector_;

  std::optional<Term> term_;
  std::optional<Child> daemon_;
  std::optional<std::pair<Child, Fd>> probe_;
  std::string probe_conf_, trouble_;
  Time started_{}, answered_ = Time::min(), used_at_answer_{}, look_again_{}, stop_by_{}, other_serves_since_ = Time::min();
  Time look_for_hold_{};
  bool held_ = false, stopping_ = false, ending_ = false, killed_ = false, handicapped_ = false, now_saved_ = false;
  int quick_deaths_ = 0, setbacks_ = 0, refusals_ = 0;
  std::vector<Time> hangs_;
};

Result<Fd> control_socket(const std::string& path) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "make a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(Code::Invalid, "the path of the control socket is too long: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ::unlink(path.c_str());
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  ::umask(mask);
  if (bound != 0 || ::listen(socket.get(), 8) != 0) return fail_errno(bound != 0 ? error : errno, "listen on " + path);
  return socket;
}

}  // namespace

int run_head(HeadOptions options) {
  if (options.self >= options.heads) {
    log_error("cannot start", {{"error", "this voter is a witness, not a head"}});
    return 1;
  }
  sigset_t mask;
  Fd signals = signals_of(mask);  // before there are threads, for these are to block the same
  auto page = LeasePage::create(options.run_dir + "/lease");
  auto control = control_socket(options.run_dir + "/head.sock");
  auto channel = Channel::open(options.voters, options.self, group_of(options));
  auto relay = options.relay_port == 0 ? Result<std::unique_ptr<Relay>>(nullptr) : Relay::start(options.relay_port);
  for (const Error* error : {page ? nullptr : &page.error(), control ? nullptr : &control.error(), channel ? nullptr : &channel.error(), relay ? nullptr : &relay.error()})
    if (error) {
      log_error("cannot start", {{"error", error->message}});
      return 1;
    }
  log_info("this head votes", {{"voter", std::to_string(options.self)}, {"heads", std::to_string(options.heads)}, {"witnesses", std::to_string(options.voters.size() - options.heads)}, {"lease ms", std::to_string(options.timing.ttl.count() / 1'000'000)}});
  return Head(std::move(options), std::move(*channel), std::move(*relay), std::move(*page), std::move(*control), std::move(signals), mask).run();
}

int run_witness(HeadOptions options) {
  sigset_t before;
  const Fd signals = signals_of(before);
  auto channel = Channel::open(options.voters, options.self, group_of(options));
  if (!channel) {
    log_error("cannot start", {{"error", channel.error().message}});
    return 1;
  }
  ::setpriority(PRIO_PROCESS, 0, -15);
  quorum::Voter voter(options.self, options.timing, boot_time());
  log_info("this witness votes", {{"voter", std::to_string(options.self)}});
  while (true) {
    pollfd watched[2] = {{(*channel)->fd(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
    ::poll(watched, 2, -1);
    signalfd_siginfo info;
    while (::read(signals.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) return 0;
    while (const auto message = (*channel)->receive()) {
      if (message->to != options.self || message->from >= options.heads) continue;
      if (message->kind == quorum::Kind::Ask) (*channel)->send(voter.answer(*message, boot_time()));
      if (message->kind == quorum::Kind::Release) voter.release(*message);
    }
  }
}

Result<std::string> ask_head(const std::string& run_dir, const std::string& question) {
  const std::string path = run_dir + "/head.sock";
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size() + 1, sizeof address.sun_path - 1));
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char answer[4096];
  ssize_t got = -1;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::send(socket.get(), question.data(), question.size(), MSG_NOSIGNAL) > 0) got = ::recv(socket.get(), answer, sizeof answer, 0);
  if (got < 1) return fail(Code::Unavailable, fmt::format("no elected head runs here, or it does not answer ({}): {}", path, std::strerror(errno)));
  std::string text(answer + 1, static_cast<std::size_t>(got) - 1);
  if (answer[0] != '0') return fail(Code::Invalid, std::string(trim(text)));
  return text;
}

Result<std::string> wait_for_change(const std::string& run_dir, const std::string& known, std::chrono::milliseconds limit) {
  const auto field = [](const std::string& json, std::string_view name) {
    const auto at = json.find(name);
    if (at == std::string::npos) return std::string();
    const auto begin = json.find_first_not_of("\":", at + name.size());
    return json.substr(begin, json.find_first_of("\",}", begin) - begin);
  };
  for (const Time end = boot_time() + limit;;) {
    auto status = ask_head(run_dir, "status");
    if (!status || boot_time() >= end || field(*status, "\"role\"") + ":" + field(*status, "\"term\"") != known) return status;
    ::poll(nullptr, 0, 50);
  }
}

}  // namespace fairlead::companion
