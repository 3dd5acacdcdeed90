// SPDX-License-Identifier: Apache-2.0
// The real host: namespaces, cgroups and links of this Linux machine.
#include "fleet/local_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "base/log.h"
#include "fleet/cgroups.h"
#include "fleet/fabric.h"
#include "fleet/netns.h"
#include "fleet/processes.h"
#include "fleet/site.h"
#include "kube/selector.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

constexpr auto kStartLimit = std::chrono::milliseconds(30'000);
constexpr auto kDeathLimit = std::chrono::milliseconds(10'000);
constexpr auto kCertificateMargin = std::chrono::hours(24 * 30);

// Tells when first processes end: one thread that polls their pidfds.
class ExitWatch {
 public:
  explicit ExitWatch(std::function<void(const std::string&)> callback) : callback_(std::move(callback)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
  }
  ~ExitWatch() {
    thread_.request_stop();
    wake();
  }
  void add(const std::string& name, const ProcessIdentity& identity) {
    {
      std::lock_guard lock(mutex_);
      auto found = watched_.find(name);
      if (found != watched_.end() && found->second.identity == identity) return;
      auto pidfd = open_process(identity);
      if (!pidfd) return;
      watched_.insert_or_assign(name, Watched{identity, std::make_shared<Fd>(std::move(*pidfd))});
    }
    wake();
  }

 private:
  struct Watched {
    ProcessIdentity identity;
    std::shared_ptr<Fd> pidfd;
  };
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
  }
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<std::pair<std::string, std::shared_ptr<Fd>>> held;
      std::vector<pollfd> fds{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
      {
        std::lock_guard lock(mutex_);
        for (const auto& [name, watched] : watched_) {
          held.emplace_back(name, watched.pidfd);
          fds.push_back({.fd = watched.pidfd->get(), .events = POLLIN, .revents = 0});
        }
      }
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof count);
      for (std::size_t i = 1; i < fds.size(); ++i) {
        if (fds[i].revents == 0) continue;
        const auto& [name, pidfd] = held[i - 1];
        {
          std::lock_guard lock(mutex_);
          const auto found = watched_.find(name);
          if (found != watched_.end() && found->second.pidfd == pidfd) watched_.erase(found);
        }
        callback_(name);
      }
    }
  }
  std::function<void(const std::string&)> callback_;
  Fd wake_;
  std::mutex mutex_;
  std::map<std::string, Watched> watched_;
  std::jthread thread_;
};

// The record that node-init leaves of the node's first process.
Result<ProcessIdentity> read_init(const std::string& path) {
  auto text = read_file(path, 64_KiB);
  if (!text) return std::unexpected(std::move(text.error()));
  auto json = kube::parse_json(*text);
  if (!json) return pass(std::move(json.error()), "read " + path);
  return ProcessIdentity{.pid = static_cast<pid_t>((*json)["pid"].integer(-1)), .start_ticks = static_cast<std::uint64_t>((*json)["start_ticks"].integer())};
}

Json strings(const std::map<std::string, std::string>& map) {
  Json object = Json::object();
  for (const auto& [key, value] : map) object.set(key, value);
  return object;
}

class LinuxHost final : public LocalHost {
 public:
  explicit LinuxHost(LocalHostOptions options) : options_(std::move(options)), site_(site_of(options_.state_dir)), fabric_(site_, options_.ranges) {}

  Result<void> ready() override {
    std::lock_guard lock(fabric_mutex_);
    if (fabric_ready_ && has_link(site_.host_link())) return {};
    if (::geteuid() != 0) return fail(Code::Forbidden, "local machines need root: namespaces, links and cgroups are made for them");
    if (auto done = fabric_.stand_up(); !done) return done;
    if (!address_told_ && options_.on_address) {
      if (auto done = options_.on_address(host_address(options_.ranges)); !done) return pass(std::move(done.error()), "listen on the host's address in the fabric");
      address_told_ = true;
    }
    fabric_ready_ = true;
    return {};
  }

