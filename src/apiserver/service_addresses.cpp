// SPDX-License-Identifier: Apache-2.0
#include "apiserver/service_addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "kube/object.h"

namespace fairlead::apiserver {

using kube::Json;

Result<AddressRange> AddressRange::parse(const std::string& text) {
  AddressRange out;
  out.text_ = text;
  const std::size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  int bits = -1;
  if (slash != std::string::npos) {
    const char *first = text.data() + slash + 1, *last = text.data() + text.size();
    if (const auto read = std::from_chars(first, last, bits); read.ec != std::errc() || read.ptr != last) bits = -1;
  }
  out.six_ = address.find(':') != std::string::npos;
  const int width = out.six_ ? 128 : 32;
  const bool fine = ::inet_pton(out.six_ ? AF_INET6 : AF_INET, address.c_str(), out.base_.data()) == 1 && bits >= 0 && bits <= width - 3;
  if (!fine) return fail(Code::Invalid, fmt::format("\"{}\" is not a range of service addresses such as 10.79.0.0/16", text));
  for (int bit = bits; bit < width; ++bit)
    if ((out.base_[static_cast<std::size_t>(bit / 8)] >> (7 - bit % 8) & 1) != 0) return fail(Code::Invalid, fmt::format("\"{}\" has bits set below its mask", text));
  out.size_ = width - bits >= 16 ? 1u << 16 : 1u << (width - bits);
  return out;
}

std::string AddressRange::at(std::uint32_t offset) const {
  std::array<std::uint8_t, 16> address = base_;
  const std::size_t last = six_ ? 15 : 3;
  // The range is aligned and 16 bits wide at most, so nothing carries.
  address[last] = static_cast<std::uint8_t>(address[last] | (offset & 0xff));
  address[last - 1] = static_cast<std::uint8_t>(address[last - 1] | (offset >> 8 & 0xff));
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(six_ ? AF_INET6 : AF_INET, address.data(), text, sizeof text);
}

std::optional<std::uint32_t> AddressRange::offset_of(const std::string& address) const {
  std::array<std::uint8_t, 16> bytes{};
  if (::inet_pton(six_ ? AF_INET6 : AF_INET, address.c_str(), bytes.data()) != 1) return std::nullopt;
  const std::size_t last = six_ ? 15 : 3;
  const std::uint32_t offset = (static_cast<std::uint32_t>(bytes[last - 1]) << 8 | bytes[last]) & (size_ - 1);
  if (at(offset).empty() || offset >= size_) return std::nullopt;
  char text[INET6_ADDRSTRLEN];
  const std::string canonical = ::inet_ntop(six_ ? AF_INET6 : AF_INET, bytes.data(), text, sizeof text);
  return at(offset) == canonical ? std::optional(offset) : std::nullopt;
}

Result<std::vector<std::string>> parse_service_ranges(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts)
    for (std::string& one : split(text, ',')) out.push_back(std::move(one));
  const auto wrong = [&](std::string_view why) {
    return fail(Code::Invalid, fmt::format("service range: \"{}\" {}: an IPv4 range is expected and, for both families, a comma and an IPv6 one, such as 10.79.0.0/16,fd00:79::/112", fmt::join(out, ","), why));
  };
  std::vector<bool> six;
  for (const std::string& one : out) {
    auto range = AddressRange::parse(one);
    if (!range) return pass(std::move(range.error()), "service range");
    six.push_back(range->six());
  }
  if (out.size() > 2) return wrong("has more than two parts");
  if (out.size() == 2 && six[0] == six[1]) return wrong(six[0] ? "names IPv6 twice" : "names IPv4 twice");
  if (!out.empty() && six[0]) return wrong(out.size() == 2 ? "begins with IPv6" : "has no IPv4");
  return out;
}

Result<std::unique_ptr<ServiceAddresses>> ServiceAddresses::make(const std::vector<std::string>& ranges) {
  auto out = std::make_unique<ServiceAddresses>();
  for (const std::string& text : ranges) {
    auto range = AddressRange::parse(text);
    if (!range) return std::unexpected(std::move(range.error()));
    if (out->pool_of(range->six()) != nullptr) return fail(Code::Invalid, "there can be one range of service addresses of each family");
    // The lower band is left for addresses that users choose, as Kubernetes does.
    const std::uint32_t band = std::min<std::uint32_t>(std::max<std::uint32_t>(16, range->size() / 16), 256);
    out->pools_.push_back({*range, band < range->size() / 2 ? band : 1, {}});
  }
  return out;
}

const ServiceAddresses::Pool* ServiceAddresses::pool_of(bool six) const {
  for (const Pool& pool : pools_)
    if (pool.range.six() == six) return &pool;
  return nullptr;
}
ServiceAddresses::Pool* ServiceAddresses::pool_of(bool six) { return const_cast<Pool*>(std::as_const(*this).pool_of(six)); }

