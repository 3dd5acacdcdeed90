// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_container.h"

#include <fmt/format.h>

#include "api/slurm_fields.h"
#include "kube/selector.h"

namespace fairlead::api {

using kube::Json;

std::map<std::string, std::string> read_resources(const Json& from, const std::string& where, std::vector<std::string>& problems) {
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : from.members()) {
    auto quantity = kube::Quantity::from_json(value);
    if (!quantity) {
      problems.push_back(fmt::format("{}.resources.{}: {}", where, name, quantity.error().message));
      continue;
    }
    out[name] = quantity->text();
  }
  return out;
}

SlurmContainer read_container(const Json& from, const std::string& where, int default_port, const std::string& default_image, std::vector<std::string>& problems) {
  SlurmContainer out;
  out.image = from["image"].string_or(default_image);
  out.port = static_cast<int>(from["port"].integer(default_port));
  if (out.port < 0 || out.port > 65535) problems.push_back(fmt::format("{}.port: {} is not a port (1-65535)", where, out.port));
  out.resources = read_resources(from["resources"], where, problems);
  read_container_extras(from, where, out, problems);
  return out;
}

std::optional<std::chrono::seconds> read_duration(std::string_view text) {
  std::int64_t total = 0;
  std::string_view units = "hms";
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    std::int64_t value = 0;
    std::size_t digits = 0;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
      if (digits == 9) return std::nullopt;
      value = value * 10 + (text[digits] - '0');
    }
    const auto unit = digits < text.size() && digits > 0 ? units.find(text[digits]) : std::string_view::npos;
    if (unit == std::string_view::npos) return std::nullopt;
    total += value * (text[digits] == 'h' ? 3600 : text[digits] == 'm' ? 60 : 1);
    units.remove_prefix(unit + 1);
    text.remove_prefix(digits + 1);
  }
  if (total > 366 * 86'400) return std::nullopt;
  return std::chrono::seconds(total);
}

}  // namespace fairlead::api
