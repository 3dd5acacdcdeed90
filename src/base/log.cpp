// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace fairlead {
namespace {

bool plain(std::string_view value) { return !value.empty() && value.find_first_of(" \t\r\n\"=") == std::string_view::npos; }

void write(spdlog::level::level_enum level, std::string_view message, LogFields fields) {
  if (!spdlog::should_log(level)) return;
  std::string line(message);
  for (const auto& [key, value] : fields) {
    line += ' ';
    line += key;
    line += '=';
    if (plain(value)) {
      line += value;
      continue;
    }
    line += '"';
    for (const char c : value) {
      if (c == '\n') line += "\\n";
      else if (c == '"' || c == '\\') (line += '\\') += c;
      else if (static_cast<unsigned char>(c) < 32) line += '?';
      else line += c;
    }
    line += '"';
  }
  spdlog::log(level, "{}", line);
}

}  // namespace

void log_debug(std::string_view message, LogFields fields) { write(spdlog::level::debug, message, fields); }
void log_info(std::string_view message, LogFields fields) { write(spdlog::level::info, message, fields); }
void log_warn(std::string_view message, LogFields fields) { write(spdlog::level::warn, message, fields); }
void log_error(std::string_view message, LogFields fields) { write(spdlog::level::err, message, fields); }

void start_logging(std::string_view program, std::string_view level) {
  auto logger = spdlog::stderr_logger_mt(std::string(program));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %n %v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace fairlead
