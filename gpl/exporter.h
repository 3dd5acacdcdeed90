// SPDX-License-Identifier: GPL-3.0-or-later
// `fairlead-slurm exporter`: Slurm's metrics by HTTP, for Prometheus. Asks Slurm at its own pace, so that no number of scrapers is a load on slurmctld.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8", body;
};
struct HttpQuestion {
  std::string method, path;  // without the query
};
// The first line of a request. Invalid: none.
Result<HttpQuestion> read_question(std::string_view head);
std::string print_answer(const HttpAnswer& answer, bool body);

// exporter [--address A] [--port N] [--interval SECONDS]; serves /metrics and /healthz until it is told to end. Exit status 2: usage; 1: the port is taken.
int run_exporter(const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