std::optional<std::string> ServiceAddresses::take(Pool& pool, const std::string& uid) {
  const std::uint32_t last = pool.range.size() - 1;  // of IPv4 the broadcast address
  for (std::uint32_t tried = 0; tried < last; ++tried) {
    const std::uint32_t offset = pool.next;
    pool.next = pool.next + 1 >= last ? 1 : pool.next + 1;
    if (offset == 0 || !pool.holders.emplace(offset, uid).second) continue;
    return pool.range.at(offset);
  }
  return std::nullopt;
}

namespace {

// From two families to one: an update that says so and leaves the rest as it was means the first of each, as in Kubernetes.
void give_up_second(Json& spec, const Json& before, const std::string& policy) {
  if (policy != "SingleStack" || before["ipFamilyPolicy"].string_or("SingleStack") == "SingleStack") return;
  for (const char* field : {"ipFamilies", "clusterIPs"})
    if (const Json now = std::as_const(spec)[field]; now.items().size() == 2 && now == before[field]) spec.set(field, Json::array({now.items()[0]}));
}

bool is_six(const std::string& address) { return address.find(':') != std::string::npos; }

// As Kubernetes shows a list of texts.
std::string shown(const Json& list) {
  std::string out;
  for (const Json& one : list.items()) out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", one.string());
  return "[]string{" + out + "}";
}

// The values, and that those of one family are there once; as Kubernetes says it.
void check_families(const Json& spec, const std::string& policy, FieldErrors& errors) {
  if (policy != "SingleStack" && policy != "PreferDualStack" && policy != "RequireDualStack")
    errors.unsupported_value("spec.ipFamilyPolicy", policy, {"PreferDualStack", "RequireDualStack", "SingleStack"});
  const auto &families = spec["ipFamilies"].items(), &addresses = spec["clusterIPs"].items();
  for (std::size_t i = 0; i < families.size(); ++i) {
    const std::string path = fmt::format("spec.ipFamilies[{}]", i);
    if (families[i].string() != "IPv4" && families[i].string() != "IPv6") errors.unsupported_value(path, families[i], {"IPv4", "IPv6"});
    if (std::find(families.begin(), families.begin() + static_cast<std::ptrdiff_t>(i), families[i]) != families.begin() + static_cast<std::ptrdiff_t>(i)) errors.duplicate(path, families[i]);
  }
  if (addresses.size() > 2 || (addresses.size() == 2 && is_six(addresses[0].string()) == is_six(addresses[1].string())))
    errors.invalid_as("spec.clusterIPs", shown(spec["clusterIPs"]), "may specify no more than one IP for each IP family");
  for (std::size_t i = 0; i < std::min(families.size(), addresses.size()); ++i) {
    const std::string &family = families[i].string(), &address = addresses[i].string();
    if (address == "None" || address.empty() || is_six(address) == (family == "IPv6")) continue;
    errors.invalid(fmt::format("spec.clusterIPs[{}]", i), address, fmt::format("expected an {} value as indicated by `ipFamilies[{}]`", family == "IPv6" ? "IPv6" : "IPv4", i));
  }
}

}  // namespace

