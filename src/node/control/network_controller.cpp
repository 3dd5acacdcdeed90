// SPDX-License-Identifier: Apache-2.0
#include "node/control/network_controller.h"

#include <algorithm>
#include <set>

#include "api/node_identity.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "kube/object.h"
#include "node/plan/network.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;

const kube::Resource slices{.group = "discovery.k8s.io", .version = "v1", .plural = "endpointslices", .kind = "EndpointSlice"};
const kube::Resource policies{.group = "networking.k8s.io", .version = "v1", .plural = "networkpolicies", .kind = "NetworkPolicy"};
constexpr std::chrono::nanoseconds least_rest = 20ms, most_rest = 1s;  // as kube-proxy rests by default
constexpr auto apply_again = 5min;  // in case somebody else changed the kernel's rules

class ForgivingApi final : public kube::KubeApi {
 public:
  explicit ForgivingApi(kube::KubeApi& api) : api_(api) {}
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override {
    auto out = api_.list(resource, space, options);
    // The name of a collection is always there: what is not found is the kind.
    if (!out && missing(resource, out.error())) return kube::List{.items = {}, .resource_version = "0", .continue_token = {}};
    return out;
  }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override {
    auto out = api_.watch(resource, space, options);
    if (!out && missing(resource, out.error())) return fail(Code::Unavailable, resource.plural + " are not served yet");
    return out;
  }
  Result<Json> create(const kube::Resource& resource, const Json& object) override { return api_.create(resource, object); }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return api_.update(resource, object); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return api_.update_status(resource, object); }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch,
                     const std::string& subresource) override {
    return api_.patch(resource, key, type, patch, subresource);
  }
  Result<Json> post(const kube::Resource& resource, const kube::ObjectKey& key, const std::string& subresource, const Json& body) override {
    return api_.post(resource, key, subresource, body);
  }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override {
    return api_.remove(resource, key, options);
  }
  Result<kube::ExecResult> exec(const kube::ObjectKey& pod, const std::string& container, const std::vector<std::string>& command,
                                const std::string& input, std::chrono::milliseconds limit) override {
    return api_.exec(pod, container, command, input, limit);
  }

 private:
  // Names and routes must not wait for what only the packet filter needs: of that, a kind that the node may not read counts as empty, too.
  bool missing(const kube::Resource& resource, const Error& error) {
    const bool optional = resource == slices || resource == policies;
    if (error.code != Code::NotFound && !(optional && error.code == Code::Forbidden)) return false;
    const std::lock_guard lock(mutex_);
    if (told_.insert(resource.plural).second)
      log_warn("the packet filter goes without a kind that cannot be read", {{"resource", resource.plural}, {"reason", error.message}});
    return true;
  }
  kube::KubeApi& api_;
  std::mutex mutex_;
  std::set<std::string> told_;  // under mutex_
};

// Whom the kernel sends where, of services with session affinity. Empty without a map of them, or where it cannot be read: clients are then spread anew.
std::vector<Session> known_sessions(const std::string& nft, const std::string& rules) {
  std::vector<Session> out;
  for (const char* map : {"affinity4", "affinity6"}) {
    if (rules.find(std::string("  map ") + map + " {") == std::string::npos) continue;
    auto told = run_checked({.argv = {nft, "-j", "list", "map", "inet", "fairlead", map}}, 60s);
    if (!told) continue;  // the first rules with it
    auto sessions = parse_sessions(*told);
    if (sessions) out.insert(out.end(), sessions->begin(), sessions->end());
    else log_warn("sessions of services are forgotten", {{"reason", sessions.error().message}});
  }
  return out;
}

}  // namespace

std::unique_ptr<kube::KubeApi> without_missing_kinds(kube::KubeApi& api) { return std::make_unique<ForgivingApi>(api); }

