// SPDX-License-Identifier: Apache-2.0
#include "volumes/rbd_machine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "volumes/device_links.h"
#include "volumes/luks.h"
#include "volumes/plan/ledger.h"
#include "volumes/rbd_engine.h"
#include "volumes/shown.h"

namespace fairlead::volumes {
namespace {

using namespace std::chrono_literals;

class RbdMachine final : public Machine {
 public:
  RbdMachine(CephPlace place, std::string pool_id, Keyring& keyring) : place_(std::move(place)), pool_id_(std::move(pool_id)), keyring_(keyring), shown_(pool_id_) {}

  Result<std::vector<Showing>> there() override {
    std::vector<Showing> out;
    if (!exists(shown_.run_folder())) return out;
    const auto names = list_dir(shown_.run_folder());
    if (!names) return std::unexpected(names.error());
    for (const std::string& name : *names)
      if (auto one = read_showing(name)) out.push_back(std::move(*one));
    std::sort(out.begin(), out.end());
    return out;
  }
  Result<Sight> look(const Showing& one) override {
    Sight out;
    auto devices = shown_.devices(key(one), nullptr);
    if (!devices) return std::unexpected(std::move(devices.error()));
    out.devices = std::move(*devices);
    auto engine = shown_.engine(key(one));
    if (!engine) return std::unexpected(std::move(engine.error()));
    out.engine = std::move(*engine);
    return out;
  }
  std::optional<bool> is_used(const std::string& device) override { return Shown::is_used(device); }

  Result<void> start_engine(const api::AskedVolume& asked) override {
    const Showing one{asked.id, asked.generation};
    if (!exists(place_.program) || !exists("/dev/fuse")) return fail(Code::Unavailable, fmt::format("no engine can be started here: {} and /dev/fuse are needed", place_.program));
    if (auto made = make_dirs(shown_.run_folder(), 0700); !made) return made;
    std::string secret;
    if (asked.encrypted) {
      auto opened = open_key(one);
      if (!opened) return pass(std::move(opened.error()), fmt::format("{} is encrypted", asked.id));
      secret = std::move(*opened);
    }
    auto started = start_rbd_engine({.place = place_, .pool_id = pool_id_, .id = asked.id, .generation = asked.generation, .folder = shown_.folder_of(key(one)), .name = shown_.served_as(key(one)), .read_only = asked.read_only, .limits = {.iops = asked.iops, .bytes_per_second = asked.throughput}}, std::move(secret));
    if (!started) clear(one);  // what it said is in the error
    return started;
  }
  Result<void> stop_engine(const Showing& one) override {
    const std::string lock = shown_.folder_of(one.id) + ".lock";  // as ceph/rbd_image.h has it
    if (auto done = shown_.stop_engine(key(one), Fd(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW))); !done) return done;
    clear(one);
    return {};
  }
  Result<void> grow_engine(const Showing& one) override { return shown_.grow_engine(key(one)); }
  Result<void> limit(const Showing& one, const blocks::DiskLimits& limits) override { return shown_.limit(key(one), limits); }
  Result<void> attach(const Showing& one, bool read_only) override { return shown_.attach(key(one), "", read_only); }
  Result<void> grow_device(const Showing& one, const std::string& device) override { return shown_.grow(key(one), device, nullptr); }
  Result<void> detach(const Showing& one, const std::string& device) override { return shown_.detach(key(one), device, nullptr); }

  Result<std::vector<std::string>> names(const Showing& one) override {
    auto all = device_names(one.id);
    if (!all) return std::unexpected(std::move(all.error()));
    return is_of_another(one, all->device) ? std::vector<std::string>() : std::move(all->names);
  }
  Result<void> link(const Showing& one, const std::string& name, const std::string& device) override { return link_device(name, one.id, device); }
  Result<void> unlink(const Showing& one, const std::string& name) override { return unlink_device(name, one.id, ""); }
  Result<void> unlink_all(const Showing& one) override {
    return unlink_volume(one.id, Names::Go, [&](const std::string& device) { return is_of_another(one, device); });
  }
  Result<void> cut(const Showing& one) override {
    return unlink_volume(one.id, Names::Stay, [&](const std::string& device) { return is_of_another(one, device); });
  }

 private:
  // It shows the same volume, by another attachment.
  bool is_of_another(const Showing& one, const std::string& device) const {
    const auto name = Shown::behind(device);
    const std::string end = "." + pool_id_ + ".disk";
    if (!name || !name->ends_with(end)) return false;
    const auto shown = read_showing(std::string_view(*name).substr(0, name->size() - end.size()));
    return shown && shown->id == one.id && shown->generation != one.generation;
  }
  // Folders and logs bear a generation, and would be as many as there were attachments. The volume's lock stays: who waits for it has it open.
  void clear(const Showing& one) {
    const std::string folder = shown_.folder_of(key(one));
    (void)::rmdir((folder + "/disk").c_str());
    (void)::rmdir(folder.c_str());
    (void)::unlink((folder + ".log").c_str());
  }
  static std::string key(const Showing& one) { return fmt::format("{}.{}", one.id, one.generation); }
  Result<std::string> open_key(const Showing& one) {
    Command command{.argv = {place_.program, "header"}, .environment = {}, .working_directory = {}, .before_exec = {}};
    for (std::string& word : place_.arguments()) command.argv.push_back(std::move(word));
    command.argv.insert(command.argv.end(), {"--image", one.id});
    const auto told = run_checked(std::move(command), 30s);
    if (!told) return pass(Error(told.error()), "read its header");
    const auto bytes = parse_base64(trim(*told));
    if (!bytes || bytes->size() != static_cast<std::size_t>(kLuksHeader)) return fail(Code::Internal, "its header is damaged");
    const auto file = HeaderFile::make(shown_.folder_of(key(one)) + ".header", *bytes);
    return file ? open_luks(file->path(), one.id, keyring_) : std::unexpected(file.error());
  }

  const CephPlace place_;
  const std::string pool_id_;
  Keyring& keyring_;
  const Shown shown_;
};

}  // namespace

std::optional<Showing> read_showing(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == name.npos || !is_volume_id(name.substr(0, dot))) return std::nullopt;
  Showing out{std::string(name.substr(0, dot)), 0};
  const auto read = std::from_chars(name.data() + dot + 1, name.data() + name.size(), out.generation);
  return read.ec == std::errc() && read.ptr == name.data() + name.size() && out.generation > 0 && std::to_string(out.generation) == name.substr(dot + 1) ? std::optional(std::move(out)) : std::nullopt;
}

std::unique_ptr<Machine> rbd_machine(CephPlace place, std::string pool_id, Keyring& keyring) { return std::make_unique<RbdMachine>(std::move(place), std::move(pool_id), keyring); }

}  // namespace fairlead::volumes