  Result<Observation> observe(const std::string& name, const api::Seat& seat) override {
    Observation seen;
    const std::string record = site_.init_of(name);
    auto identity = read_init(record);
    // That no process is seen is told to the cluster as a death that is certain: only its absence counts, never that nobody could look.
    if (!identity && identity.error().code != Code::NotFound) return std::unexpected(std::move(identity.error()));
    if (identity) {
      struct stat about {};
      if (::stat(record.c_str(), &about) == 0) seen.started_at = Instant(std::chrono::seconds(about.st_mtim.tv_sec) + std::chrono::nanoseconds(about.st_mtim.tv_nsec));
      auto alive = lives(*identity);
      if (!alive) return std::unexpected(std::move(alive.error()));
      if (*alive) seen.process = *identity;
    }
    bool stale = false;
    auto wire = fabric_.look(seat, seen.process ? seen.process->pid : 0, stale);
    if (!wire) return std::unexpected(std::move(wire.error()));
    seen.wire = *wire;
    auto hierarchies = cgroup_hierarchies();
    if (!hierarchies) return std::unexpected(std::move(hierarchies.error()));
    seen.leftovers = stale || exists(site_.node(name)) || cgroup_exists(*hierarchies, site_.cgroup(name));
    if (seen.process && exits_) exits_->add(name, *seen.process);
    return seen;
  }

