// SPDX-License-Identifier: GPL-3.0-or-later
#include <arpa/inet.h>

#include <algorithm>

#include "base/encoding.h"
#include "rest.h"

namespace fairlead::companion {

std::string listen_addresses(const std::string& pod_ips, const std::string& port) {
  std::string out;
  for (const std::string& one : split(pod_ips, ',')) {
    const std::string address(trim(one));
    in_addr bytes{};
    if (::inet_pton(AF_INET, address.c_str(), &bytes) != 1) continue;
    out += (out.empty() ? "" : ",") + address + ":" + port;
  }
  return out;
}

std::string plugin_of(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".so")) name.resize(name.size() - 3);
  const auto kind = name.find('_');
  if (kind == std::string::npos) return name;
  std::replace(name.begin() + static_cast<std::ptrdiff_t>(kind), name.end(), '_', '.');
  name[kind] = '/';
  return name;
}

}  // namespace fairlead::companion
