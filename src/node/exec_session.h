// SPDX-License-Identifier: Apache-2.0
// One command, or one container's own streams, between descriptors and a client's channels.
#pragma once
#include <memory>
#include <stop_token>
#include <string>

#include "node/exec_channels.h"
#include "node/runtime.h"

namespace fairlead::node {

// The closing status. `why` is used when the command could not be run at all.
kube::Json exec_status(int exit_code, const std::string& why = {});

// Pumps until the command has ended and all its output is sent, or the client is gone (the command is then killed). Input for a command that reads
// none (its stdin was not asked for, or it closed it) is thrown away, however much it is.
void run_exec_session(ExecProcess process, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop);

// Pumps until the container has ended, or the client is gone (the container goes on).
void run_attach_session(Attachment attachment, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop);

}  // namespace fairlead::node
