// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/upgrade.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr std::size_t kMostNamed = 5;

bool converts(Part part) { return part == Part::Records || part == Part::Heads; }
// Without pods of others than these, nobody needs to know what they were.
bool leaves_something(const UpgradeKind& kind) { return converts(kind.part) || !kind.pods.empty(); }

// Most of its pods run it; equal numbers: the first by name.
std::string image_of_most(const UpgradeKind& kind) {
  std::map<std::string, int> counts;
  for (const UpgradePod& pod : kind.pods) ++counts[pod.image];
  std::string best;
  int most = 0;
  for (const auto& [image, count] : counts)
    if (count > most) best = image, most = count;
  return best;
}

std::string names(const std::vector<std::string>& all) {
  std::vector<std::string> some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kMostNamed)));
  if (all.size() > some.size()) some.push_back(fmt::format("{} more", all.size() - some.size()));
  return fmt::format("{}", fmt::join(some, ", "));
}

class Planner {
 public:
  explicit Planner(const UpgradeInput& in) : in_(in), memory_(in.memory.is_object() ? in.memory : Json::object()) {}

  UpgradePlan run() {
    std::set<std::string> images;
    bool changing = false;
    for (const UpgradeKind& kind : in_.kinds) {
      const std::string& remembered = memory_["images"][kind.name].string();
      const std::string seen = !remembered.empty() ? remembered : image_of_most(kind);
      std::string& image = out_.images[kind.name];
      image = seen.empty() ? kind.wanted : seen;
      images.insert(kind.wanted);
      if (leaves_something(kind)) images.insert(image);
      changing = changing || image != kind.wanted;
      for (const UpgradePod& pod : kind.pods) {
        images.insert(pod.image);
        changing = changing || pod.image != kind.wanted;
      }
    }
    // What others run is asked when it counts.
    for (const UpgradePeer& peer : in_.peers)
      if (changing && converts_here(peer)) images.insert(peer.image);
    if (changing) decide(images);
    else if (memory_["inProgress"].boolean()) done();
    if (in_.heads_wanted) learn_of_heads();
    return finish(images);
  }

 private:
  void decide(const std::set<std::string>& images) {
    if (!learn(images)) return;
    if (same_versions()) {
      for (const UpgradeKind& kind : in_.kinds) out_.images[kind.name] = kind.wanted;
      if (memory_["inProgress"].boolean()) done();
      return;
    }
    start();
    // Where nothing is remembered, the latest that was at the state or the records is what they were written by.
    for (const UpgradeKind& kind : in_.kinds)
      if (converts(kind.part) && memory_["images"][kind.name].string().empty())
        for (const UpgradePod& pod : kind.pods)
          if (of(out_.images[kind.name]) < of(pod.image)) out_.images[kind.name] = pod.image;
    for (const UpgradeKind& kind : in_.kinds) {
      std::string& image = out_.images[kind.name];
      if (image == kind.wanted) continue;
      const std::string why = refusal(kind, now_of(kind), of(kind.wanted));
      if (!why.empty()) {
        refused_.push_back(fmt::format("{}: {}", kind.name, why));
        continue;
      }
      if (const std::string wait = wait_of(kind, now_of(kind), of(kind.wanted)); !wait.empty()) {
        waits_.push_back(fmt::format("{} ({}) waits: {}", kind.name, now_of(kind).text(), wait));
        continue;
      }
      image = kind.wanted;
    }
    for (const UpgradeKind& kind : in_.kinds) {
      std::vector<std::string> old;
      for (const UpgradePod& pod : kind.pods)
        if (pod.image != out_.images[kind.name] && of(pod.image) != of(out_.images[kind.name])) old.push_back(pod.name);
      if (!old.empty()) renewing_.push_back(fmt::format("{} to {}: {} still {} {}", kind.name, of(out_.images[kind.name]).text(), names(old), old.size() == 1 ? "runs" : "run", "an earlier image"));
    }
    if (!refused_.empty()) return say("False", "Refused", fmt::format("{}; what runs goes on as it is", fmt::join(refused_, "; ")));
    std::vector<std::string> all = renewing_;
    all.insert(all.end(), waits_.begin(), waits_.end());
    if (all.empty()) return done();
    say("False", waits_.empty() || !renewing_.empty() ? "InProgress" : "Waiting", fmt::format("{}", fmt::join(all, "; ")));
  }

  // Is that kind of this cluster to change which the other cluster speaks with?
  bool converts_here(const UpgradePeer& peer) const {
    return std::any_of(in_.kinds.begin(), in_.kinds.end(), [&](const UpgradeKind& kind) {
      return kind.part != peer.part && converts(kind.part) &&
             (out_.images.at(kind.name) != kind.wanted || std::any_of(kind.pods.begin(), kind.pods.end(), [&](const UpgradePod& pod) { return pod.image != kind.wanted; }));
    });
  }

