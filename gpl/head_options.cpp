// SPDX-License-Identifier: GPL-3.0-or-later
#include <fmt/format.h>

#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"
#include "head.h"

namespace fairlead::companion {

Result<HeadOptions> head_options(const std::map<std::string, std::string>& environment) {
  const auto of = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  HeadOptions options;
  for (const char* name : {"FAIRLEAD_HEADS", "FAIRLEAD_WITNESSES"}) {
    for (const std::string& one : split(of(name), ','))
      if (const std::string_view voter = trim(one); !voter.empty()) options.voters.emplace_back(voter);
    if (options.heads == 0) options.heads = options.voters.size();
  }
  const std::string self = of("FAIRLEAD_VOTER");
  if (self.empty() || self.size() > 2 || self.find_first_not_of("0123456789") != std::string::npos || std::stoul(self) >= options.voters.size())
    return fail(Code::Invalid, fmt::format("FAIRLEAD_VOTER must be a number below {}, the count of FAIRLEAD_HEADS and FAIRLEAD_WITNESSES, not \"{}\"", options.voters.size(), self));
  options.self = static_cast<std::uint8_t>(std::stoul(self));
  auto key = read_file(of("FAIRLEAD_QUORUM_KEY"));
  if (!key) return pass(std::move(key.error()), "FAIRLEAD_QUORUM_KEY");
  if (key->size() < 16) return fail(Code::Invalid, "the key in FAIRLEAD_QUORUM_KEY is shorter than 16 bytes");
  options.key = std::move(*key);
  options.cluster = of("FAIRLEAD_SLURM_CLUSTER");
  options.address_program = of("FAIRLEAD_ADDRESS_PROGRAM");
  if (const std::string port = of("FAIRLEAD_RELAY_PORT"); !port.empty()) {
    if (port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos || std::stoul(port) < 1 || std::stoul(port) > 65535) return fail(Code::Invalid, "FAIRLEAD_RELAY_PORT must be a port, not \"" + port + "\"");
    options.relay_port = static_cast<std::uint16_t>(std::stoul(port));
  }
  if (const std::string ttl = of("FAIRLEAD_LEASE_MS"); !ttl.empty()) {
    const long ms = std::atol(ttl.c_str());
    if (ms < 400 || ms > 60'000) return fail(Code::Invalid, "FAIRLEAD_LEASE_MS must be between 400 and 60000, not \"" + ttl + "\"");
    options.timing.ttl = std::chrono::milliseconds(ms);
    options.timing.margin = options.timing.ttl / 4;
    options.timing.renew = options.timing.ttl / 16;
  }
  return options;
}

}  // namespace fairlead::companion
