// SPDX-License-Identifier: Apache-2.0
// For tests: further machines in memory, whose images are those of a FakePool. Each step is whole or not at all, and each can be where the process dies.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "volumes/fake_pool.h"
#include "volumes/machine.h"

namespace fairlead::volumes {

// As Ceph has it: who may take an image, who has it, and who is shut out.
class FakeMachine final : public Machine {
 public:
  struct World {
    explicit World(FakePool& of) : pool(of) {
      pool.on_shut_out = [this](const std::string& id, std::int64_t generation) {
        for (FakeMachine* one : machines) one->shut_out({id, generation});
      };
      pool.held_elsewhere = [this](const std::string& id, bool read_only) { return std::any_of(machines.begin(), machines.end(), [&](const FakeMachine* one) { return read_only ? one->writes(id) : one->serves(id); }); };
    }
    FakePool& pool;
    std::vector<FakeMachine*> machines;
    std::vector<std::string> wrong;  // what was never to be
  };
  FakeMachine(World& world, std::string host) : world_(world), host_(std::move(host)) { world_.machines.push_back(this); }

  std::map<Showing, EngineSeen> engines;
  std::set<Showing> reading;                                           // of the engines those that only read
  std::set<Showing> out;                                               // shut out
  std::map<std::string, std::pair<Showing, DeviceSeen>> devices;       // by name
  std::function<bool(bool after)> dies;
  std::function<void(const Showing& one)> on_start;                    // of an engine
  bool hangs = false;                                                  // an engine does not answer
  std::map<std::string, std::string> links;                            // by name: the volume; as /dev/xvdf -> fairlead/VOLUME
  std::map<std::string, std::string> ends;                             // by volume: the device; as /dev/fairlead/VOLUME -> ../loop3
  std::set<std::string> foreign;                                       // names that somebody else has
  bool serves(const std::string& id) const {
    return std::any_of(engines.begin(), engines.end(), [&](const auto& one) { return one.first.id == id && !out.contains(one.first); });
  }
  bool writes(const std::string& id) const {
    return std::any_of(engines.begin(), engines.end(), [&](const auto& one) { return one.first.id == id && !out.contains(one.first) && !reading.contains(one.first); });
  }
  void reboot() { engines.clear(), devices.clear(), out.clear(), links.clear(), ends.clear(); }
  // Each name leads to its own volume, or nowhere.
  void check_links() {
    for (const auto& [name, volume] : links) {
      if (foreign.contains(name)) world_.wrong.push_back(name + " was somebody's");
      const auto end = ends.find(volume);
      const auto device = end == ends.end() ? devices.end() : devices.find(end->second);
      if (device != devices.end() && device->second.first.id != volume) world_.wrong.push_back(name + " of " + volume + " leads to " + device->second.first.id);
    }
  }
  void shut_out(const Showing& one) {
    if (const auto engine = engines.find(one); engine != engines.end()) out.insert(one), engine->second.failed = true;
  }

