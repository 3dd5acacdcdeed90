// SPDX-License-Identifier: Apache-2.0
#include "cli/site_files.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::cli {

using kube::Json;

SiteSettings read_settings(const std::string& state_dir) {
  SiteSettings settings;
  auto text = read_file(state_dir + "/site.json", 64_KiB);
  if (!text) return settings;
  auto json = kube::parse_json(*text);
  if (!json) return settings;
  settings.port = static_cast<unsigned short>((*json)["port"].integer(settings.port));
  settings.node_range = (*json)["nodeRange"].string_or(settings.node_range);
  settings.pod_range = (*json)["podRange"].string_or(settings.pod_range);
  settings.service_range = (*json)["serviceRange"].string_or("");
  settings.root_key_command = (*json)["rootKeyCommand"].string_or("");
  settings.old_root_key_command = (*json)["oldRootKeyCommand"].string_or("");
  settings.prometheus_url = (*json)["prometheus"]["url"].string_or("");
  settings.prometheus_ca = (*json)["prometheus"]["ca"].string_or("");
  settings.prometheus_token = (*json)["prometheus"]["tokenFile"].string_or("");
  settings.volumes = (*json)["volumes"].string_or("");
  settings.advertise_address = (*json)["advertiseAddress"].string_or("");
  return settings;
}

Result<void> write_settings(const std::string& state_dir, const SiteSettings& settings) {
  Json json = Json::object({{"port", static_cast<int>(settings.port)}, {"nodeRange", settings.node_range}, {"podRange", settings.pod_range}});
  if (!settings.service_range.empty()) json.set("serviceRange", settings.service_range);
  if (!settings.root_key_command.empty()) json.set("rootKeyCommand", settings.root_key_command);
  if (!settings.old_root_key_command.empty()) json.set("oldRootKeyCommand", settings.old_root_key_command);
  for (const auto& [name, value] : {std::pair("url", settings.prometheus_url), {"ca", settings.prometheus_ca}, {"tokenFile", settings.prometheus_token}})
    if (!value.empty()) json.child("prometheus").set(name, value);
  if (!settings.volumes.empty()) json.set("volumes", settings.volumes);
  if (!settings.advertise_address.empty()) json.set("advertiseAddress", settings.advertise_address);
  return write_file_durably(state_dir + "/site.json", kube::print_json_indented(json) + "\n", 0644);
}

std::string first_address(const std::string& range) {
  const std::string base = range.substr(0, range.find('/'));
  return base.substr(0, base.rfind('.') + 1) + "1";
}

std::vector<SiteSnapshot::Image> list_images(const std::string& state_dir) {
  std::vector<SiteSnapshot::Image> images;
  const std::string store = state_dir + "/images";
  auto names = list_dir(store);
  if (!names) return images;
  for (const auto& name : *names) {
    auto tags = name.starts_with('.') ? Result<std::vector<std::string>>(std::vector<std::string>{}) : list_dir(store + "/" + name);
    if (!tags) continue;
    for (const auto& tag : *tags) {
      auto text = read_file(store + "/" + name + "/" + tag + "/image.json", 16_MiB);
      if (!text) continue;
      auto json = kube::parse_json(*text);
      if (!json) continue;
      SiteSnapshot::Image image{.name = name + ":" + tag, .digest = (*json)["checksum"].string(), .size_bytes = (*json)["size_bytes"].integer(), .created = {}};
      const Json& created = (*json)["created"];
      if (created.is_number()) image.created = Instant(std::chrono::seconds(created.integer()));
      if (created.is_string())
        if (auto time = parse_time(created.string())) image.created = *time;
      images.push_back(std::move(image));
    }
  }
  return images;
}

std::string image_dir(const std::string& state_dir, const std::string& name) {
  const auto colon = name.find(':');
  return state_dir + "/images/" + name.substr(0, colon) + "/" + (colon == std::string::npos ? "latest" : name.substr(colon + 1));
}

std::optional<ProcessIdentity> running_server(const std::string& state_dir) {
  auto text = read_file(state_dir + "/run/server.pid", 64_KiB);
  if (!text) return std::nullopt;
  const pid_t pid = static_cast<pid_t>(std::atoi(text->c_str()));
  if (pid <= 1) return std::nullopt;
  auto command = read_file(fmt::format("/proc/{}/cmdline", pid), 1_MiB);
  if (!command || command->find("fairlead-server") == std::string::npos || command->find(state_dir) == std::string::npos) return std::nullopt;
  auto identity = identify(pid);
  return identity ? std::optional(*identity) : std::nullopt;
}

std::string find_sibling(const std::string& own_dir, const std::string& program) {
  const std::string path = own_dir + "/" + program;
  return exists(path) ? path : "";
}

std::string find_data(const std::string& own_dir, const std::string& relative) {
  std::string at = own_dir;
  for (int i = 0; i < 5 && !at.empty(); ++i) {
    if (exists(at + "/" + relative)) return at + "/" + relative;
    if (exists(at + "/share/fairlead/" + relative)) return at + "/share/fairlead/" + relative;
    at = at.substr(0, at.rfind('/'));
  }
  return "";
}

}  // namespace fairlead::cli
