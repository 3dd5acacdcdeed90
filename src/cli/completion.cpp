// SPDX-License-Identifier: Apache-2.0
// Completion scripts, written from the tree of commands: they cannot forget one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/program.h"

namespace fairlead::cli {

namespace {

// Forms of -o that a command takes.
const char* forms_of(std::string_view path) { return path == "fairlead get" ? "table json yaml wide name" : "table json yaml"; }

constexpr const char* kKinds = "nodes pods machines slurmclusters services configmaps secrets persistentvolumeclaims events leases namespaces";

struct Leaf {
  std::string path;  // "fairlead node kill"; the program itself: "fairlead"
  std::string about;
  std::vector<std::pair<std::string, std::string>> commands;  // name, description
  struct Option {
    std::vector<std::string> names;  // "-f", "--filename"
    std::string about;
    bool takes_value = false;
  };
  std::vector<Option> options;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void walk(const CLI::App& app, const std::string& path, std::vector<Leaf>& leaves) {
  Leaf leaf{.path = path, .about = first_line(app.get_description()), .commands = {}, .options = {}};
  for (const CLI::Option* option : app.get_options()) {
    Leaf::Option one{.names = {}, .about = option->get_description(), .takes_value = option->get_items_expected_max() > 0 && option->get_type_size() > 0};
    for (const auto& name : option->get_snames()) one.names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) one.names.push_back("--" + name);
    if (!one.names.empty()) leaf.options.push_back(std::move(one));
  }
  const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subs) leaf.commands.emplace_back(sub->get_name(), first_line(sub->get_description()));
  leaves.push_back(std::move(leaf));
  for (const CLI::App* sub : subs) walk(*sub, path + " " + sub->get_name(), leaves);
}

std::string quote(std::string text) {
  std::string out;
  for (const char one : text) out += one == '\'' ? std::string("'\\''") : std::string(1, one);
  return "'" + out + "'";
}

std::string words_of(const Leaf& leaf) {
  std::string words;
  for (const auto& [name, about] : leaf.commands) words += (words.empty() ? "" : " ") + name;
  for (const auto& option : leaf.options)
    for (const auto& name : option.names) words += (words.empty() ? "" : " ") + name;
  return words;
}

// Words before the cursor that name commands decide the place in the tree; the rest is options and names.
std::string bash_script(const std::vector<Leaf>& leaves, bool zsh) {
  std::string out = "# completion of fairlead, written by `fairlead completion`\n";
  // zsh: the same function, by way of bashcompinit. It has another name than the file: _fairlead, where the script lies in a folder of fpath.
  if (zsh) out = "#compdef fairlead\n" + out + "(( $+functions[compdef] )) || { autoload -U compinit && compinit; }\nautoload -U +X bashcompinit && bashcompinit\n";
  out += "_fairlead_words() {\n  local at=fairlead word words='' i current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  COMPREPLY=()\n  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n    case \"$at $word\" in\n";
  for (const auto& leaf : leaves)
    if (leaf.path != "fairlead") out += "      " + quote(leaf.path) + ") at=" + quote(leaf.path) + " ;;\n";
  out += "    esac\n  done\n  case $before in\n    -f | --filename | --kubeconfig) COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n    --state-dir) COMPREPLY=($(compgen -d -- \"$current\")); return ;;\n"
         "    -o | --output) words='" + std::string(forms_of("")) + "'; [ \"$at\" != 'fairlead get' ] || words='" + forms_of("fairlead get") + "'; COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); return ;;\n  esac\n  case $at in\n";
  for (const auto& leaf : leaves) out += "    " + quote(leaf.path) + ") words=" + quote(words_of(leaf)) + " ;;\n";
  // Names come from the site itself, where it answers.
  out += "  esac\n"
         "  case $at in\n"
         "    'fairlead get' | 'fairlead delete') words=\"$words " + std::string(kKinds) + "\" ;;\n"
         "    'fairlead node kill' | 'fairlead node cut' | 'fairlead node heal' | 'fairlead node reboot') words=\"$words $(fairlead get machines -o name 2>/dev/null | cut -d/ -f2)\" ;;\n"
         "    'fairlead logs' | 'fairlead exec' | 'fairlead attach') words=\"$words $(fairlead get pods -A --no-headers 2>/dev/null | awk '{print $1 \"/\" $2}')\" ;;\n"
         "    'fairlead explain' | 'fairlead eta') words=\"$words $(fairlead get jobs -o name 2>/dev/null | sed 's|^[^/]*/|job/|')\" ;;\n"
         "    'fairlead quota') words=\"$words $(fairlead get clusterqueues,cohorts -o name 2>/dev/null | cut -d/ -f2)\" ;;\n"
         "    'fairlead team members' | 'fairlead team add-member' | 'fairlead team remove-member') words=\"$words $(fairlead team list 2>/dev/null | awk 'NR > 1 {print $1}')\" ;;\n"
         "    'fairlead image rm') words=\"$words $(fairlead image list 2>/dev/null | awk 'NR > 1 {print $1}')\" ;;\n"
         "    'fairlead volume snapshot' | 'fairlead volume grow' | 'fairlead volume modify' | 'fairlead volume attach' | 'fairlead volume detach' | 'fairlead volume snapshots') words=\"$words $(fairlead get volumes -o name 2>/dev/null | cut -d/ -f2)\" ;;\n"
         "    'fairlead volume restore') words=\"$words $(fairlead get snapshots -o name 2>/dev/null | cut -d/ -f2)\" ;;\n"
         "    'fairlead volume rm') words=\"$words $(fairlead get volumes,snapshots -o name 2>/dev/null | cut -d/ -f2)\" ;;\n"
         "    'fairlead completion') words='bash zsh fish' ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\ncomplete -F _fairlead_words fairlead\n";
  // Loaded by its name, it is asked for words at once.
  if (zsh) out += "[[ $funcstack[1] != _fairlead ]] || _bash_complete -F _fairlead_words\n";
  return out;
}

std::string fish_script(const std::vector<Leaf>& leaves) {
  std::string out = "# completion of fairlead, written by `fairlead completion`\ncomplete -c fairlead -f\n";
  for (const auto& leaf : leaves) {
    std::string condition = "__fish_use_subcommand";
    if (leaf.path != "fairlead") {
      condition = "__fish_seen_subcommand_from " + leaf.path.substr(leaf.path.rfind(' ') + 1);
      const std::string parent = leaf.path.substr(0, leaf.path.rfind(' '));
      if (parent != "fairlead") condition += "; and __fish_seen_subcommand_from " + parent.substr(parent.rfind(' ') + 1);
    }
    for (const auto& [name, about] : leaf.commands) {
      std::string missing = condition;
      if (leaf.path != "fairlead") {
        missing += "; and not __fish_seen_subcommand_from";
        for (const auto& [other, text] : leaf.commands) missing += " " + other;
      }
      out += fmt::format("complete -c fairlead -n {} -a {} -d {}\n", quote(missing), name, quote(about));
    }
    for (const auto& option : leaf.options) {
      std::string line = "complete -c fairlead -n " + quote(condition);
      for (const auto& one : option.names) line += one.starts_with("--") ? " -l " + one.substr(2) : " -s " + one.substr(1);
      const std::string& name = option.names.back();
      if (option.takes_value) line += name == "--filename" || name == "--kubeconfig" ? " -r -F" : name == "--state-dir" ? " -x -a '(__fish_complete_directories)'" : name == "--output" ? fmt::format(" -x -a '{}'", forms_of(leaf.path)) : " -r";
      out += line + " -d " + quote(option.about) + "\n";
    }
  }
  // Names come from the site itself, where it answers.
  const auto words = [&out](const std::string& seen, const std::string& arguments) {
    out += "complete -c fairlead -n " + quote(seen) + " -a " + quote(arguments) + "\n";
  };
  words("__fish_seen_subcommand_from get delete", kKinds);
  words("__fish_seen_subcommand_from kill cut heal; and __fish_seen_subcommand_from node", "(fairlead get machines -o name 2>/dev/null | string replace -r '^.*/' '')");
  words("__fish_seen_subcommand_from logs exec attach", "(fairlead get pods -A --no-headers 2>/dev/null | string replace -r '^(\\S+)\\s+(\\S+).*' '$1/$2')");
  words("__fish_seen_subcommand_from explain eta", "(fairlead get jobs -o name 2>/dev/null | string replace -r '^[^/]*/' 'job/')");
  words("__fish_seen_subcommand_from quota", "(fairlead get clusterqueues,cohorts -o name 2>/dev/null | string replace -r '^.*/' '')");
  words("__fish_seen_subcommand_from members add-member remove-member; and __fish_seen_subcommand_from team", "(fairlead team list 2>/dev/null | string match -r '^[^ A-Z]\\S*')");
  words("__fish_seen_subcommand_from rm; and __fish_seen_subcommand_from image", "(fairlead image list 2>/dev/null | string match -r '^[^ A-Z]\\S*')");
  words("__fish_seen_subcommand_from completion", "bash zsh fish");
  return out;
}

}  // namespace

Result<std::string> completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<Leaf> leaves;
  walk(app, "fairlead", leaves);
  if (shell == "bash") return bash_script(leaves, false);
  if (shell == "zsh") return bash_script(leaves, true);
  if (shell == "fish") return fish_script(leaves);
  return fail(Code::Invalid, fmt::format("usage: completion is there for bash, zsh and fish, not for \"{}\"", shell));
}

}  // namespace fairlead::cli