  Result<std::vector<Showing>> there() override {
    std::set<Showing> all;
    for (const auto& [one, engine] : engines) all.insert(one);
    for (const auto& [name, shown] : devices) all.insert(shown.first);
    return std::vector<Showing>(all.begin(), all.end());
  }
  Result<Sight> look(const Showing& one) override {
    if (hangs) return fail(Code::Unavailable, "the engine does not answer");
    Sight seen;
    for (const auto& [name, shown] : devices)
      if (shown.first == one) seen.devices.push_back({.name = name, .size = shown.second.size, .used = std::nullopt});
    if (const auto engine = engines.find(one); engine != engines.end()) seen.engine = engine->second;
    return seen;
  }
  std::optional<bool> is_used(const std::string& device) override {
    const auto found = devices.find(device);
    return found == devices.end() ? std::nullopt : found->second.second.used;
  }
  Result<void> start_engine(const api::AskedVolume& asked) override {
    return step([&]() -> Result<void> {
      const Showing one{asked.id, asked.generation};
      const auto may = world_.pool.allowed.find(asked.id);
      if (may == world_.pool.allowed.end() || may->second.read_only != asked.read_only || !may->second.who.contains(host_) || may->second.who.at(host_) != asked.generation) return fail(Code::Conflict, "it may not");
      const bool here = world_.pool.engines.contains(asked.id) && !(asked.read_only && world_.pool.reading.contains(asked.id));
      if (here || serves(asked.id) || world_.pool.held_elsewhere(asked.id, asked.read_only)) return fail(Code::Conflict, "another serves it");
      if (on_start) on_start(one);
      engines[one] = {.size = size_of(one), .limits = {.iops = asked.iops, .bytes_per_second = asked.throughput}, .failed = false};
      out.erase(one);
      if (asked.read_only) reading.insert(one);
      else reading.erase(one);
      return {};
    });
  }
  Result<void> stop_engine(const Showing& one) override {
    return step([&]() -> Result<void> {
      for (const auto& [name, shown] : devices)
        if (shown.first == one) return fail(Code::Conflict, "the device is there still");
      engines.erase(one), out.erase(one);
      return {};
    });
  }
  Result<void> grow_engine(const Showing& one) override {
    return step([&]() -> Result<void> { return engines.at(one).size = size_of(one), Result<void>(); });
  }
  Result<void> limit(const Showing& one, const blocks::DiskLimits& limits) override {
    return step([&]() -> Result<void> { return engines.at(one).limits = limits, Result<void>(); });
  }
  Result<void> attach(const Showing& one, bool) override {
    return step([&]() -> Result<void> {
      if (!engines.contains(one)) return fail(Code::Internal, "nothing serves it");
      // As the kernel: the first that is free.
      int number = 0;
      while (devices.contains("/dev/loop" + std::to_string(number))) ++number;
      const std::string name = "/dev/loop" + std::to_string(number);
      devices[name] = {one, {.name = name, .size = engines.at(one).size, .used = false}};
      return {};
    });
  }
  Result<void> grow_device(const Showing& one, const std::string& device) override {
    return step([&]() -> Result<void> { return devices.at(device).second.size = engines.at(one).size, Result<void>(); });
  }
  Result<void> detach(const Showing& one, const std::string& device) override {
    return step([&]() -> Result<void> {
      const auto found = devices.find(device);
      if (found == devices.end()) return {};
      if (found->second.second.used.value_or(false) || found->second.first != one) world_.wrong.push_back(device + " of " + one.id + " was taken from somebody");
      devices.erase(found);
      return {};
    });
  }
  // As device_links.cpp does it, link by link.
  Result<std::vector<std::string>> names(const Showing& one) override {
    std::vector<std::string> all;
    if (!is_of_another(one))
      for (const auto& [name, volume] : links)
        if (volume == one.id) all.push_back(name);
    return all;
  }
  Result<void> link(const Showing& one, const std::string& name, const std::string& device) override {
    if (auto done = step([&]() -> Result<void> { return ends[one.id] = device, Result<void>(); }); !done) return done;
    return step([&]() -> Result<void> {
      const auto there = links.find(name);
      if (foreign.contains(name) || (there != links.end() && there->second != one.id)) return fail(Code::Exists, "there is a " + name + " on this machine already: the volume is " + device);
      links[name] = one.id;
      return {};
    });
  }
  Result<void> unlink(const Showing& one, const std::string& name) override {
    if (const auto there = links.find(name); there != links.end() && there->second == one.id)
      if (auto done = step([&]() -> Result<void> { return links.erase(name), Result<void>(); }); !done) return done;
    return std::any_of(links.begin(), links.end(), [&](const auto& link) { return link.second == one.id; }) ? Result<void>() : step([&]() -> Result<void> { return ends.erase(one.id), Result<void>(); });
  }
  Result<void> unlink_all(const Showing& one) override {
    if (is_of_another(one)) return {};
    const auto all = names(one);
    for (const std::string& name : *all)
      if (auto done = step([&]() -> Result<void> { return links.erase(name), Result<void>(); }); !done) return done;
    return ends.contains(one.id) ? step([&]() -> Result<void> { return ends.erase(one.id), Result<void>(); }) : Result<void>();
  }
  Result<void> cut(const Showing& one) override { return is_of_another(one) || !ends.contains(one.id) ? Result<void>() : step([&]() -> Result<void> { return ends.erase(one.id), Result<void>(); }); }

 private:
  bool is_of_another(const Showing& one) const {
    const auto end = ends.find(one.id);
    const auto device = end == ends.end() ? devices.end() : devices.find(end->second);
    return device != devices.end() && device->second.first.id == one.id && device->second.first.generation != one.generation;
  }
  std::int64_t size_of(const Showing& one) const {
    const auto file = world_.pool.files.find(one.id + ".volume");
    return file == world_.pool.files.end() ? 0 : file->second.size;
  }
  template <class Work>
  Result<void> step(Work work) {
    if (dies && dies(false)) return fail(Code::Unavailable, "died");
    auto done = work();
    if (dies && dies(true)) return fail(Code::Unavailable, "died");
    return done;
  }
  World& world_;
  const std::string host_;
};

}  // namespace fairlead::volumes
