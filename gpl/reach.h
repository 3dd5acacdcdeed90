// SPDX-License-Identifier: GPL-3.0-or-later
// Is an address reached over TCP? Asked before a daemon offers itself to others.
#pragma once
#include <netinet/in.h>

#include <chrono>
#include <string>
#include <vector>

namespace fairlead::companion {

// Somebody accepts connections there; tried for two seconds. The name is resolved first (IPv4, as Slurm 22.05 speaks).
bool reachable(const std::string& host, const std::string& port);

// Which of `peers` accept connections: an answer for each, in their order, within `limit` for all together. All are tried at once (512 at a time, each lot with its share of the time); a refusal is a no.
std::vector<bool> accepting(const std::vector<sockaddr_in>& peers, std::chrono::milliseconds limit);

// The IPv4 address that this machine has towards a host; nothing is sent. Empty: there is no way to it, or names are not answered.
std::string own_address(const std::string& host, const std::string& port);

// The IPv4 addresses of a name, with this port; empty: none, or names are not answered.
std::vector<sockaddr_in> addresses_of(const std::string& host, std::uint16_t port);

// Those of `peers` from which nothing came back within `limit`. A refused connection is an answer: packets go both ways, and more is not asked. All are tried at once and again every 300 ms.
std::vector<sockaddr_in> silent_peers(std::vector<sockaddr_in> peers, std::chrono::milliseconds limit);

// NodeAddr of every node but `own` that Slurm believes alive, out of the lines of `scontrol -o show nodes`; what is no IPv4 address is left out.
std::vector<sockaddr_in> live_nodes(const std::string& lines, const std::string& own, std::uint16_t port);

}  // namespace fairlead::companion