std::vector<kube::Controller::Source> NetworkController::sources() const {
  // One key for all: the rules are replaced as a whole.
  const auto all = [](const kube::Change&) -> std::vector<kube::ObjectKey> { return {{"", "all"}}; };
  // Of pods and nodes most changes are heartbeats and the like.
  const auto if_placed = [](const kube::Change& change) -> std::vector<kube::ObjectKey> {
    const auto told = [](const Json& pod) {
      return kube::print_json(
          Json::array({pod["metadata"]["labels"], pod["metadata"]["annotations"][api::node_identity::pods_note], pod["spec"]["nodeName"], pod["status"]["podIPs"], pod["status"]["podIP"], pod["status"]["phase"]}));
    };
    if (change.before && change.after && told(*change.before) == told(*change.after)) return {};
    return {{"", "all"}};
  };
  const auto if_moved = [](const kube::Change& change) -> std::vector<kube::ObjectKey> {
    const auto told = [](const Json& node) { return kube::print_json(Json::array({node["spec"]["podCIDRs"], node["status"]["addresses"]})); };
    if (change.before && change.after && told(*change.before) == told(*change.after)) return {};
    return {{"", "all"}};
  };
  return {{.resource = kube::resources::pods, .space = "", .keys = if_placed},
          {.resource = kube::resources::nodes, .space = "", .keys = if_moved},
          {.resource = kube::resources::namespaces, .space = "", .keys = all},
          {.resource = kube::resources::services, .space = "", .keys = all},
          {.resource = slices, .space = "", .keys = all},
          {.resource = policies, .space = "", .keys = all}};
}

Result<kube::Next> NetworkController::reconcile(const kube::ObjectKey&) {
  // The first change counts at once, and what follows it together: where many pods come at a time, to read them all for each of them would be most of what a node does.
  const auto began = clock_.monotonic();
  if (began < rests_until_) return kube::Next{rests_until_ - began};
  const auto done = settle();
  const auto took = clock_.monotonic() - began;
  rests_until_ = began + took + std::clamp<std::chrono::nanoseconds>(8 * took, least_rest, most_rest);
  return done;
}

Result<kube::Next> NetworkController::settle() {
  NetworkSeen seen{.node_name = options_.node_name,
                   .own_ranges = options_.own_ranges,
                   .own_gateways = options_.own_gateways,
                   .cluster_ranges = {},
                   .metadata = options_.metadata,
                   .masquerade = options_.masquerade,
                   .pods = caches_->of(kube::resources::pods).list(""),
                   .namespaces = caches_->of(kube::resources::namespaces).list(""),
                   .services = caches_->of(kube::resources::services).list(""),
                   .endpoint_slices = caches_->of(slices).list(""),
                   .policies = caches_->of(policies).list("")};
  for (const Json& node : caches_->of(kube::resources::nodes).list("")) {
    for (const Json& one : node["spec"]["podCIDRs"].items()) seen.cluster_ranges.push_back(one.string());
    if (!node["spec"]["podCIDR"].string().empty()) seen.cluster_ranges.push_back(node["spec"]["podCIDR"].string());
    for (const Json& one : node["status"]["addresses"].items())
      if (one["type"].string() == "InternalIP") seen.cluster_ranges.push_back(one["address"].string());
  }
  std::string rules = network_rules(seen);
  // First, so that nobody is answered for an address that another pod has by now.
  if (options_.with_role) options_.with_role->set(options_.metadata ? pods_with_role(seen.pods, seen.node_name) : std::map<std::string, std::string>());
  const auto now = clock_.monotonic();
  if (rules != applied_ || now - applied_at_ > apply_again) {
    if (!exists(options_.nft))
      return fail(Code::NotFound, options_.nft + " is missing: install nftables (service addresses and network policies need it)");
    const std::string sessions = keep_sessions(seen, known_sessions(options_.nft, rules));
    if (auto done = run_checked({.argv = {options_.nft, "-f", "-"}}, 60s, rules + sessions); !done)
      return pass(std::move(done.error()), "set the packet filter");
    if (rules != applied_) log_debug("packet filter set", {{"bytes", std::to_string(rules.size())}});
    applied_ = std::move(rules);
    applied_at_ = now;
  }
  return kube::Next{apply_again};
}

}  // namespace fairlead::node
