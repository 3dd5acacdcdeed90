// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/rollout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "slurm/plan/accounting.h"
#include "slurm/plan/custom_config.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

// A head that starts with a changed file is there within seconds.
constexpr auto kComesBack = std::chrono::seconds(90);
// One that is made anew for accounting first waits for slurmdbd, whose database is made meanwhile.
constexpr auto kFirstMeeting = std::chrono::seconds(60);
constexpr std::size_t kToldProblems = 8;

std::string hash_of(const Json* config_map) { return config_map ? (*config_map)["metadata"]["annotations"][kConfigHash].string() : ""; }
std::string conf_of(const Json* config_map) { return config_map ? (*config_map)["data"]["slurm.conf"].string() : ""; }

std::string value_of(const std::string& conf, std::string_view key) {
  for (const ConfigEntry& entry : read_config_text(conf).entries)
    if (same_key(entry.key, key)) return entry.value;
  return "";
}

Json verdict(const std::string& hash, const std::string& image, const char* result, const char* reason, const std::string& message) {
  return Json::object({{"hash", hash}, {"image", image}, {"result", result}, {"reason", reason}, {"message", message}});
}

std::string stays(const Rollout& out) { return out.mounted.empty() ? "nothing is made before that is put right" : fmt::format("configuration {} stays in force", out.mounted); }

}  // namespace

