// SPDX-License-Identifier: Apache-2.0
// The driver on a Unix socket.
#pragma once
#include <memory>
#include <string>

#include "base/result.h"
#include "csi/controller_service.h"
#include "csi/node_service.h"

namespace fairlead::csi {

inline constexpr const char* kDriver = api::kVolumeDriver;

struct ServerOptions {
  std::string socket;                     // absolute, 107 bytes at most; its folder is there
  ControllerService* controller = nullptr;
  NodeService* node = nullptr;            // one at least; both outlive the server
  std::function<bool()> ready;            // of Probe; none: always
};

// Where a kubelet looks for drivers (its --root-dir, plugins_registry), and what it is told.
struct Registration {
  std::string folder;                     // absolute; it is there
  std::string socket;                     // of the driver, as the kubelet sees it: in its --root-dir
};

class Server {
 public:
  // Serves when this returns. Conflict: another driver has the socket. Root alone connects.
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  // The kubelet asks at FOLDER/csi.fairlead.dev-reg.sock and enters the driver in the node's CSINode; when the socket goes, so does that. To be called when a driver serves. Conflict: another does it there.
  static Result<std::unique_ptr<Server>> enrol(const Registration& registration);
  virtual ~Server() = default;            // ends calls that are under way within five seconds
};

// "unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock". Invalid: none of them.
Result<std::string> socket_of(const std::string& endpoint);

// One call of any driver, or as a kubelet calls: method "NodeGetInfo", "Controller/CreateVolume", "Registration/GetInfo", request and answer as protobuf's JSON with the protocol's own field names. Errors carry the driver's words; `code`: gRPC's.
struct Answer {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message, body;
};
Result<Answer> call(const std::string& socket, const std::string& method, const std::string& request, std::chrono::milliseconds limit);
std::vector<std::string> methods();       // "Controller/CreateVolume", ...

}  // namespace fairlead::csi
