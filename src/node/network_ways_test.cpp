// SPDX-License-Identifier: Apache-2.0
// The table of ports and groups (api/network_ways.h) in a kernel: real pods' networks, every pair of groups, real connections.
#include "api/network_ways.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <set>
#include <thread>

#include "api/node_identity.h"
#include "base/fd.h"
#include "kube/object.h"
#include "node/node_fixture.h"
#include "node/plan/network.h"

namespace fairlead::node {
namespace {
using api::Group;
using api::Protocol;
using kube::Json;
using namespace std::chrono_literals;

constexpr const char* kNft = "/usr/sbin/nft";
constexpr const char* kPods = "10.99.7.0/24";

// One that listens or is spoken to. Without a namespace of its own: an address of the node.
struct Party {
  std::string name, space, cluster;  // cluster empty: a stranger
  Group group = Group::Anybody;
  std::string ip, pin;
};

struct Port {
  Protocol protocol;
  int number;
  friend auto operator<=>(const Port&, const Port&) = default;
};
// Of every line of the table between Slurm's groups the first and the last port, and its neighbours; and some that no line names.
std::set<Port> ports_to_try() {
  std::set<Port> out{{Protocol::Tcp, 80}, {Protocol::Tcp, 6819}, {Protocol::Udp, 6817}, {Protocol::Udp, 5000}};
  for (const api::Way& way : api::network_ways()) {
    if (way.kept != api::Kept::SlurmPolicy) continue;
    for (const int port : {way.first - 1, way.first, way.last, way.last + 1})
      if (port >= 1 && port <= 65535) out.insert({way.protocol, port});
  }
  return out;
}

sockaddr_in at(const std::string& ip, int port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<std::uint16_t>(port));
  EXPECT_EQ(::inet_pton(AF_INET, ip.c_str(), &out.sin_addr), 1) << ip;
  return out;
}

// Runs in the network that is pinned there; sockets made by `work` stay in it. A thread of its own: no other ever sees that namespace.
template <class Work>
void in_network(const std::string& pin, Work work) {
  std::thread([&] {
    if (!pin.empty()) {
      const Fd space(::open(pin.c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_TRUE(space) << pin;
      ASSERT_EQ(::setns(space.get(), CLONE_NEWNET), 0);
    }
    work();
  }).join();
}

Fd make_socket(Protocol protocol) { return Fd(::socket(AF_INET, (protocol == Protocol::Tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

class NetworkWaysTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(exists(kNft)) << "install nftables (tools/packages.txt)";
    open_runtime();
    ASSERT_TRUE(ensure_bridge("flt0", "10.99.7.1/24"));
    const Fd forward(::open("/proc/sys/net/ipv4/ip_forward", O_WRONLY | O_CLOEXEC)), mask(::open("/proc/sys/net/ipv4/icmp_ratemask", O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::write(forward.get(), "1", 1), 1);
    // Each refused datagram is answered, however many there are: nothing here waits for a time to pass.
    ASSERT_EQ(::write(mask.get(), "0", 1), 1);
  }

  // The tests after this one live in the same network: no rule and no address may be left there.
  void TearDown() override {
    listeners_.clear();
    if (exists(kNft)) {
      EXPECT_TRUE(run_checked({.argv = {kNft, "-f", "-"}}, 20s, "table inet fairlead\ndelete table inet fairlead\n"));
    }
    for (const Party& party : parties_) {
      if (!party.pin.empty()) continue;
      EXPECT_TRUE(run_checked({.argv = {"ip", "address", "del", party.ip + "/32", "dev", "lo"}}, 10s, ""));
    }
    NodeTest::TearDown();
  }

  void add_pod(const std::string& name, const std::string& space, const std::string& cluster, Group group) {
    ASSERT_TRUE(runtime_->accept({.uid = name, .space = space, .name = name, .accepted = clock_.now()}));
    auto sandbox = runtime_->ensure_sandbox({.pod_uid = name, .hostname = name, .limits = {}});
    ASSERT_TRUE(sandbox) << sandbox.error().message;
    parties_.push_back({name, space, cluster, group, sandbox->ip, root_ + "/run/pods/" + name + "/net"});
    Json labels = Json::object();
    const char* role = group == Group::Heads ? "controller" : group == Group::Workers ? "worker" : group == Group::Exporter ? "exporter" : "login";
    if (!cluster.empty()) labels.set(api::kSlurmClusterLabel, cluster).set(api::kSlurmRoleLabel, role);
    seen_.pods.push_back(Json::object({{"metadata", Json::object({{"name", name}, {"namespace", space}, {"labels", std::move(labels)}})},
                                       {"spec", Json::object({{"nodeName", "n1"}})},
                                       {"status", Json::object({{"phase", "Running"}, {"podIP", sandbox->ip}})}}));
  }
  void add_cluster(const std::string& space, const std::string& cluster, int workers) {
    add_pod(space + "-" + cluster + "-head", space, cluster, Group::Heads);
    for (int i = 0; i < workers; ++i) add_pod(fmt::format("{}-{}-worker-{}", space, cluster, i), space, cluster, Group::Workers);
    add_pod(space + "-" + cluster + "-login", space, cluster, Group::Login);
    add_pod(space + "-" + cluster + "-exporter", space, cluster, Group::Exporter);
  }
  void add_address(const std::string& name, const std::string& ip) {
    auto done = run_checked({.argv = {"ip", "address", "add", ip + "/32", "dev", "lo"}}, 10s, "");
    ASSERT_TRUE(done) << done.error().message;
    parties_.push_back({name, "", "", Group::World, ip, ""});
  }

  void listen_everywhere() {
    for (const Party& party : parties_)
      in_network(party.pin, [&] {
        for (const Port& port : ports_) {
          Fd fd = make_socket(port.protocol);
          const sockaddr_in address = at(party.ip, port.number);
          const int on = 1;  // connections of the test before may linger
          ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
          ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << party.name << " " << port.number;
          ASSERT_TRUE(port.protocol == Protocol::Udp || ::listen(fd.get(), 500) == 0);
          listeners_.emplace(std::pair(party.name, port), std::move(fd));
        }
      });
  }

  void set_policies(const std::vector<std::string>& closed_ranges) {
    seen_.policies.clear();
    std::set<std::pair<std::string, std::string>> clusters;
    for (const Party& party : parties_)
      if (!party.cluster.empty()) clusters.emplace(party.space, party.cluster);
    for (const auto& [space, cluster] : clusters)
      for (auto& [name, spec] : api::slurm_network_policies({.cluster = cluster, .space = space, .exporter = true, .closed_ranges = closed_ranges}))
        seen_.policies.push_back(Json::object({{"metadata", Json::object({{"name", name}, {"namespace", space}})}, {"spec", std::move(spec)}}));
    const std::string rules = network_rules(seen_);
    auto done = run_checked({.argv = {kNft, "-f", "-"}}, 20s, rules);
    ASSERT_TRUE(done) << done.error().message << "\n" << rules;
  }

  // Which of all the others' ports this one reaches: connected, or answered by a datagram. Whatever is closed refuses at once.
  std::set<std::pair<std::string, Port>> reached_from(const Party& from) {
    struct Try {
      const Party* to;
      Port port;
      Fd fd;
      bool over = false;
    };
    std::vector<Try> tries;
    std::set<std::pair<std::string, Port>> out;
    in_network(from.pin, [&] {
      for (const Party& to : parties_)
        for (const Port& port : ports_) {
          if (to.ip == from.ip) continue;
          Try one{&to, port, make_socket(port.protocol)};
          const sockaddr_in address = at(to.ip, port.number);
          const int connected = ::connect(one.fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
          EXPECT_TRUE(connected == 0 || errno == EINPROGRESS) << from.name << " to " << to.name << ": " << std::strerror(errno);
          if (port.protocol == Protocol::Udp) (void)!::send(one.fd.get(), "ask", 3, 0);
          tries.push_back(std::move(one));
        }
    });
    std::size_t open = tries.size();
    while (open > 0) {
      std::vector<pollfd> waits;
      for (const Try& one : tries) waits.push_back({.fd = one.over ? -1 : one.fd.get(), .events = static_cast<short>(one.port.protocol == Protocol::Tcp ? POLLOUT : POLLIN), .revents = 0});
      std::vector<int> servers;
      for (const auto& [key, fd] : listeners_)
        if (key.second.protocol == Protocol::Udp) {
          servers.push_back(fd.get());
          waits.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
        }
      if (::poll(waits.data(), waits.size(), 20'000) <= 0) {
        for (const Try& one : tries)
          if (!one.over) ADD_FAILURE() << "neither answered nor refused: " << from.name << " to " << one.to->name << " " << api::text(one.port.protocol) << " " << one.port.number;
        return out;
      }
      for (std::size_t i = 0; i < tries.size(); ++i) {
        if (waits[i].revents == 0) continue;
        Try& one = tries[i];
        char buffer[16];
        int error = 0;
        socklen_t size = sizeof error;
        const bool well = one.port.protocol == Protocol::Udp ? ::recv(one.fd.get(), buffer, sizeof buffer, 0) == 6
                                                             : ::getsockopt(one.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
        if (well) out.emplace(one.to->name, one.port);
        one.over = true;
        --open;
      }
      for (const int server : servers) {
        sockaddr_in sender{};
        socklen_t size = sizeof sender;
        char buffer[16];
        while (::recvfrom(server, buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&sender), &size) == 3)
          (void)!::sendto(server, "answer", 6, 0, reinterpret_cast<const sockaddr*>(&sender), size);
      }
    }
    // The listeners' queues are emptied for the next one.
    for (const auto& [key, fd] : listeners_)
      if (key.second.protocol == Protocol::Tcp)
        for (int peer; (peer = ::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) ::close(peer);
    return out;
  }

  // What the table says. `world_has_all`: no range is closed, so that every address is part of the world.
  static bool wanted(const Party& from, const Party& to, const Port& port, bool world_has_all) {
    // Not even for whom no policy selects, but for names.
    if (to.name == "metadata") return port.number == 53 && (from.cluster.empty() || api::way_open(from.group, Group::Names, port.protocol, port.number));
    const bool one_cluster = !from.cluster.empty() && from.cluster == to.cluster && from.space == to.space;
    if (one_cluster) return api::way_open(from.group, to.group, port.protocol, port.number);
    const bool leaves = from.cluster.empty() || api::way_open(from.group, Group::Names, port.protocol, port.number) ||
                        ((world_has_all || to.name == "world") && api::way_open(from.group, Group::World, port.protocol, port.number));
    const bool enters = to.cluster.empty() || api::way_open(Group::Anybody, to.group, port.protocol, port.number) || (from.group == Group::Monitoring && api::way_open(Group::Monitoring, to.group, port.protocol, port.number));
    return leaves && enters;
  }

  void try_every_pair(bool world_has_all) {
    int open = 0, closed = 0;
    for (const Party& from : parties_) {
      if (from.pin.empty()) continue;
      const auto reached = reached_from(from);
      for (const Party& to : parties_)
        for (const Port& port : ports_) {
          if (to.ip == from.ip) continue;
          const bool want = wanted(from, to, port, world_has_all), have = reached.contains({to.name, port});
          (want ? open : closed)++;
          EXPECT_EQ(have, want) << from.name << " to " << to.name << " " << api::text(port.protocol) << " " << port.number;
        }
    }
    EXPECT_GT(open, 100);
    EXPECT_GT(closed, 1000);
  }

  NetworkSeen seen_{.node_name = "n1",
                    .own_ranges = {kPods},
                    .own_gateways = {"10.99.7.1"},
                    .namespaces = {Json::object({{"metadata", Json::object({{"name", "a"}})}}), Json::object({{"metadata", Json::object({{"name", "b"}})}}),
                                   Json::object({{"metadata", Json::object({{"name", "c"}})}}),
                                   Json::object({{"metadata", Json::object({{"name", "d"}, {"labels", Json::object({{api::kMonitoringLabel, "allowed"}})}})}})}};
  std::vector<Party> parties_;
  std::set<Port> ports_ = ports_to_try();
  std::map<std::pair<std::string, Port>, Fd> listeners_;
};

TEST_F(NetworkWaysTest, EveryPairOfGroupsIsOpenOrClosedAsTheTableSays) {
  // Two clusters in one namespace, one of the same name in another, and somebody without any.
  add_cluster("a", "one", 2);
  add_cluster("a", "two", 1);
  add_cluster("b", "one", 1);
  add_pod("stranger", "c", "", Group::Anybody);
  add_pod("prometheus", "d", "", Group::Monitoring);
  add_address("world", "203.0.113.9");
  add_address("metadata", "169.254.169.254");
  add_address("server", "10.98.0.1");
  if (HasFatalFailure()) return;
  listen_everywhere();
  // The stricter first: what is remembered of earlier connections must not open anything.
  set_policies({kPods, "10.98.0.0/16"});
  try_every_pair(false);
  set_policies({});
  try_every_pair(true);
}

// Whatever policies close; and nobody beside them, and no other port.
TEST_F(NetworkWaysTest, NodesOfASlurmClusterOfInstancesReachTheMachinesMetadata) {
  add_cluster("a", "one", 1);
  add_pod("stranger", "c", "", Group::Anybody);
  add_address("metadata", "169.254.169.254");
  if (HasFatalFailure()) return;
  ports_.insert({Protocol::Tcp, 80});
  listen_everywhere();
  for (Json& pod : seen_.pods)
    if (kube::name_of(pod).ends_with("worker-0")) {
      pod.child("metadata").set("annotations", Json::object({{api::node_identity::pods_note, "true"}}));
      pod.child("metadata").set("ownerReferences", Json::array({Json::object({{"apiVersion", kube::resources::slurm_clusters.api_version()}, {"kind", kube::resources::slurm_clusters.kind}, {"name", "one"}, {"controller", true}})}));
    }
  for (const bool answers : {true, false}) {
    seen_.metadata = answers;
    set_policies({kPods});
    for (const Party& from : parties_) {
      if (from.pin.empty()) continue;
      std::set<std::pair<std::string, Port>> there;
      for (const auto& one : reached_from(from))
        if (one.first == "metadata" && one.second.number != 53) there.insert(one);
      const bool worker = from.name.ends_with("worker-0");
      EXPECT_EQ(there.size(), worker && answers ? 1u : 0u) << from.name;
      for (const auto& one : there) EXPECT_EQ(one.second, (Port{Protocol::Tcp, 80}));
    }
  }
}

}  // namespace
}  // namespace fairlead::node
