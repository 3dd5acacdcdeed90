// SPDX-License-Identifier: Apache-2.0
// The `fairlead` command line as a whole.
#pragma once
#include "cli/command.h"

namespace fairlead::cli {

// Parses and runs. The exit status: 0 done, 1 failed (one sentence on stderr), 2 wrong usage; exec, ssh and run pass on the command's own.
int run_program(int argc, char** argv, Hooks hooks, const Clock& clock);

// The tree of commands, for help and completion.
std::unique_ptr<CLI::App> make_tree(Context& context);

// The words of a command line for its tree, which takes a word like [a,b] for two: behind -- none is touched. In the tree's order, the last first.
std::vector<std::string> guard_words(int argc, const char* const* argv);

// A completion script for bash, zsh or fish, written from the tree. Invalid: another shell.
Result<std::string> completion_script(const CLI::App& app, const std::string& shell);

}  // namespace fairlead::cli
