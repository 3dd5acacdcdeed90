// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/trouble.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/encoding.h"
#include "kube/object.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

struct Known {
  std::string_view words, and_words;
  Trouble trouble;
};

constexpr Trouble kImage{"ImageWithoutSlurm", "use an image that has Slurm, munge and sshd (images/slurm builds one), and name it in the resource"};
constexpr Trouble kVolume{"VolumeFull", "free space on the volume, or make it larger; the container starts again by itself"};
constexpr Trouble kKey{"KeyOrClock", "its munge key differs from the head's, or the clocks are more than five minutes apart: compare `date` on both, and see condition KeysMatch"};

constexpr Trouble kClock{"ClocksApart", "the clocks of its machine and the head's are more than five minutes apart: let chrony (or another NTP client) set both"};

constexpr Trouble kState{"StateUnreadable", "nothing is begun without it, and nothing is written over it. Do not start slurmctld with -i, which drops what it cannot read: see that the volume answers and the file is whole, or restore a set (`fairlead slurm restore`)"};

constexpr auto kKnown = std::to_array<Known>({
    {"slurmctld would begin without", "", kState},
    {"although the state was saved before", "", kState},
    {"start with '-i' to ignore", "", kState},
    {"CLUSTER NAME MISMATCH", "", {"StateOfAnotherCluster", "the state volume belongs to a cluster of another name: give this one a volume of its own, or the resource its old name"}},
    {"No space left on device", "", kVolume},
    {"Disk quota exceeded", "", kVolume},
    {"the image has no user", "", kImage},
    {"fairlead-slurm", "no such file or directory", kImage},
    {"executable file not found", "", kImage},
    {"exec container process", "No such file or directory", kImage},  // as crun says it of a program whose loader the image lacks
    {"slurmd", "No such file or directory", kImage},
    {"slurmctld", "No such file or directory", kImage},
    {"munged", "No such file or directory", kImage},
    {"sshd", "No such file or directory", kImage},
    {"GLIBC_", "not found", {"ImageTooOld", "the image's C library is older than Debian 12's: use an image made for Debian 12 or later"}},
    {"Invalid credential", "", kKey},
    {"Expired credential", "", kClock},
    {"Rewound credential", "", kClock},
    {"Protocol authentication error", "", kKey},
    {"Incompatible versions", "", {"VersionsDiffer", "the images of head, workers and login nodes hold versions of Slurm that do not speak with one another: give all the same image"}},
});

bool names_error(std::string_view line) {
  for (const char* word : {"fatal", "error", "rror:", "cannot", "failed", "No space"})
    if (line.find(word) != line.npos) return true;
  return false;
}

}  // namespace

std::optional<Trouble> known_trouble(std::string_view words) {
  for (const Known& known : kKnown)
    if (words.find(known.words) != words.npos && (known.and_words.empty() || words.find(known.and_words) != words.npos)) return known.trouble;
  return std::nullopt;
}

std::string last_words(std::string_view log) {
  std::string last, error;
  for (const auto& line : split(log, '\n')) {
    const std::string text(trim(line));
    if (text.empty()) continue;
    last = text;
    if (names_error(text)) error = text;
  }
  std::string out = error.empty() ? last : error;
  std::erase_if(out, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; });
  if (out.size() > 300) {
    out.resize(300);
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
  }
  return out;
}

PodTrouble pod_trouble(const Json& pod) {
  const auto told = [](std::string text, std::string_view words) -> PodTrouble {
    const auto known = known_trouble(words);
    if (!known) return {std::move(text), ""};
    return {fmt::format("{}: {}", text, known->remedy), known->reason};
  };
  if (const Json* scheduled = kube::find_condition(pod, "PodScheduled"); scheduled && (*scheduled)["status"].string() == "False") return {(*scheduled)["message"].string(), ""};
  for (const Json& container : pod["status"]["containerStatuses"].items()) {
    if (container["ready"].boolean()) continue;
    const Json& waiting = container["state"]["waiting"];
    const Json& ended = container["state"]["terminated"].is_object() ? container["state"]["terminated"] : container["lastState"]["terminated"];
    const std::string words = last_words(ended["message"].string());
    if (ended.is_object() && !words.empty())
      return told(fmt::format("{} ended with {} and was started {} times: {}", container["name"].string(), ended["exitCode"].integer(), container["restartCount"].integer(), words), ended["message"].string());
    if (waiting.is_object() && !waiting["message"].string().empty()) return told(fmt::format("{}: {}", container["name"].string(), waiting["message"].string()), waiting["message"].string());
    if (ended.is_object()) return {fmt::format("{} ended with {} and was started {} times", container["name"].string(), ended["exitCode"].integer(), container["restartCount"].integer()), ""};
  }
  return {pod["status"]["phase"].string_or("Pending"), ""};
}

std::string munge_mark(const Json& secret) {
  const std::string& key = secret["data"]["munge.key"].string();
  return key.empty() ? "" : hex(sha256("fairlead munge mark " + key)).substr(0, 16);
}

}  // namespace fairlead::slurm
