// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/plan/preflight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "api/identity_crds.h"
#include "base/encoding.h"

namespace fairlead::orchestrator {

using kube::Json;

namespace {

constexpr const char* install = "install Fairlead's chart: helm repo add fairlead http://SERVER/charts && helm upgrade --install fairlead fairlead/fairlead -n fairlead-system --create-namespace --set server.aws.enabled=true, or fairlead install --aws (docs/install-kubernetes.md)";

using Version = std::vector<int>;
// "1.33", "v1.18.3-eksbuild.1": leading numbers between dots; empty: there are none.
Version numbers_of(std::string_view text) {
  Version out;
  if (text.starts_with('v')) text.remove_prefix(1);
  while (!text.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) break;
    out.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.starts_with('.')) break;
    text.remove_prefix(1);
  }
  return out;
}

// The tag of an image that is a version; empty: it is named by a digest alone, or by a word.
std::string version_of_image(std::string_view image) {
  image = image.substr(0, image.find('@'));
  const auto colon = image.rfind(':');
  if (colon == image.npos || image.find('/', colon) != image.npos) return "";
  std::string_view tag = image.substr(colon + 1);
  if (tag.starts_with('v')) tag.remove_prefix(1);
  return numbers_of(tag).size() >= 2 ? std::string(tag.substr(0, tag.find_first_not_of("0123456789."))) : "";
}

struct Known {
  const char *name, *daemon_set, *container, *image;
};
// By the name of the DaemonSet, and its container or a part of its image: a name alone anybody takes.
constexpr Known known[] = {
    {"Amazon VPC CNI", "aws-node", "aws-node", "amazon-k8s-cni"}, {"Cilium", "cilium", "cilium-agent", "cilium/cilium"},       {"Calico", "calico-node", "calico-node", "calico/node"},
    {"flannel", "kube-flannel-ds", "kube-flannel", "flannel"},    {"flannel", "kube-flannel", "kube-flannel", "flannel"},      {"kindnet", "kindnet", "kindnet-cni", "kindnetd"},
};

std::string some(const std::vector<std::string>& names) {
  constexpr std::size_t most = 3;
  std::string out = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(most, names.size())), ", "));
  if (names.size() > most) out += fmt::format(" and {} more", names.size() - most);
  return out;
}
std::string some(const std::set<std::string>& names) { return some(std::vector<std::string>(names.begin(), names.end())); }

const std::string* unknown_of(const Facts& facts, const char* check) {
  const auto found = facts.unknown.find(check);
  return found == facts.unknown.end() ? nullptr : &found->second;
}

Finding charts(const Facts& facts) {
  Finding out{.check = "charts", .verdict = Verdict::Ok, .what = "the kinds of clusters and their instances are served", .advice = {}};
  if (!facts.missing.empty()) return {out.check, Verdict::Failed, fmt::format("{} {} not installed", fmt::join(facts.missing, ", "), facts.missing.size() == 1 ? "is" : "are"), install};
  if (const std::string* why = unknown_of(facts, "charts")) return {out.check, Verdict::Unknown, *why, "see that the server's role is that of this version: fairlead install --aws, or helm upgrade"};
  if (!facts.missing_extras.empty()) return {out.check, Verdict::Warning, fmt::format("{} {} not installed: clusters run, and what these are for is not served", fmt::join(facts.missing_extras, ", "), facts.missing_extras.size() == 1 ? "is" : "are"), install};
  return out;
}

Finding version(const Facts& facts) {
  Finding out{.check = "version", .verdict = Verdict::Ok, .what = fmt::format("Kubernetes {} is what we test with", facts.version), .advice = {}};
  const Version has = numbers_of(facts.version);
  if (has.size() < 2) return {out.check, Verdict::Unknown, "the API does not tell its version", "kubectl version; 1.30 or newer is needed, 1.33 is tested"};
  const Version oldest{1, 30}, tested{1, 33}, minor(has.begin(), has.begin() + 2);
  // SageMaker's own list has 1.28 to 1.32.
  if (minor < oldest) return {out.check, Verdict::Failed, fmt::format("Kubernetes {} lacks ValidatingAdmissionPolicy v1, by which namespaces of teams are kept: 1.28 and 1.29, which SageMaker HyperPod takes, are left out for that", facts.version), "upgrade it to 1.30 or newer; 1.33 is tested"};
  if (minor < tested) return {out.check, Verdict::Warning, fmt::format("Kubernetes {} has what we use, and is not tested with; 1.33 is", facts.version), "try what matters to you first"};
  if (minor > tested) return {out.check, Verdict::Warning, fmt::format("Kubernetes {} is newer than what we have tried (1.33)", facts.version), "try what matters to you first"};
  return out;
}