  // Does every kind stay at its version?
  bool same_versions() const {
    for (const UpgradeKind& kind : in_.kinds) {
      if (now_of(kind) != of(kind.wanted)) return false;
      for (const UpgradePod& pod : kind.pods)
        if (of(pod.image) != of(kind.wanted)) return false;
    }
    return true;
  }

  // Every image's version; false: not all are known yet, and everything stays.
  bool learn(const std::set<std::string>& images) {
    std::vector<std::string> troubles;
    for (const std::string& image : images) {
      std::optional<Version> version = read_version(memory_["versions"][image].string());
      const auto answer = in_.answers.find(image);
      if (!version && answer != in_.answers.end()) {
        version = read_version(answer->second);
        if (!version) troubles.push_back(fmt::format("the image {} does not tell its version of Slurm: {}", image, answer->second));
      }
      if (version) versions_[image] = *version;
      else out_.ask.push_back(image);
    }
    if (out_.ask.empty()) return true;
    start();
    if (!troubles.empty()) say("Unknown", "VersionUnknown", fmt::format("{}; what runs goes on as it is", fmt::join(troubles, "; ")));
    else say("Unknown", "Asking", fmt::format("the version of Slurm in {} is asked; what runs goes on as it is", names(out_.ask)));
    return false;
  }

  // Nothing waits for it.
  void learn_of_heads() {
    for (const UpgradeKind& kind : in_.kinds) {
      const std::string& image = out_.images[kind.name];
      if (kind.part != Part::Heads || versions_.contains(image) || read_version(memory_["versions"][image].string())) continue;
      const auto answer = in_.answers.find(image);
      if (const auto version = answer == in_.answers.end() ? std::nullopt : read_version(answer->second)) versions_[image] = *version;
      else if (std::find(out_.ask.begin(), out_.ask.end(), image) == out_.ask.end()) out_.ask.push_back(image);
    }
  }

  const Version& of(const std::string& image) const { return versions_.at(image); }
  const Version& now_of(const UpgradeKind& kind) const {
    const auto found = versions_.find(out_.images.at(kind.name));
    return found != versions_.end() ? found->second : of(kind.wanted);
  }

  // Never, with this resource. Empty: it may be, sooner or later.
  std::string refusal(const UpgradeKind& kind, const Version& from, const Version& to) const {
    for (const Version& one : {from, to})
      if (!known(one) && !from.same_release(to)) return fmt::format("release {} is not known to this version of Fairlead, whose newest is {}", one.release(), newest_known_release());
    if (converts(kind.part) && to.earlier_release(from))
      return fmt::format("{} cannot read what {} has written; there is no way back but a backup. Name an image of {} again", to.release(), from.release(), from.release());
    if (converts(kind.part) && !accepts(to, from)) return fmt::format("{} does not read what {} has written; go by {}", to.release(), from.release(), fmt::join(way(from, to), ", then "));
    for (const UpgradePeer& peer : in_.peers) {
      if (peer.part == kind.part || !converts(kind.part) || from.same_release(to) || !versions_.contains(peer.image)) continue;
      const Version& theirs = of(peer.image);
      if (peer.part == Part::Records && theirs.earlier_release(to)) return fmt::format("{} is {}, and takes no records of {}: that cluster is upgraded first", peer.name, theirs.release(), to.release());
      if (peer.part == Part::Records && !accepts(theirs, to)) return fmt::format("{} is {} and does not understand {}", peer.name, theirs.release(), to.release());
      if (peer.part == Part::Heads && !accepts(to, theirs)) return fmt::format("{} does not understand {} of {}, which keeps its records here: that cluster is upgraded first, to a release in between", to.release(), theirs.release(), peer.name);
    }
    // What the resource asks for in the end must fit together.
    for (const UpgradeKind& other : in_.kinds) {
      const Version& target = of(other.wanted);
      if (other.part < kind.part && target.earlier_release(to))
        return fmt::format("it would be {} and {} {}: name an image of {} or later for {}, too", to.release(), other.name, target.release(), to.release(), other.name);
      if (other.part < kind.part && !speaks(other.part, kind.part, target, to)) return fmt::format("{} {} does not understand {}", other.name, target.release(), to.release());
      if (other.part > kind.part && speaks_at_all(kind.part, other.part) && !speaks(kind.part, other.part, to, target) && !to.earlier_release(target))
        return fmt::format("{} of {} does not understand {} of {}: name a later image for {}, too", kind.name, to.release(), other.name, target.release(), other.name);
    }
    return "";
  }

