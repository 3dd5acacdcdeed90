// SPDX-License-Identifier: Apache-2.0
// A log line is an event with fields: the message is constant, the values are fields.
//   log_info("pod started", {{"pod", name}, {"seconds", text}});
// Never a secret, never an environment value.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace fairlead {

using LogFields = std::initializer_list<std::pair<std::string_view, std::string>>;

void log_debug(std::string_view message, LogFields fields = {});
void log_info(std::string_view message, LogFields fields = {});   // a decision someone may ask about
void log_warn(std::string_view message, LogFields fields = {});   // degraded, acting on it ourselves
void log_error(std::string_view message, LogFields fields = {});  // a human is needed

// For main(): lines go to stderr as `2026-01-02T03:04:05.678Z INFO message key=value ...`; level debug|info|warn|error.
void start_logging(std::string_view program, std::string_view level);

}  // namespace fairlead