Finding authentication(const Facts& facts) {
  const std::string& mode = facts.authentication_mode;
  if (mode.empty()) return {"authentication", Verdict::Unknown, "the authentication mode is not told here", "aws eks describe-cluster --query cluster.accessConfig, at the server's AWS face"};
  if (mode == "API" || mode == "API_AND_CONFIG_MAP") return {"authentication", Verdict::Ok, fmt::format("authentication mode {}: access entries count", mode), ""};
  return {"authentication", Verdict::Failed, fmt::format("authentication mode {}: access entries do not count, and nodes and people of the cluster come in by them", mode), "aws eks update-cluster-config --access-config authenticationMode=API_AND_CONFIG_MAP"};
}

Finding network_plugin(const Facts& facts) {
  const char* const check = "cni";
  const Version oldest{1, 18, 3};
  std::vector<std::string> present, unclear;
  for (const NetworkPlugin& plugin : facts.plugins) {
    const Version has = numbers_of(plugin.version);
    if (plugin.name == known[0].name) {
      if (!has.empty() && has < oldest)
        return {check, Verdict::Failed, fmt::format("{} ({}) is {}; 1.18.3 or newer is needed", plugin.name, plugin.where, plugin.version), "update it: aws eks update-addon --addon-name vpc-cni, or its chart (helm upgrade aws-vpc-cni eks/aws-vpc-cni -n kube-system)"};
      if (has.empty()) unclear.push_back(plugin.where);
    }
    present.push_back(has.empty() ? plugin.name : plugin.name + " " + plugin.version);
  }
  if (facts.other_nodes > 0 && facts.without_network.size() == static_cast<std::size_t>(facts.other_nodes))
    return {check, Verdict::Failed, fmt::format("no node has a network: {} says \"{}\"", facts.without_network.begin()->first, facts.without_network.begin()->second), present.empty() ? "install a network plug-in, e.g. Cilium (helm install cilium cilium/cilium -n kube-system), or Amazon VPC CNI 1.18.3 or newer" : fmt::format("see what {} says: kubectl -n {} logs daemonset/{}", facts.plugins.front().name, facts.plugins.front().where.substr(0, facts.plugins.front().where.find('/')), facts.plugins.front().where.substr(facts.plugins.front().where.find('/') + 1))};
  if (!unclear.empty()) return {check, Verdict::Unknown, fmt::format("the image of {} does not tell its version; Amazon VPC CNI 1.18.3 or newer is needed", some(unclear)), "see its image: kubectl -n kube-system get daemonset aws-node -o wide"};
  if (!present.empty()) return {check, Verdict::Ok, fmt::format("{}{}", fmt::join(present, ", "), facts.own_nodes > 0 ? "; nodes of Fairlead's agent bring their own network" : ""), ""};
  if (facts.other_nodes == 0 && facts.own_nodes > 0) return {check, Verdict::Ok, "all nodes are of Fairlead's agent, which brings their network", ""};
  if (const std::string* why = unknown_of(facts, check)) return {check, Verdict::Unknown, *why, "see that the server's role is that of this version: fairlead install --aws, or helm upgrade"};
  if (facts.other_ready > 0) return {check, Verdict::Unknown, fmt::format("{} of {} nodes are ready, so they have a network; by which plug-in is not recognised (Amazon VPC CNI, Cilium, Calico, flannel, kindnet are)", facts.other_ready, facts.other_nodes), "see that it honours NetworkPolicy (docs/network.md)"};
  if (facts.other_nodes > 0) return {check, Verdict::Unknown, "no node is ready, and no network plug-in is recognised", "kubectl describe nodes"};
  return {check, Verdict::Unknown, "there is no node yet, and no network plug-in", "machines of Fairlead's agent bring their own network; for others install one first"};
}

// What is wrong with the subnets of these that the site knows; `unknown` gets the others.
std::vector<std::string> subnets_that(const Facts& facts, const Asked& asked, const std::function<bool(const Network&)>& wrong) {
  std::vector<std::string> out;
  if (facts.networks)
    for (const std::string& subnet : asked.subnets)
      if (const auto found = facts.networks->find(subnet); found != facts.networks->end() && found->second && wrong(*found->second)) out.push_back(subnet);
  return out;
}

