// SPDX-License-Identifier: Apache-2.0
// For tests: a pool in memory. Each step is whole or not at all, but for a part, of which there may be half; and each can be where its process dies.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "volumes/pool.h"

namespace fairlead::volumes {

class FakePool final : public Pool {
 public:
  struct File {
    std::string content;              // stands for all of its bytes
    std::int64_t size = 0;
    bool ours = true;
    std::string key;                  // by which it is encrypted
  };
  std::map<std::string, File> files;  // by name: "a.volume"
  std::map<std::string, std::pair<std::string, DeviceSeen>> devices;  // by name: the volume that it shows
  std::map<std::string, EngineSeen> engines;                          // by volume
  std::int64_t size = 1'000'000 * 4096LL;
  std::function<bool(bool after)> dies;  // asked before and after each step
  std::function<bool()> full;            // asked where room is needed
  std::int64_t version = 1;              // of every key
  bool no_key = false;                   // keys are disabled
  bool distributed = false;
  struct Allowed {
    bool read_only = false;
    std::map<std::string, std::int64_t> who;  // generations, by host
  };
  std::map<std::string, Allowed> allowed;      // by volume: engines on further machines that may take it
  std::set<std::string> reading;               // of the engines here, those that only read
  std::function<void(const std::string& id, std::int64_t generation)> on_shut_out;      // of an engine on a further machine
  std::function<bool(const std::string& id, bool read_only)> held_elsewhere;            // by one, so that it cannot be had
  int next_device = 0;

