// SPDX-License-Identifier: Apache-2.0
// One command, or one container's own streams, between descriptors and a client's channels.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "node/exec_channels.h"
#include "node/log_reader.h"
#include "node/runtime.h"

namespace fairlead::node {

// The closing status. `why` is used when the command could not be run at all.
kube::Json exec_status(int exit_code, const std::string& why = {});

// Pumps until the command has ended and all its output is sent, or the client is gone (the command is then killed). Input for a command that reads
// none (its stdin was not asked for, or it closed it) is thrown away, however much it is.
void run_exec_session(ExecProcess process, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop);

// Pumps until the container has ended, or the client is gone (the container goes on). `join` is asked once the client is ready to read. A slow client
// slows the container down as a terminal does; one that takes nothing for `patience` is told so and left, for the container's sake.
void run_attach_session(const std::function<Result<Attachment>()>& join, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop,
                        std::chrono::milliseconds patience = std::chrono::seconds(10));

// Output alone, from the container's log: however slowly the client reads, the container does not notice. Ends when all is sent and `running` is false.
void run_output_session(LogReader& log, const std::function<bool()>& running, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop);

// Tells why nothing could be run: a refused handshake makes kubectl try another protocol, and its user reads about that.
void tell_failure(const Error& error, const std::shared_ptr<ExecChannels>& channels, const std::stop_token& stop);

}  // namespace fairlead::node