Finding subnets(const Facts& facts, const Asked& asked) {
  const char* const check = "subnets";
  const std::string where = fmt::format("ConfigMap {} of the server's namespace", api::identities::networks_name);
  if (asked.subnets.empty()) return {check, Verdict::Unknown, "no subnets are named", "VpcConfig of the request names them; fairlead cluster preflight --subnet ID"};
  if (const std::string* why = unknown_of(facts, check)) return {check, Verdict::Unknown, *why, "see that the server's role is that of this version: fairlead install --aws, or helm upgrade"};
  // Machines have the networks that they are plugged into: a subnet's name moves nothing here, so that one of which nothing is known does no harm.
  if (!facts.networks) return {check, Verdict::Unknown, fmt::format("whether {} is private is not known: this site says nothing of its networks", some(asked.subnets)), fmt::format("say it in {}: {}: \"private 10.0.0.0/16\"", where, asked.subnets.front())};
  std::vector<std::string> absent, unreadable;
  std::string why;
  for (const std::string& subnet : asked.subnets) {
    const auto found = facts.networks->find(subnet);
    if (found == facts.networks->end()) absent.push_back(subnet);
    else if (!found->second) unreadable.push_back(subnet), why = found->second.error().message;
  }
  if (!absent.empty()) return {check, Verdict::Failed, fmt::format("{} has no {}", where, some(absent)), "name subnets that are there, or add them"};
  if (!unreadable.empty()) return {check, Verdict::Failed, fmt::format("{}, {}: {}", where, some(unreadable), why), "put it right"};
  if (const auto open = subnets_that(facts, asked, [](const Network& one) { return !one.is_private; }); !open.empty()) return {check, Verdict::Failed, fmt::format("{} {} public; nodes belong into private subnets", some(open), open.size() == 1 ? "is" : "are"), "name private ones in VpcConfig"};
  return {check, Verdict::Ok, fmt::format("{} {} private", some(asked.subnets), asked.subnets.size() == 1 ? "is" : "are"), ""};
}

Finding families(const Facts& facts, const Asked& asked) {
  const char* const check = "ipv6";
  if (const std::string* why = unknown_of(facts, check)) return {check, Verdict::Unknown, *why, "kubectl get service kubernetes -o jsonpath={.spec.ipFamilies}"};
  const auto without4 = subnets_that(facts, asked, [](const Network& one) { return one.ipv6 && !one.ipv4; });
  if (!facts.ipv6) {
    if (!without4.empty()) return {check, Verdict::Failed, fmt::format("{} has IPv6 alone; Services of this Kubernetes have IPv4", some(without4)), "name subnets with IPv4, or make the Kubernetes cluster for IPv6"};
    return {check, Verdict::Ok, "IPv4: nothing asks for IPv6", ""};
  }
  const auto without6 = subnets_that(facts, asked, [](const Network& one) { return one.ipv4 && !one.ipv6; });
  const auto unsaid = subnets_that(facts, asked, [](const Network& one) { return !one.ipv4 && !one.ipv6; });
  const bool needed = facts.ipv6_first || !facts.ipv4;
  const Verdict lacking = needed ? Verdict::Failed : Verdict::Warning;
  const char* const meaning = needed ? "Services have IPv6" : "Services may have both families; those of IPv6 do not reach everything";
  if (!without6.empty()) return {check, lacking, fmt::format("{} has no IPv6. {}", some(without6), meaning), "name subnets with a range of IPv6, or make the Kubernetes cluster for IPv4"};
  if (!facts.nodes_without_ipv6.empty()) return {check, lacking, fmt::format("nodes without an address of IPv6: {}. {}", some(facts.nodes_without_ipv6), meaning), "give these machines addresses of IPv6, or make the Kubernetes cluster for IPv4"};
  if (!facts.networks || !unsaid.empty() || asked.subnets.empty()) return {check, Verdict::Unknown, fmt::format("cluster and nodes have IPv6; whether the subnets do is not said ({})", unsaid.empty() ? "nothing is known of them" : some(unsaid)), fmt::format("give their ranges in ConfigMap {} of the server's namespace", api::identities::networks_name)};
  return {check, Verdict::Ok, fmt::format("cluster, nodes and subnets have IPv6{}", facts.ipv4 ? ", and IPv4" : ""), ""};
}