Rollout plan_rollout(const RolloutInput& in) {
  Rollout out{.hash = config_hash(in.cluster, in.facts), .mounted = hash_of(in.mounted), .files = render_config(in.cluster, in.facts), .check = in.status["configCheck"]};
  const std::string image = in.cluster.controller.main.image;
  const std::string good = hash_of(in.good);
  const std::string& conf = out.files.at("slurm.conf");
  const auto say = [&](const char* status, const char* reason, std::string message) { out.valid = {"ConfigValid", status, reason, std::move(message)}; };
  const auto remember = [&](const char* result, const char* reason, const std::string& message) {
    out.check = verdict(out.hash, image, result, reason, message);
  };
  const auto remembered = [&] { return out.check["hash"].string() == out.hash && out.check["image"].string() == image ? out.check["result"].string() : std::string(); };

  const CustomConfig custom = read_custom_config(in.cluster, config_release(in.status, image));
  // Half of what somebody asked of accounting is not what they asked: limits would be off that were on. A new cluster comes up all the same.
  const auto unclear = in.mounted && in.cluster.accounting.enabled ? in.cluster.accounting.problems : std::vector<std::string>();
  if (!custom.problems.empty() || !unclear.empty()) {
    std::vector<std::string> told(unclear.begin(), unclear.begin() + static_cast<std::ptrdiff_t>(std::min(unclear.size(), kToldProblems)));
    for (const auto& problem : custom.problems)
      if (told.size() < kToldProblems) told.push_back(describe(problem));
    if (custom.problems.size() > told.size()) told.push_back(fmt::format("and {} more", custom.problems.size() - told.size()));
    say("False", "Refused", fmt::format("{}; {}", fmt::join(told, "; "), stays(out)));
    out.same_heads = !in.mounted || value_of(conf_of(in.mounted), "SlurmctldHost") == value_of(conf, "SlurmctldHost");
    out.needs = start_settings(conf_of(in.mounted));
    return out;
  }
  if (in.trial && in.trial->hash == out.hash) {
    if (in.trial->verdict == Verdict::Good) remember("True", "TriedOnDaemon", "slurmctld starts with it");
    else if (in.trial->verdict == Verdict::Refused) remember("False", "DaemonRefused", explain_refusal(custom, in.trial->words));
    else remember("Unknown", "NotTried", in.trial->words);
  }

  if (!in.mounted) {
    out.write = true;
    say("True", "CheckedWithoutDaemon", fmt::format("configuration {} is the first: checked without a daemon, since none runs yet", out.hash));
  } else if (out.mounted == out.hash) {
    // Did it stand the test of the daemon that serves?
    const bool applied = in.status["appliedConfigHash"].string() == out.hash;
    if (applied && remembered().empty()) out.check = {};  // of another that nobody wants any more
    const bool returns = !good.empty() && good != out.hash && value_of(conf_of(in.good), "SlurmctldHost") == value_of(conf, "SlurmctldHost");
    if (!applied && returns && !in.head_ready) {
      const Json& pending = in.status["configRollout"];
      auto since = pending["hash"].string() == out.hash ? parse_time(pending["since"].string()) : Result<Instant>(in.now);
      if (!since || *since > in.now) since = in.now;
      const std::chrono::seconds limit = start_settings(conf_of(in.good)) == start_settings(conf) ? kComesBack : kComesBack + kFirstMeeting;
      if (in.now - *since > limit && remembered() != "False")
        remember("False", "RolledBack", fmt::format("no head has been ready for {} s since it was given to them; it may also be for another reason: to try it again, set the resource back, and then to this again", limit.count()));
      out.pending = Json::object({{"hash", out.hash}, {"since", print_time(*since)}});
    }
    if (!applied && remembered() == "False" && returns) out.take_back = true;
    else out.write = true;
    if (!out.take_back) say("True", "InForce", fmt::format("configuration {} was checked and is given to every node", out.hash));
  } else if (good == out.hash || remembered() == "True") {
    out.write = true;
    say("True", "Checked", fmt::format("configuration {}: {}", out.hash, good == out.hash ? "it was in force before" : out.check["message"].string()));
  } else if (remembered() != "False") {
    // Lines of ours alone need no daemon to be believed; to wait for one could mean to wait for ever for what would bring it back.
    out.write = !in.head_ready && !in.cluster.config.any();
    out.try_it = in.head_ready && !in.trial;
    if (out.write) say("True", "CheckedWithoutDaemon", fmt::format("configuration {} holds no lines of yours: checked without a daemon, since no head is ready", out.hash));
    else
      say("Unknown", "NotTried", fmt::format("configuration {} could not be tried: {}; {}", out.hash, !in.head_ready ? "no head is ready" : in.trial ? in.trial->words : "it is tried next", stays(out)));
  }
  if (remembered() == "False" && !out.write) {
    const std::string& reason = out.check["reason"].string();
    const std::string told = reason == "RolledBack" ? place_of_refusal(custom, out.check["message"].string()) : out.check["message"].string();
    say("False", reason == "RolledBack" ? "RolledBack" : "DaemonRefused", fmt::format("{}; {}", told, out.take_back ? fmt::format("configuration {} is put back", good) : stays(out)));
    if (reason == "RolledBack") out.taken_back = told;
  }
  const std::string mounted_next = out.write ? conf : out.take_back ? conf_of(in.good) : conf_of(in.mounted);
  out.same_heads = value_of(mounted_next, "SlurmctldHost") == value_of(conf, "SlurmctldHost");
  out.needs = start_settings(mounted_next);
  if (in.good && in.mounted) {
    const RestartKeys keys = restart_keys(conf_of(in.good), conf_of(in.mounted));
    out.restart = !keys.head.empty() || !out.taken_back.empty();
    if (!keys.workers.empty()) out.workers_note = fmt::format("{} counts on each worker from its next start", fmt::join(keys.workers, ", "));
  }
  if (!in.facts.running_gres.empty())
    out.workers_note += fmt::format("{}changed GPUs or gresConfig count on {} once their pods are made anew; delete them when they are idle", out.workers_note.empty() ? "" : "; ", in.facts.running_gres.size() == 1 ? in.facts.running_gres.begin()->first : fmt::format("{} workers", in.facts.running_gres.size()));
  return out;
}

Json gone_down(const std::string& hash, const std::string& image, const std::string& words) { return verdict(hash, image, "False", "RolledBack", "slurmctld went down with it, and it was taken back: " + words); }

}  // namespace fairlead::slurm
