// SPDX-License-Identifier: Apache-2.0
// One command between its descriptors and a WebSocket with Kubernetes' channels: 0 in, 1 out, 2 err, 3 status, 4 size; v5 adds 255: close a channel.
#pragma once
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "http/server.h"
#include "node/runtime.h"

namespace fairlead::node {

// The message on channel 3. `why` is used when the command could not be run at all.
std::string exec_status(int exit_code, const std::string& why = {});

struct TerminalSize {
  unsigned short width = 0, height = 0;
};
// {"Width":80,"Height":24}
std::optional<TerminalSize> parse_terminal_size(std::string_view text);

// Pumps until the command has ended and all its output is sent, or the client is gone (the command is then killed).
void run_exec_session(ExecProcess process, const std::shared_ptr<http::WebSocket>& socket, bool v5, const std::stop_token& stop);

}  // namespace fairlead::node