  Result<ProcessIdentity> start(const api::Machine& machine) override {
    if (auto done = end_strays(machine.name); !done) return std::unexpected(std::move(done.error()));
    if (auto done = write_folder(machine); !done) return std::unexpected(std::move(done.error()));
    auto hierarchies = cgroup_hierarchies();
    if (!hierarchies) return std::unexpected(std::move(hierarchies.error()));
    // What a dead node's pods were in must not be taken for the new one's.
    if (auto done = remove_cgroup(*hierarchies, site_.cgroup(machine.name), kDeathLimit); !done) return std::unexpected(std::move(done.error()));
    Bytes memory;
    if (auto quantity = kube::Quantity::parse(machine.spec.capacity.at("memory"))) memory.value = quantity->value();
    if (auto done = make_cgroup(*hierarchies, site_.cgroup(machine.name), memory); !done) return std::unexpected(std::move(done.error()));

    const std::string log_path = site_.node(machine.name) + "/logs/node.log";
    const Fd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log) return fail_errno(errno, "open " + log_path);
    auto child = Child::start({.argv = {options_.agent_program, "node-init", "--config", site_.config_of(machine.name)},
                               .environment = {},
                               .working_directory = "/",
                               .stdout_fd = log.get(),
                               .stderr_fd = log.get(),
                               .new_session = true});
    if (!child) return std::unexpected(std::move(child.error()));
    auto exit = child->wait(kStartLimit);
    if (!exit) return std::unexpected(std::move(exit.error()));
    if (!*exit) return fail(Code::Unavailable, fmt::format("node-init did not finish within {} s; see {}", kStartLimit.count() / 1000, log_path));
    if ((*exit)->code != 0) return fail(Code::Unavailable, fmt::format("node-init ended with status {}; see {}", (*exit)->code, log_path));
    auto identity = read_init(site_.init_of(machine.name));
    if (!identity) return pass(std::move(identity.error()), "node-init left no record");
    if (exits_) exits_->add(machine.name, *identity);
    return *identity;
  }

  Result<void> connect(const std::string& name, const api::Seat& seat) override {
    auto identity = read_init(site_.init_of(name));
    if (!identity || !is_alive(*identity)) return fail(Code::Unavailable, fmt::format("connect {}: its first process is gone", name));
    return fabric_.connect(seat, identity->pid);
  }

  Result<void> set_link(const api::Seat& seat, api::Link link) override { return fabric_.set_link(seat, link); }

  Result<void> kill(const std::string& name) override {
    auto identity = read_init(site_.init_of(name));
    if (!identity) return end_strays(name);
    return kill_process(*identity, kDeathLimit);
  }

  Result<void> stop(const std::string& name, std::chrono::milliseconds grace) override {
    if (auto identity = read_init(site_.init_of(name)))
      if (auto done = stop_process(*identity, grace, kDeathLimit); !done) return done;
    return end_strays(name);
  }

  Result<void> remove(const std::string& name, const api::Seat& seat) override {
    if (auto done = end_strays(name); !done) return done;
    if (auto done = fabric_.disconnect(seat); !done) return done;
    auto hierarchies = cgroup_hierarchies();
    if (!hierarchies) return std::unexpected(std::move(hierarchies.error()));
    if (auto done = remove_cgroup(*hierarchies, site_.cgroup(name), kDeathLimit); !done) return done;
    auto mounts = read_file("/proc/self/mountinfo");
    if (!mounts) return std::unexpected(std::move(mounts.error()));
    for (const auto& point : mounts_below(*mounts, site_.node(name)))
      if (::umount2(point.c_str(), MNT_DETACH) != 0) return fail_errno(errno, "unmount " + point);
    if (!exists(site_.node(name))) return {};
    return remove_tree(site_.node(name));
  }

  void watch_exits(std::function<void(const std::string&)> callback) override { exits_ = std::make_unique<ExitWatch>(std::move(callback)); }

 private:
  // Ends every node process of this name, recorded or not (a server killed between start and record).
  Result<void> end_strays(const std::string& name) {
    for (const auto& process : find_site_processes(site_))
      if (process.role == Role::Node && process.node == name)
        if (auto done = kill_process(process.identity, kDeathLimit); !done) return done;
    return {};
  }

  Result<void> write_folder(const api::Machine& machine) {
    const std::string dir = site_.node(machine.name);
    for (const auto& path : {dir, dir + "/logs"})
      if (auto done = make_dirs(path); !done) return done;
    ::unlink(site_.init_of(machine.name).c_str());
    if (auto done = write_certificate(machine, dir); !done) return pass(std::move(done.error()), "certificate of node " + machine.name);

    Json config = Json::object({{"node_name", machine.name},
                                {"node_ip", machine.seat.address},
                                {"pod_cidr", machine.seat.pod_cidr},
                                {"listen_port", static_cast<int>(options_.agent_port)},
                                {"api_server", options_.api_server.empty() ? fmt::format("https://{}:{}", host_address(options_.ranges), options_.api_port) : options_.api_server},
                                {"ca_file", dir + "/ca.crt"},
                                {"cert_file", dir + "/node.crt"},
                                {"key_file", dir + "/node.key"},
                                {"node_dir", dir},
                                {"images_dir", site_.dir + "/images"},
                                {"volumes_dir", site_.dir + "/volumes"},
                                {"cgroup_parent", "/" + site_.cgroup(machine.name)},
                                {"labels", strings(machine.spec.labels)},
                                {"taints", machine.spec.taints},
                                {"capacity", strings(machine.spec.capacity)},
                                {"cluster_domain", options_.cluster_domain},
                                {"fabric_interface", "eth0"}});
    if (!machine.seat.address6.empty()) config.set("node_ip6", machine.seat.address6).set("pod_cidr6", machine.seat.pod_cidr6);
    return write_file_durably(site_.config_of(machine.name), kube::print_json_indented(config) + "\n", 0644);
  }

  Result<void> write_certificate(const api::Machine& machine, const std::string& dir) {
    if (auto done = write_file_durably(dir + "/ca.crt", options_.ca_pem, 0644); !done) return done;
    // A certificate outlives restarts; its address is the seat's, which never changes.
    const Instant now = SystemClock().now();
    const std::string issued_by = options_.ca_pem + machine.seat.address + machine.seat.address6;
    std::vector<std::string> addresses{machine.seat.address};
    if (!machine.seat.address6.empty()) addresses.push_back(machine.seat.address6);
    if (auto text = read_file(dir + "/node.crt"); text && exists(dir + "/node.key") && exists(dir + "/issued-by"))
      if (auto until = http::expiry(*text); until && *until > now + kCertificateMargin)
        if (auto by = read_file(dir + "/issued-by"); by && *by == issued_by) return {};
    auto pair = options_.issue({.common_name = "system:node:" + machine.name,
                                .organizations = {"system:nodes"},
                                .dns_names = {machine.name},
                                .ip_addresses = std::move(addresses),
                                .server = true,
                                .client = true});
    if (!pair) return std::unexpected(std::move(pair.error()));
    ::unlink((dir + "/issued-by").c_str());
    if (auto done = write_file_durably(dir + "/node.key", pair->key_pem, 0600); !done) return done;
    if (auto done = write_file_durably(dir + "/node.crt", pair->certificate_pem, 0644); !done) return done;
    return write_file_durably(dir + "/issued-by", issued_by, 0644);  // last: the pair is whole
  }

  LocalHostOptions options_;
  Site site_;
  Fabric fabric_;
  std::mutex fabric_mutex_;
  bool fabric_ready_ = false, address_told_ = false;
  std::unique_ptr<ExitWatch> exits_;
};

}  // namespace

std::unique_ptr<LocalHost> make_local_host(LocalHostOptions options) { return std::make_unique<LinuxHost>(std::move(options)); }

}  // namespace fairlead::fleet