  // Records are spoken to by heads, and by commands on login nodes, workers and the exporter (sacct), and slurmrestd; heads by all behind them.
  static bool speaks_at_all(Part newer, Part older) { return newer < older && (newer == Part::Records || newer == Part::Heads); }
  static bool speaks(Part newer, Part older, const Version& to, const Version& from) { return !speaks_at_all(newer, older) || accepts(to, from); }

  // Not yet. Empty: now.
  std::string wait_of(const UpgradeKind& kind, const Version& from, const Version& to) const {
    for (const UpgradeKind& other : in_.kinds) {
      if (other.part == kind.part || !(speaks_at_all(other.part, kind.part) || speaks_at_all(kind.part, other.part))) continue;
      std::vector<std::string> unfit;
      const auto fits = [&](const Version& theirs) { return other.part < kind.part ? accepts(theirs, to) : accepts(to, theirs); };
      for (const UpgradePod& pod : other.pods)
        if (!fits(of(pod.image))) unfit.push_back(fmt::format("{} ({})", pod.name, of(pod.image).text()));
      // Those that are not there now come with the image in force.
      if (unfit.empty() && !fits(now_of(other))) unfit.push_back(fmt::format("{} ({})", other.name, now_of(other).text()));
      if (!unfit.empty()) return fmt::format("{} {} first renewed", names(unfit), unfit.size() == 1 ? "has to be" : "have to be");
      // Kinds before it are done altogether, ready and of the version that was asked for: one thing at a time.
      if (other.part > kind.part) continue;
      if (now_of(other) != of(other.wanted)) return fmt::format("{} comes first", other.name);
      for (const UpgradePod& pod : other.pods)
        if (of(pod.image) != of(other.wanted)) return fmt::format("{} is renewed first", pod.name);
        else if (!pod.ready) return fmt::format("{} is not ready", pod.name);
    }
    if (from.same_release(to) || !converts(kind.part)) return "";
    for (const UpgradePeer& peer : in_.peers)
      if (peer.part == Part::Records && kind.part == Part::Heads && !peer.ready) return fmt::format("{} is not available", peer.name);
    if (in_.backup == Backup::Stale && !in_.without_backup) return "the last backup of the records is older than a day or failed: see condition BackupFresh (annotation fairlead.dev/upgrade-without-backup: \"true\" goes on without one)";
    if (kind.part == Part::Heads)
      for (const UpgradePod& pod : kind.pods)
        if (!pod.ready) return fmt::format("{} is not ready", pod.name);
    return "";
  }

  void start() {
    if (!memory_["inProgress"].boolean()) memory_.set("inProgress", true).set("since", print_time(in_.now));
  }
  void done() {
    memory_.erase("inProgress");
    memory_.erase("since");
    for (const UpgradeKind& kind : in_.kinds)
      if (kind.part == Part::Heads) {
        const auto found = versions_.find(out_.images[kind.name]);
        const std::string version = found != versions_.end() ? found->second.text() : memory_["versions"][out_.images[kind.name]].string();
        say("True", "Done", version.empty() ? "every pod runs the image that the resource names" : fmt::format("every pod runs the version of Slurm that the resource names: slurmctld {}", version));
      }
  }
  void say(const char* status, const char* reason, std::string message) { out_.condition = {"Upgraded", status, reason, std::move(message)}; }

  UpgradePlan finish(const std::set<std::string>& images) {
    Json in_force = Json::object(), versions = Json::object();
    // Accounting that is switched off for a while leaves its records.
    for (const auto& [kind, image] : memory_["images"].members())
      if (kind == kRecordsKind) in_force.set(kind, image);
    // An image that nobody has run yet is not in force: one with a slip in its name gives way to any other.
    for (const UpgradeKind& kind : in_.kinds)
      if (!kind.pods.empty() || memory_["images"][kind.name].is_string()) in_force.set(kind.name, out_.images[kind.name]);
    for (const auto& [image, version] : versions_) versions.set(image, version.text());
    // Of images that nobody names any more nothing is kept; of those that are named, what is known.
    for (const auto& [image, version] : memory_["versions"].members())
      if (images.contains(image) && !versions_.contains(image)) versions.set(image, version);
    memory_.set("images", std::move(in_force));
    if (versions.members().empty()) memory_.erase("versions");
    else memory_.set("versions", std::move(versions));
    out_.memory = std::move(memory_);
    return std::move(out_);
  }

  const UpgradeInput& in_;
  Json memory_;
  std::map<std::string, Version> versions_;
  std::vector<std::string> refused_, waits_, renewing_;
  UpgradePlan out_;
};

}  // namespace

UpgradePlan plan_upgrade(const UpgradeInput& in) { return Planner(in).run(); }

}  // namespace fairlead::slurm
