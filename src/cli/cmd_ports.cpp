// SPDX-License-Identifier: Apache-2.0
// ports: the table of groups and the ways that are open between them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "api/network_ways.h"
#include "cli/command.h"
#include "cli/text.h"

namespace fairlead::cli {

void add_ports(CLI::App& app, Context& context) {
  auto markdown = std::make_shared<bool>();
  CLI::App* command = app.add_subcommand("ports", "Print which group may speak with which, and on what ports");
  command->add_flag("--markdown", *markdown, "as docs/network.md has it");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead ports", "the table"}, {"fairlead ports -o json", "for programs, e.g. to fill a firewall"}});
  command->callback([markdown, &context] {
    context.action = [markdown, &context]() -> Result<int> {
      if (*markdown) {
        fmt::print("{}", api::print_ways_markdown());
      } else if (!context.wants("table")) {
        print_json_or_yaml(api::ways_json(), context.globals.output);
      } else {
        fmt::print("{:<10}  {:<11}  {:<8}  {:<11}  {}\n", "FROM", "TO", "PROTOCOL", "PORT", "FOR");
        for (const api::Way& way : api::network_ways())
          fmt::print("{:<10}  {:<11}  {:<8}  {:<11}  {}\n", api::text(way.from), api::text(way.to), api::text(way.protocol),
                     way.first == 0 ? "any" : way.last > way.first ? fmt::format("{}-{}", way.first, way.last) : std::to_string(way.first), way.what_for);
      }
      return 0;
    };
  });
}

}  // namespace fairlead::cli
