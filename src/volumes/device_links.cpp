// SPDX-License-Identifier: Apache-2.0
#include "volumes/device_links.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <mutex>
#include <optional>

#include "api/volume.h"

namespace fairlead::volumes {
namespace {

constexpr const char* kFolder = "/dev/fairlead";
std::mutex one_at_a_time;  // the folder comes and goes

bool is_device(const std::string& text) { return text.starts_with("/dev/") && text.size() > 5 && text.find('/', 5) == text.npos; }
std::string path_of(const std::string& volume) { return fmt::format("{}/{}", kFolder, volume); }
// Relative: they hold in whatever /dev the nodes of this machine have.
std::string text_of(const std::string& volume) { return "fairlead/" + volume; }

// What the link says; empty text: it is no link; nothing: there is nothing.
Result<std::optional<std::string>> read_link(const std::string& name) {
  struct stat about {};
  if (::lstat(name.c_str(), &about) != 0) return errno == ENOENT ? Result<std::optional<std::string>>(std::nullopt) : fail_errno(errno, "look at " + name);
  if (!S_ISLNK(about.st_mode)) return std::optional<std::string>("");
  char text[PATH_MAX];
  const ssize_t size = ::readlink(name.c_str(), text, sizeof text);
  if (size < 0) return fail_errno(errno, "read " + name);
  return std::optional<std::string>(std::string(text, static_cast<std::size_t>(size)));
}

// In one step: whoever opens the name meanwhile finds the one or the other. `volume`: for a name that no other makes at the same time.
Result<void> point(const std::string& name, const std::string& text, const std::string& volume) {
  const std::string next = path_of("." + volume);
  if (::unlink(next.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + next);
  if (::symlink(text.c_str(), next.c_str()) != 0) return fail_errno(errno, "make " + next);
  return ::rename(next.c_str(), name.c_str()) == 0 ? Result<void>() : Result<void>(fail_errno(errno, "make " + name));
}

// What is no link is a device of the machine's own.
Result<void> remove_link(const std::string& name, const auto& is_ours) {
  const auto now = read_link(name);
  if (!now) return std::unexpected(now.error());
  if (!*now || (*now)->empty() || !is_ours(**now)) return {};
  return ::unlink(name.c_str()) == 0 || errno == ENOENT ? Result<void>() : Result<void>(fail_errno(errno, "remove " + name));
}

Result<std::vector<std::string>> all_names(const std::string& volume) {
  std::vector<std::string> out;
  for (const std::string_view begin : {"/dev/sd", "/dev/xvd"})
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      std::string name = std::string(begin) + letter;
      const auto now = read_link(name);
      if (!now) return std::unexpected(now.error());
      if (*now && **now == text_of(volume)) out.push_back(std::move(name));
    }
  return out;
}

// The device's own link, and the folder if nobody has anything there.
Result<void> remove_end(const std::string& volume) {
  (void)::unlink(path_of("." + volume).c_str());  // half made (point)
  if (auto done = remove_link(path_of(volume), [](const std::string&) { return true; }); !done) return done;
  ::rmdir(kFolder);
  return {};
}

}  // namespace

Result<void> link_device(const std::string& name, const std::string& volume, const std::string& device) {
  if (!api::is_device_name(name)) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a device: /dev/xvda to /dev/xvdz, /dev/sda to /dev/sdz", name.substr(0, 40)));
  if (!api::is_volume_name(volume) || !is_device(device)) return fail(Code::Invalid, fmt::format("volume \"{}\" as {} cannot have a name", volume.substr(0, 64), device.substr(0, 64)));
  const std::lock_guard lock(one_at_a_time);
  if (::mkdir(kFolder, 0755) != 0 && errno != EEXIST) return fail_errno(errno, fmt::format("make {}", kFolder));
  const auto shown = read_link(path_of(volume));
  if (!shown) return std::unexpected(shown.error());
  if (const std::string text = "../" + device.substr(5); !*shown || **shown != text) {
    if (*shown && (*shown)->empty()) return fail(Code::Exists, fmt::format("there is a {} on this machine already, and it is no link: the volume is {}", path_of(volume), device));
    if (auto done = point(path_of(volume), text, volume); !done) return done;
  }
  const auto now = read_link(name);
  if (!now) return std::unexpected(now.error());
  if (*now && **now == text_of(volume)) return {};
  // As it was made before names followed their volumes.
  if (*now && **now == device.substr(5)) return point(name, text_of(volume), volume);
  if (!*now && ::symlink(text_of(volume).c_str(), name.c_str()) == 0) return {};
  return !*now && errno != EEXIST ? Result<void>(fail_errno(errno, "make " + name)) : Result<void>(fail(Code::Exists, fmt::format("there is a {} on this machine already: the volume is {}", name, device)));
}

Result<void> unlink_device(const std::string& name, const std::string& volume, const std::string& device) {
  if (!api::is_device_name(name) || !api::is_volume_name(volume)) return {};
  const std::lock_guard lock(one_at_a_time);
  // The name first: while it is there, it leads to the volume or nowhere.
  if (auto done = remove_link(name, [&](const std::string& text) { return text == text_of(volume) || (is_device(device) && text == device.substr(5)); }); !done) return done;
  const auto others = all_names(volume);
  if (!others) return std::unexpected(others.error());
  return others->empty() ? remove_end(volume) : Result<void>();
}

Result<DeviceNames> device_names(const std::string& volume) {
  if (!api::is_volume_name(volume)) return DeviceNames();
  const std::lock_guard lock(one_at_a_time);
  auto names = all_names(volume);
  const auto shown = read_link(path_of(volume));
  if (!names) return std::unexpected(std::move(names.error()));
  if (!shown) return std::unexpected(shown.error());
  return DeviceNames{.names = std::move(*names), .device = *shown && (*shown)->starts_with("../") ? "/dev/" + (*shown)->substr(3) : ""};
}

Result<void> unlink_volume(const std::string& volume, Names names, const std::function<bool(const std::string& device)>& stays) {
  if (!api::is_volume_name(volume)) return {};
  const std::lock_guard lock(one_at_a_time);
  const auto shown = read_link(path_of(volume));
  if (!shown) return std::unexpected(shown.error());
  if (*shown && (*shown)->starts_with("../") && stays("/dev/" + (*shown)->substr(3))) return {};
  const auto all = names == Names::Go ? all_names(volume) : std::vector<std::string>();
  if (!all) return std::unexpected(all.error());
  for (const std::string& name : *all)
    if (auto done = remove_link(name, [&](const std::string& text) { return text == text_of(volume); }); !done) return done;
  return remove_end(volume);
}

}  // namespace fairlead::volumes
