// SPDX-License-Identifier: Apache-2.0
#include "api/network_interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "api/crds.h"
#include "base/encoding.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr const char* kCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: networkinterfaces.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: networkinterfaces, singular: networkinterface, kind: NetworkInterface, listKind: NetworkInterfaceList, shortNames: [eni]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Status, type: string, jsonPath: .status.phase}
    - {name: Addresses, type: string, jsonPath: ".spec.addresses[*]"}
    - {name: Instance, type: string, jsonPath: .spec.attachment.instanceId}
    - {name: Node, type: string, jsonPath: .status.node}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, priority: 1, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: An address of one of the site's networks that a node of a cluster can take up, by AttachClusterNodeNetworkInterface. Its name is its id, eni- and 8 or 17 hexadecimal digits.
        required: [spec]
        x-kubernetes-validations:
        - {rule: "self.metadata.name.matches('^eni-[0-9a-f]{8}([0-9a-f]{9})?$')", message: "metadata.name: eni- and 8 or 17 hexadecimal digits are expected"}
        properties:
          spec:
            type: object
            required: [addresses]
            properties:
              addresses:
                type: array
                minItems: 1
                maxItems: 16
                x-kubernetes-list-type: set
                description: "With the length of their network: 10.0.3.7/24, fd00::7/64."
                items: {type: string, minLength: 4, maxLength: 49}
              link: {type: string, maxLength: 15, pattern: "^[a-zA-Z0-9_.@-]+$", description: "Of the node, which it is put upon. Left out: the one whose network the first address is in, else that of the default route."}
              mac: {type: string, pattern: "^[0-9a-f][26ae](:[0-9a-f]{2}){5}$", description: "One that is administered locally. Left out: it follows from the id."}
              description: {type: string, maxLength: 1000}
              attachment:
                type: object
                description: Which instance has it; written by the API.
                required: [instanceId, attachmentId]
                properties:
                  instanceId: {type: string, pattern: "^i-[0-9a-f]{8,17}$"}
                  attachmentId: {type: string, maxLength: 28}
                  attachTime: {type: string, format: date-time}
                  by: {type: string, maxLength: 2048}
          status:
            type: object
            properties:
              phase: {type: string, description: "Available, Attaching, Attached, Failed, Detaching, Invalid"}
              node: {type: string, description: Where it is or may be.}
              message: {type: string}
              since: {type: string, format: date-time}
)yaml";

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// As the kernel prints it; empty: it is none.
std::string plain_address(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == text.npos || text.size() > 49) return "";
  const std::string base = text.substr(0, slash), length = text.substr(slash + 1);
  const bool six = base.find(':') != base.npos;
  unsigned char bytes[16];
  char out[INET6_ADDRSTRLEN];
  int bits = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bits);
  if (::inet_pton(six ? AF_INET6 : AF_INET, base.c_str(), bytes) != 1 || error != std::errc() || end != length.data() + length.size() || length.front() == '0' || bits < 1 || bits > (six ? 128 : 32)) return "";
  return fmt::format("{}/{}", ::inet_ntop(six ? AF_INET6 : AF_INET, bytes, out, sizeof out), bits);
}

bool is_link(std::string_view text) {
  return text.size() <= 15 && text.front() != '-' && text != "." && text != ".." && std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '@' || c == '-'; });
}

bool is_own_mac(std::string_view text) {
  if (text.size() != 17) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (i % 3 == 2 ? text[i] != ':' : !is_hex(text.substr(i, 1))) return false;
  return std::string_view("26ae").find(text[1]) != std::string_view::npos;  // of one card, and of no maker
}

std::string mac_of(std::string_view id) {
  const std::string digits = hex(sha256(std::string(id)));
  return fmt::format("02:{}:{}:{}:{}:{}", digits.substr(0, 2), digits.substr(2, 2), digits.substr(4, 2), digits.substr(6, 2), digits.substr(8, 2));
}