  Result<std::string> id() override { return "00000000-0000-4000-8000-000000000001"; }
  bool is_distributed() override { return distributed; }
  Result<Room> room() override { return Room{size, size}; }
  Result<Sight> look(const std::string& id) override {
    Sight out;
    for (const auto& [end, into] : {std::pair(".volume", &out.volume), {".snapshot", &out.snapshot}, {".part", &out.part}})
      if (const auto file = files.find(id + end); file != files.end()) *into = FileSeen{.size = file->second.size, .ours = file->second.ours, .allocated = 4096, .extents = 1, .born = 0};
    for (const auto& [name, shown] : devices)
      if (shown.first == id) out.devices.push_back(shown.second);
    if (const auto engine = engines.find(id); engine != engines.end()) out.engine = engine->second;
    return out;
  }
  std::optional<bool> is_used(const std::string& device) override {
    const auto found = devices.find(device);
    return found == devices.end() ? std::nullopt : found->second.second.used;
  }
  Result<std::vector<std::string>> ids() override {
    std::vector<std::string> out;
    for (const auto& [name, file] : files)
      if (const std::string id = name.substr(0, name.find('.')); out.empty() || out.back() != id) out.push_back(id);
    return out;
  }
  Result<void> can_encrypt() override { return {}; }
  Result<std::int64_t> key_version(const std::string&) override { return version; }
  Result<std::int64_t> rewrap(const std::string&, bool) override { return no_key ? Result<std::int64_t>(fail(Code::Forbidden, "the key is disabled")) : Result<std::int64_t>(version); }
  Result<void> make_part(const std::string& id, std::int64_t bytes, const std::string& key) override {
    return step([&]() -> Result<void> {
      if (full && full()) return fail(Code::Exhausted, "no space left on device");
      if (files.contains(id + ".part")) return fail(Code::Exists, "it is there");
      if (!key.empty() && no_key) return fail(Code::Forbidden, "the key is disabled");
      files[id + ".part"] = {"", bytes, true, key};
      return {};
    }, [&] { half(id); });
  }
  Result<void> copy_part(const std::string& id, const std::string& source, bool of_snapshot, std::int64_t bytes) override {
    return step([&]() -> Result<void> {
      const auto from = files.find(source + (of_snapshot ? ".snapshot" : ".volume"));
      if (from == files.end()) return fail(Code::NotFound, source + " is not there");
      if (full && full()) return fail(Code::Exhausted, "no space left on device");
      if (files.contains(id + ".part")) return fail(Code::Exists, "it is there");
      files[id + ".part"] = {from->second.content, bytes, true, from->second.key};
      return {};
    }, [&] { half(id); });
  }
  Result<void> drop_part(const std::string& id) override { return step([&]() -> Result<void> { return files.erase(id + ".part"), Result<void>(); }); }
  Result<void> publish(const std::string& id, bool snapshot) override {
    return step([&]() -> Result<void> {
      const std::string name = id + (snapshot ? ".snapshot" : ".volume");
      const auto part = files.find(id + ".part");
      if (part == files.end() || files.contains(name)) return fail(Code::Internal, "it cannot be named " + name);
      files[name] = part->second;
      files.erase(id + ".part");
      return {};
    });
  }
  Result<void> remove(const std::string& id, bool snapshot) override { return step([&]() -> Result<void> { return files.erase(id + (snapshot ? ".snapshot" : ".volume")), Result<void>(); }); }
  Result<void> grow_file(const std::string& id, std::int64_t to) override {
    return step([&]() -> Result<void> {
      File& file = files.at(id + ".volume");
      if (file.size > to) return fail(Code::Internal, "it does not shrink");
      file.size = to;
      return {};
    });
  }
  Result<void> grow_device(const std::string& id, const std::string& device) override {
    return step([&]() -> Result<void> { return devices.at(device).second.size = engines.contains(id) ? engines.at(id).size : files.at(id + ".volume").size, Result<void>(); });
  }
  bool has_engines() override { return true; }
  Result<void> start_engine(const std::string& id, bool read_only, const blocks::DiskLimits& limits) override {
    return step([&]() -> Result<void> {
      if (engines.contains(id) || (held_elsewhere && held_elsewhere(id, read_only))) return fail(Code::Conflict, "another serves it");
      if (!files.at(id + ".volume").key.empty() && no_key) return fail(Code::Forbidden, "the key is disabled");
      engines[id] = {.size = files.at(id + ".volume").size, .limits = limits, .failed = false};
      if (read_only) reading.insert(id);
      else reading.erase(id);
      return {};
    });
  }
  Result<void> stop_engine(const std::string& id) override {
    return step([&]() -> Result<void> {
      for (const auto& [name, shown] : devices)
        if (shown.first == id) return fail(Code::Conflict, "the device is there still");
      engines.erase(id);
      return {};
    });
  }
  Result<void> grow_engine(const std::string& id) override {
    return step([&]() -> Result<void> { return engines.at(id).size = files.at(id + ".volume").size, Result<void>(); });
  }
  Result<void> limit(const std::string& id, const blocks::DiskLimits& limits) override {
    return step([&]() -> Result<void> { return engines.at(id).limits = limits, Result<void>(); });
  }
  Result<void> attach(const std::string& id, bool, bool managed) override {
    return step([&]() -> Result<void> {
      if (managed && !engines.contains(id)) return fail(Code::Internal, "nothing serves it");
      const std::string name = "/dev/loop" + std::to_string(next_device++);
      devices[name] = {id, {.name = name, .size = files.at(id + ".volume").size, .used = false}};
      return {};
    });
  }
  Result<void> allow(const std::string& id, const std::string& host, std::int64_t generation, bool read_only) override {
    return step([&]() -> Result<void> {
      Allowed& now = allowed[id];
      if (!read_only || !now.read_only) now = {.read_only = read_only, .who = {}};
      now.who[host] = generation;
      return {};
    });
  }
  Result<void> withdraw(const std::string& id, std::int64_t generation) override {
    return step([&]() -> Result<void> { return forbid(id, generation), Result<void>(); });
  }
  Result<void> shut_out(const std::string& id, std::int64_t generation, bool) override {
    return step([&]() -> Result<void> {
      forbid(id, generation);
      if (on_shut_out) on_shut_out(id, generation);
      return {};
    });
  }
  Result<void> ended(const std::string&, std::int64_t) override {
    return step([&]() -> Result<void> { return {}; });
  }
  Result<void> detach(const std::string&, const std::string& device) override { return step([&]() -> Result<void> { return devices.erase(device), Result<void>(); }); }

 private:
  void forbid(const std::string& id, std::int64_t generation) {
    const auto found = allowed.find(id);
    if (found == allowed.end()) return;
    std::erase_if(found->second.who, [&](const auto& one) { return one.second == generation; });
    if (found->second.who.empty()) allowed.erase(found);
  }
  void half(const std::string& id) { files.try_emplace(id + ".part", File{"half of it", 4096, true, ""}); }
  template <class Work>
  Result<void> step(Work work, const std::function<void()>& half_done = {}) {
    if (dies && dies(false)) {
      if (half_done) half_done();
      return fail(Code::Unavailable, "died");
    }
    auto done = work();
    if (dies && dies(true)) return fail(Code::Unavailable, "died");
    return done;
  }
};

}  // namespace fairlead::volumes
