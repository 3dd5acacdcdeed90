// SPDX-License-Identifier: GPL-3.0-or-later
// Links of a machine to others that are tried with it (InstanceConnectivity): a listener on each sends back what it gets, and each sends to some of the others and compares. What is wrong or does not come is a fault of the link; at which end it is, only who sees all can tell. Slowness is told and is none.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::companion {

struct LinkPeer {
  std::string id;       // as the result names it
  std::string address;  // IPv4 or IPv6, no name
};

struct LinkCheckOptions {
  std::chrono::milliseconds limit{20'000};   // all links together: each has its share
  std::chrono::milliseconds patience{5'000}; // for a connection, and for anything to go on; refused ones are tried again so long
  std::string token;                         // of this meeting: the listener answers none else
  std::uint16_t port = 7475;
  std::vector<LinkPeer> peers;
  std::string last_word = "/dev/termination-log";
};
// FAIRLEAD_CHECK_TOKEN, _SECONDS, _PORT, _PEERS ("ID=ADDRESS ID=ADDRESS"). Invalid: which one is wrong.
Result<LinkCheckOptions> link_check_options(const std::map<std::string, std::string>& environment);

// A socket that listens at every address of this machine. Port 0: one that is free.
Result<Fd> link_socket(std::uint16_t port);
// Sends back what comes, 64 connections at once and no more, until the socket is shut down.
void serve_links(const Fd& socket, const std::string& token);

// Tries each link. 0, with lines of "ID ok|fault|unknown WORDS" as the last word and on stdout.
int run_link_check(const LinkCheckOptions& options);

}  // namespace fairlead::companion
