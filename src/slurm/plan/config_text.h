// SPDX-License-Identifier: Apache-2.0
// Lines of slurm.conf as Slurm 22.05 reads them (src/common/parse_config.c), but for what it forgives in silence: nothing of the text is left without an entry or a problem.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fairlead::slurm {

struct ConfigProblem {
  std::string where;  // path in the resource; empty: the reader of a text does not know
  int line = 0;       // of the text given, from 1; 0: of no line
  std::string key;    // as written; empty: no key could be read
  std::string text;   // what is wrong and what to do
  friend bool operator==(const ConfigProblem&, const ConfigProblem&) = default;
};
std::string describe(const ConfigProblem& problem);  // "spec.customSlurmConfig, line 3, SchedulerParameters: ..."

struct ConfigEntry {
  std::string where;  // as above
  int line = 0;
  std::string key, value;
  std::vector<std::pair<std::string, std::string>> more;  // KEY=VALUE behind the first on its line, as in PartitionName=a Nodes=b
  friend bool operator==(const ConfigEntry&, const ConfigEntry&) = default;
};
struct ConfigText {
  std::vector<ConfigEntry> entries;
  std::vector<ConfigProblem> problems;
};

// '#' begins a comment unless '\' stands before it, a '\' at the end joins the next line, '\' takes the special meaning from any character, a value with spaces stands in double quotes. Include is refused: what it
// names could not be checked. O(text).
ConfigText read_config_text(std::string_view text);
// One line that reads back as the same entry.
std::string print_config(const ConfigEntry& entry);

bool same_key(std::string_view a, std::string_view b);  // keys do not tell upper and lower case apart

}  // namespace fairlead::slurm
