// SPDX-License-Identifier: GPL-3.0-or-later
// One of several heads (docs/design/005-elected-head.md): votes, and runs slurmctld while a majority of the voters promised it to.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/quorum.h"

namespace fairlead::companion {

struct HeadOptions {
  std::string cluster;                 // part of the quorum's name
  std::vector<std::string> voters;     // HOST:PORT (UDP); heads, then witnesses
  std::size_t heads = 0;
  std::uint8_t self = 0;
  std::string key;                     // secret of the quorum
  std::string volume;                  // shared by the heads; holds terms/
  std::string state_link;              // StateSaveLocation of slurm.conf: a link into the volume
  std::string run_dir;                 // of this container alone
  std::string slurm_conf;
  std::string address_program;         // told `take TERM` before slurmctld starts and `drop` after it ended; empty: nothing is to be told
  std::map<std::string, std::string> environment;  // of slurmctld; must preload gpl/durable
  std::function<Result<void>(std::map<std::string, std::string>& environment)> before_start;  // each time before slurmctld starts; where it fails, another head may try
  std::function<void()> after_end;     // each time after it ended, where the state is still this head's
  std::uint16_t relay_port = 0;        // slurmctld's: while another head serves, what comes to it here is passed on to that one (relay.h); 0: it is not
  quorum::Timing timing;
  std::chrono::seconds stop_limit{15};
};

// From the environment: FAIRLEAD_HEADS and FAIRLEAD_WITNESSES (HOST:PORT,...), FAIRLEAD_VOTER (own number), FAIRLEAD_QUORUM_KEY (path), FAIRLEAD_ADDRESS_PROGRAM, FAIRLEAD_LEASE_MS, FAIRLEAD_RELAY_PORT.
Result<HeadOptions> head_options(const std::map<std::string, std::string>& environment);

// Until SIGTERM. The exit status of the container.
int run_head(HeadOptions options);
// A voter that never serves.
int run_witness(HeadOptions options);
// `status` or `step-down`, to the companion that runs here. Unavailable: none runs here, or it does not answer. Invalid: it refused.
Result<std::string> ask_head(const std::string& run_dir, const std::string& question);
// Its status, as soon as "ROLE:TERM" differs from `known`, or after `limit`.
Result<std::string> wait_for_change(const std::string& run_dir, const std::string& known, std::chrono::milliseconds limit);

}  // namespace fairlead::companion