void ServiceAddresses::assign(Json& service, const Json* old, FieldErrors& errors) {
  const std::scoped_lock lock(mutex_);
  Json& spec = service.child("spec");
  if (!spec.is_object() || pools_.empty()) return;
  const std::string& uid = kube::uid_of(service);
  ports_.assign(spec, old == nullptr ? nullptr : &(*old)["spec"], uid, errors);
  // An update that leaves them out keeps them.
  if (old != nullptr)
    for (const char* field : {"clusterIP", "clusterIPs"})
      if (spec[field].is_null() && (*old)["spec"].has(field)) spec.set(field, (*old)["spec"][field]);

  // Such a service is what somebody's own slices make of it: nothing of this server's.
  if (spec["clusterIP"].string() == "None" && spec["selector"].members().empty()) return;

  // What an update does not say stays as it was.
  const std::string policy = spec["ipFamilyPolicy"].string_or(old == nullptr ? "SingleStack" : (*old)["spec"]["ipFamilyPolicy"].string_or("SingleStack"));
  if (old != nullptr) give_up_second(spec, (*old)["spec"], policy);
  const std::size_t complaints = errors.texts().size();
  check_families(spec, policy, errors);
  if (old != nullptr && policy != "SingleStack" && (*old)["spec"]["ipFamilies"].items().size() == 2 && std::as_const(spec)["ipFamilies"].items().size() == 1)
    errors.invalid("spec.ipFamilyPolicy", policy, "must be 'SingleStack' to release the secondary IP family");
  std::vector<std::string> families, addresses;
  for (const Json& family : spec["ipFamilies"].items()) families.push_back(family.string());
  const bool headless = spec["clusterIP"].string() == "None";
  if (!headless)
    for (const Json& one : spec["clusterIPs"].items()) addresses.push_back(one.string());
  if (!headless && addresses.empty() && !spec["clusterIP"].string().empty()) addresses.push_back(spec["clusterIP"].string());
  const auto complained = [&] { return errors.texts().size() > complaints; };
  if (complained()) return;
  constexpr std::string_view several = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified";
  if (policy == "SingleStack" && addresses.size() == 2) errors.invalid("spec.ipFamilyPolicy", policy, fmt::format(several, "cluster IPs"));
  if (policy == "SingleStack" && families.size() == 2) errors.invalid("spec.ipFamilyPolicy", policy, fmt::format(several, "IP families"));
  // Addresses that are named tell their families.
  for (std::size_t i = families.size(); i < addresses.size(); ++i) {
    families.emplace_back(is_six(addresses[i]) ? "IPv6" : "IPv4");
    if (pool_of(is_six(addresses[i])) != nullptr) continue;
    const Json named = spec["clusterIPs"].items().empty() ? Json::array({addresses[i]}) : spec["clusterIPs"];
    errors.invalid_as(fmt::format("spec.clusterIPs[{}]", i), shown(named), fmt::format("{} is not configured on this cluster", families[i]));
  }
  if (complained()) return;
  if (policy == "RequireDualStack" && pools_.size() < 2) errors.invalid("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services");
  for (std::size_t i = 0; i < families.size(); ++i)
    if (pool_of(families[i] == "IPv6") == nullptr) errors.invalid(fmt::format("spec.ipFamilies[{}]", i), families[i], "not configured on this cluster");
  if (complained()) return;
  if (families.empty()) families.push_back(pools_[0].range.six() ? "IPv6" : "IPv4");
  if (policy != "SingleStack" && families.size() == 1 && pools_.size() == 2) families.push_back(families[0] == "IPv4" ? "IPv6" : "IPv4");
  Json list = Json::array();
  for (const std::string& family : families) list.push(family);
  spec.set("ipFamilies", std::move(list));
  spec.set("ipFamilyPolicy", policy);
  if (headless) return;
  for (std::size_t i = 0; i < families.size(); ++i) {
    Pool& pool = *pool_of(families[i] == "IPv6");
    if (i >= addresses.size()) {
      auto taken = take(pool, uid);
      if (!taken) return errors.invalid("spec.clusterIPs", Json::array(), fmt::format("failed to allocate a service address: range {} is full", pool.range.text()));
      addresses.push_back(std::move(*taken));
      continue;
    }
    std::array<unsigned char, 16> bytes{};
    if (::inet_pton(AF_INET, addresses[i].c_str(), bytes.data()) != 1 && ::inet_pton(AF_INET6, addresses[i].c_str(), bytes.data()) != 1)
      return errors.invalid(fmt::format("spec.clusterIPs[{}]", i), addresses[i], "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    const auto offset = pool.range.offset_of(addresses[i]);
    const auto refused = [&](const std::string& why) { errors.invalid_as("spec.clusterIPs", shown(Json::array({addresses[i]})), fmt::format("failed to allocate IP {}: {}", addresses[i], why)); };
    if (!offset || *offset == 0) return refused(fmt::format("the provided IP ({}) is not in the valid range. The range of valid IPs is {}", addresses[i], pool.range.text()));
    const auto [holder, fresh] = pool.holders.emplace(*offset, uid);
    if (!fresh && holder->second != uid) return refused("provided IP is already allocated");
  }
  Json all = Json::array();
  for (const std::string& address : addresses) all.push(address);
  spec.set("clusterIP", addresses[0]);
  spec.set("clusterIPs", std::move(all));
}

void ServiceAddresses::drop(const std::string& uid) {
  for (Pool& pool : pools_) std::erase_if(pool.holders, [&](const auto& entry) { return entry.second == uid; });
  ports_.drop(uid);
}

void ServiceAddresses::note(const std::string& key, const Json* service) {
  const std::scoped_lock lock(mutex_);
  const std::string uid = service == nullptr ? std::string() : kube::uid_of(*service);
  if (const auto before = uids_.find(key); before != uids_.end() && (service == nullptr || before->second != uid)) {
    drop(before->second);
    uids_.erase(before);
  }
  if (service == nullptr) return;
  uids_[key] = uid;
  ports_.note(uid, (*service)["spec"]);
  // What it has is held for it. What an update under way took besides stays held until the service goes: dropping it here could give it away twice.
  for (const Json& address : (*service)["spec"]["clusterIPs"].items()) {
    for (Pool& pool : pools_)
      if (const auto offset = pool.range.offset_of(address.string())) pool.holders.emplace(*offset, uid);
  }
}

void ServiceAddresses::forget(const std::string& uid) {
  const std::scoped_lock lock(mutex_);
  drop(uid);
}

std::size_t ServiceAddresses::held() const {
  const std::scoped_lock lock(mutex_);
  std::size_t count = 0;
  for (const Pool& pool : pools_) count += pool.holders.size();
  return count;
}

}  // namespace fairlead::apiserver
