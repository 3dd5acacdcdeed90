// SPDX-License-Identifier: Apache-2.0
// fairlead-replay FILE...: runs case files and decision logs through the governance engine and prints a line for each case.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "governance/replay/decision_replay.h"
#include "governance/replay/replay.h"

namespace {

constexpr std::string_view help =
    "Usage: fairlead-replay FILE...\n"
    "\n"
    "Decides each case of the files anew and compares the answer with the one that stands there.\n"
    "Prints `ok ID`, `FAIL ID: difference` or `skip ID: feature` for each case, and at the end `N passed, M failed`.\n"
    "The format of the files: tests/data/governance/README.md.\n"
    "A decision log of fairlead-server (decisions.log of its state folder) is told to the engine again:\n"
    "one case for each part that began with an empty engine, failed where a decision differs.\n"
    "\n"
    "  -q, --quiet   only failures and the closing line\n"
    "  -h, --help    this text\n"
    "\n"
    "Exit status: 0 all passed or skipped, 1 a case failed, 2 a file or an option is wrong.\n";

}  // namespace

int main(int argc, char** argv) {
  using Kind = fairlead::governance::CaseOutcome::Kind;
  bool quiet = false, options = true;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (options && (argument == "-h" || argument == "--help")) {
      fmt::print("{}", help);
      return 0;
    }
    if (options && argument == "--") options = false;
    else if (options && (argument == "-q" || argument == "--quiet")) quiet = true;
    else if (options && argument.starts_with('-') && argument != "-") {
      fmt::print(stderr, "fairlead-replay: unknown option {}; see fairlead-replay --help\n", argument);
      return 2;
    } else files.emplace_back(argument);
  }
  if (files.empty()) {
    fmt::print(stderr, "fairlead-replay: a file is expected; see fairlead-replay --help\n");
    return 2;
  }
  int passed = 0, failed = 0;
  bool wrong = false;
  for (const std::string& file : files) {
    auto text = fairlead::read_file(file, fairlead::Bytes{4LL << 30});
    if (!text) {
      fmt::print(stderr, "fairlead-replay: {}\n", text.error().message);
      wrong = true;
      continue;
    }
    fairlead::Result<std::vector<fairlead::governance::CaseOutcome>> outcomes;
    if (fairlead::governance::is_decision_log(*text)) outcomes = fairlead::governance::replay_decisions(*text);
    else outcomes = fairlead::governance::replay(*text);
    if (!outcomes) {
      fmt::print(stderr, "fairlead-replay: {}: {}\n", file, outcomes.error().message);
      wrong = true;
      continue;
    }
    for (const auto& outcome : *outcomes) {
      if (outcome.kind == Kind::Failed) fmt::print("FAIL {}: {}\n", outcome.id, outcome.detail);
      else if (!quiet && outcome.kind == Kind::Skipped) fmt::print("skip {}: {}\n", outcome.id, outcome.detail);
      else if (!quiet) fmt::print("ok {}\n", outcome.id);
      passed += outcome.kind == Kind::Passed;
      failed += outcome.kind == Kind::Failed;
    }
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return wrong ? 2 : failed != 0 ? 1 : 0;
}