Finding roles(const Asked& asked) {
  const char* const check = "roles";
  std::vector<std::string> absent;
  std::map<std::string, std::pair<std::string, std::string>> users;  // by role: a group of plain nodes, one of accelerated nodes
  for (const Role& role : asked.nodes) {
    if (!role.found) absent.push_back(role.arn);
    (role.accelerated ? users[role.arn].second : users[role.arn].first) = role.of;
  }
  if (asked.autoscaler && !asked.autoscaler->found) absent.push_back(asked.autoscaler->arn);
  if (!absent.empty()) return {check, Verdict::Failed, fmt::format("role {} not found", some(absent)), "make it by CreateRole of IAM, or fairlead identity create --role (docs/identities.md)"};
  if (asked.autoscaler)
    if (const auto same = users.find(asked.autoscaler->arn); same != users.end())
      return {check, Verdict::Failed, fmt::format("ClusterRole is the ExecutionRole of {}: its nodes could do what the cluster's own controllers may", same->second.first.empty() ? same->second.second : same->second.first), "give ClusterRole a role of its own"};
  for (const auto& [arn, of] : users)
    if (!of.first.empty() && !of.second.empty()) return {check, Verdict::Warning, fmt::format("{} (plain nodes) and {} (accelerated ones) share role {}, and its rights", of.first, of.second, arn), "give each kind of node a role of its own"};
  if (asked.nodes.empty()) return {check, Verdict::Unknown, "no roles are named", "ExecutionRole of each group names one; fairlead cluster preflight --role NAME"};
  return {check, Verdict::Ok, "they are there, and one for each kind of node", ""};
}

}  // namespace

Result<Network> read_network(std::string_view text) {
  Network out;
  bool said = false;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (word == "private" || word == "public") {
      if (said) return fail(Code::Invalid, "private or public, once, is expected");
      said = true;
      out.is_private = word == "private";
    } else if (const auto slash = word.find('/'); slash != word.npos && slash > 0 && slash + 1 < word.size() && word.find_first_not_of("0123456789abcdefABCDEF:./") == word.npos) {
      (word.find(':') == word.npos ? out.ipv4 : out.ipv6) = true;
    } else {
      return fail(Code::Invalid, fmt::format("\"{}\" is neither private, public nor a range such as 10.0.0.0/16", word.substr(0, 60)));
    }
  }
  if (!said) return fail(Code::Invalid, "private or public is expected, and its ranges: \"private 10.0.0.0/16\"");
  return out;
}

std::optional<NetworkPlugin> plugin_of(const Json& daemon_set) {
  const std::string& called = kube::name_of(daemon_set);
  for (const Known& one : known) {
    if (called != one.daemon_set) continue;
    for (const Json& container : daemon_set["spec"]["template"]["spec"]["containers"].items()) {
      const std::string& image = container["image"].string();
      if (container["name"].string() != one.container && image.find(one.image) == std::string::npos) continue;
      std::string version = version_of_image(image);
      // Where the image is named by its digest.
      if (version.empty()) version = version_of_image("label:" + daemon_set["metadata"]["labels"]["app.kubernetes.io/version"].string());
      return NetworkPlugin{.name = one.name, .where = kube::space_of(daemon_set) + "/" + called, .version = std::move(version)};
    }
  }
  return std::nullopt;
}

std::string_view text(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok: return "ok";
    case Verdict::Warning: return "warning";
    case Verdict::Unknown: return "unknown";
    case Verdict::Failed: return "failed";
  }
  return "?";
}

std::vector<Finding> check(const Facts& facts, const Asked& asked) { return {charts(facts), version(facts), authentication(facts), network_plugin(facts), subnets(facts, asked), families(facts, asked), roles(asked)}; }

std::string objections(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& one : findings)
    if (one.verdict == Verdict::Failed) out += fmt::format("{}{}: {}; {}", out.empty() ? "" : ". ", one.check, one.what, one.advice);
  return out;
}

Json to_json(const std::vector<Finding>& findings) {
  Json all = Json::array();
  for (const Finding& one : findings) {
    Json told = Json::object({{"check", one.check}, {"verdict", std::string(text(one.verdict))}, {"message", one.what}});
    if (!one.advice.empty()) told.set("advice", one.advice);
    all.push(std::move(told));
  }
  return Json::object({{"ready", objections(findings).empty()}, {"findings", std::move(all)}});
}

}  // namespace fairlead::orchestrator
