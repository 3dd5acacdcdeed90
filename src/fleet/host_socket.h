// SPDX-License-Identifier: Apache-2.0
// LocalHost across a process boundary, so that fairlead-server needs no root: RemoteHost asks by a Unix socket, MachinesService (in fairlead-machines, root) does what is asked on a
// LocalHost of its own. One connection a call; the service lets in root and one user, known by the kernel's word (SO_PEERCRED).
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "fleet/host_wire.h"

namespace fairlead::fleet {

struct RemoteHostOptions {
  std::string socket;
  Ranges ranges;
  unsigned short api_port = 6443;
  std::string ca_pem;
  // As in LocalHostOptions. Nodes' certificates are made here, where the CA's key is: the helper asks for them while a node starts, and only for that node's name.
  std::function<Result<http::KeyPair>(const http::CertificateRequest&)> issue;
  std::function<Result<void>(const std::string& address)> on_address;
};
// Its calls give Unavailable while the helper is away, with the command that starts it.
std::unique_ptr<LocalHost> make_remote_host(RemoteHostOptions options);

class MachinesService {
 public:
  struct Options {
    std::string socket;
    uid_t user = 0;  // who may ask beside root
    gid_t group = 0; // owns the socket (mode 0660)
    // Makes the host for a site; called again when the site's facts change.
    std::function<std::unique_ptr<LocalHost>(const SiteFacts&, std::function<Result<http::KeyPair>(const http::CertificateRequest&)> issue)> make_host;
  };
  // Listens when it returns. A socket that a dead helper left is replaced. At most 32 calls at a time; more wait.
  static Result<std::unique_ptr<MachinesService>> start(Options options);
  virtual ~MachinesService() = default;  // returns when no call runs any more
};

}  // namespace fairlead::fleet
