// SPDX-License-Identifier: Apache-2.0
// The kernel's part of connections: listening, who is at the other end, noticing that it is gone. Every descriptor is close-on-exec.
#pragma once
#include <chrono>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::http {

struct Listening {
  Fd fd;  // not blocking
  int family = 0;
  unsigned short port = 0;
};
// Port 0: any free one. Invalid: not an IP address. Unavailable: another program has the port.
Result<Listening> listen_tcp(const std::string& address, unsigned short port);
// Mode 0600. A socket file that nobody listens on is replaced. Invalid: the path is too long. Unavailable: another program listens there.
Result<Listening> listen_unix(const std::string& path);

// "127.0.0.1", "2001:db8::1"; "unix" for a Unix socket; empty: not connected.
std::string peer_address(int fd);

// A peer that vanishes without a word is noticed after `idle + count * every`, also while nothing is sent. And small writes go out at once.
struct KeepAlive {
  std::chrono::seconds idle, every;
  int count;
};
void keep_alive(int tcp, const KeepAlive& rules);

}  // namespace fairlead::http