Result<InterfaceOrder> read_order(const std::string& id, const Json& from) {
  InterfaceOrder out{.id = id, .addresses = {}, .mac = from["mac"].string_or(mac_of(id)), .link = from["link"].string()};
  if (!is_interface_id(id)) return fail(Code::Invalid, fmt::format("\"{}\" is no id of a network interface: eni- and 8 or 17 hexadecimal digits", id.substr(0, 40)));
  for (const Json& one : from["addresses"].items()) {
    std::string address = plain_address(one.string());
    if (address.empty()) return fail(Code::Invalid, fmt::format("addresses: \"{}\" is no address with the length of its network, such as 10.0.3.7/24", one.string().substr(0, 60)));
    if (std::find(out.addresses.begin(), out.addresses.end(), address) != out.addresses.end()) return fail(Code::Invalid, fmt::format("addresses: {} is there twice", address));
    out.addresses.push_back(std::move(address));
  }
  if (out.addresses.empty() || out.addresses.size() > 16) return fail(Code::Invalid, "addresses: 1 to 16 are expected");
  if (!out.link.empty() && !is_link(out.link)) return fail(Code::Invalid, "link: the name of a network link is expected");
  if (!is_own_mac(out.mac)) return fail(Code::Invalid, "mac: a locally administered one is expected, such as 02:00:5e:00:53:01");
  return out;
}

}  // namespace

Json network_interface_crd() { return parse_crd(kCrd); }

bool is_interface_id(std::string_view text) { return text.starts_with("eni-") && (text.size() == 12 || text.size() == 21) && is_hex(text.substr(4)); }

std::string print_interface_orders(const InterfaceOrders& orders) {
  if (orders.empty()) return "";
  Json out = Json::array();
  for (const InterfaceOrder& one : orders) {
    Json addresses = Json::array();
    for (const std::string& address : one.addresses) addresses.push(address);
    Json entry = Json::object({{"id", one.id}, {"addresses", std::move(addresses)}, {"mac", one.mac}});
    if (!one.link.empty()) entry.set("link", one.link);
    out.push(std::move(entry));
  }
  return kube::print_json(out);
}

Result<InterfaceOrders> parse_interface_orders(std::string_view text) {
  InterfaceOrders out;
  if (text.empty()) return out;
  const auto json = kube::parse_json(text, {.depth_limit = 4});
  if (!json || !json->is_array() || json->items().size() > 1'000) return fail(Code::Invalid, fmt::format("{}: a list is expected", kInterfacesNote));
  for (const Json& one : json->items()) {
    auto order = read_order(one["id"].string(), one);
    if (!order) return fail(Code::Invalid, fmt::format("{}: {}", kInterfacesNote, order.error().message));
    out.push_back(std::move(*order));
  }
  std::sort(out.begin(), out.end(), [](const InterfaceOrder& a, const InterfaceOrder& b) { return a.id < b.id; });
  if (std::adjacent_find(out.begin(), out.end(), [](const InterfaceOrder& a, const InterfaceOrder& b) { return a.id == b.id; }) != out.end()) return fail(Code::Invalid, fmt::format("{}: one is there twice", kInterfacesNote));
  return out;
}

std::string print_interface_states(const InterfaceStates& states) {
  if (states.empty()) return "";
  Json out = Json::object();
  for (const auto& [id, why] : states) out.set(id, why);
  return kube::print_json(out);
}

Result<InterfaceStates> read_interface_states(const Json& node) {
  InterfaceStates out;
  const std::string& text = node["metadata"]["annotations"][kInterfacesStateNote].string();
  if (text.empty()) return out;
  const auto json = kube::parse_json(text, {.depth_limit = 2});
  if (!json || !json->is_object()) return fail(Code::Invalid, fmt::format("{}: an object is expected", kInterfacesStateNote));
  for (const auto& [id, why] : json->members())
    if (is_interface_id(id)) out.emplace(id, why.string().substr(0, 500));
  return out;
}

NetworkInterface read_network_interface(const Json& object) {
  NetworkInterface out;
  out.order.id = kube::name_of(object);
  const Json &spec = object["spec"], &attachment = spec["attachment"];
  if (auto order = read_order(out.order.id, spec)) out.order = std::move(*order);
  else out.problem = "spec." + order.error().message;
  out.instance = attachment["instanceId"].string(), out.attachment = attachment["attachmentId"].string();
  out.node = object["status"]["node"].string();
  return out;
}

std::string attachment_id(std::string_view interface, std::string_view instance) { return "eni-attach-" + hex(sha256(fmt::format("{}/{}", interface, instance))).substr(0, 17); }

}  // namespace fairlead::api
