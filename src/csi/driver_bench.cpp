// SPDX-License-Identifier: Apache-2.0
// What calls of a CSI driver take: one after the other, over its socket, by the client that sidecars use too (gRPC).
// usage: driver_bench SOCKET NODE [ROUNDS] [GIB] [SOURCE-VOLUME]    Prints one line of JSON for each call. SOURCE-VOLUME: snapshots and clones are taken of it (else of a fresh one).
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "csi/csi.grpc.pb.h"

namespace {

namespace wire = csi::v1;

struct Bench {
  std::unique_ptr<wire::Controller::Stub> stub;
  std::map<std::string, std::vector<double>> taken;  // ms, by call

  template <class Request, class Response>
  Response call(const char* name, grpc::Status (wire::Controller::Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request) {
    for (int tries = 0;; ++tries) {
      grpc::ClientContext context;
      Response response;
      const auto began = std::chrono::steady_clock::now();
      const grpc::Status status = (stub.get()->*method)(&context, request, &response);
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
      if (status.ok()) {
        taken[name].push_back(ms);
        return response;
      }
      if (status.error_code() != grpc::StatusCode::ABORTED || tries == 20) {
        fmt::print(stderr, "{}: {} {}\n", name, static_cast<int>(status.error_code()), status.error_message());
        std::exit(1);
      }
    }
  }
};

wire::VolumeCapability mounted() {
  wire::VolumeCapability out;
  out.mutable_mount()->set_fs_type("xfs");
  out.mutable_access_mode()->set_mode(wire::VolumeCapability::AccessMode::SINGLE_NODE_WRITER);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return fmt::print(stderr, "usage: driver_bench SOCKET NODE [ROUNDS] [GIB] [SOURCE-VOLUME]\n"), 2;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 50;
  const std::int64_t size = (argc > 4 ? std::atoll(argv[4]) : 10) << 30;
  const std::string given = argc > 5 ? argv[5] : "";
  const auto channel = grpc::CreateChannel("unix:" + std::string(argv[1]), grpc::InsecureChannelCredentials());
  Bench bench{.stub = wire::Controller::NewStub(channel), .taken = {}};
  // The first call connects.
  (void)bench.call("connect", &wire::Controller::Stub::ControllerGetCapabilities, wire::ControllerGetCapabilitiesRequest());
  bench.taken.clear();
  const auto run = std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  for (int i = 0; i < rounds; ++i) {
    wire::CreateVolumeRequest create;
    create.set_name(fmt::format("bench-{}-{}", run, i));
    *create.add_volume_capabilities() = mounted();
    create.mutable_capacity_range()->set_required_bytes(size);
    const std::string id = bench.call("create", &wire::Controller::Stub::CreateVolume, create).volume().volume_id(), source = given.empty() ? id : given;
    wire::ControllerPublishVolumeRequest publish;
    publish.set_volume_id(id), publish.set_node_id(argv[2]);
    *publish.mutable_volume_capability() = mounted();
    (void)bench.call("attach", &wire::Controller::Stub::ControllerPublishVolume, publish);
    wire::ControllerExpandVolumeRequest grow;
    grow.set_volume_id(id), grow.mutable_capacity_range()->set_required_bytes(size + (std::int64_t{1} << 30));
    (void)bench.call("grow, attached", &wire::Controller::Stub::ControllerExpandVolume, grow);
    wire::CreateSnapshotRequest snapshot;
    snapshot.set_source_volume_id(source), snapshot.set_name(fmt::format("bench-snap-{}-{}", run, i));
    const std::string taken = bench.call("snapshot", &wire::Controller::Stub::CreateSnapshot, snapshot).snapshot().snapshot_id();
    wire::CreateVolumeRequest clone;
    clone.set_name(fmt::format("bench-clone-{}-{}", run, i));
    *clone.add_volume_capabilities() = mounted();
    clone.mutable_volume_content_source()->mutable_volume()->set_volume_id(source);
    const std::string twin = bench.call("clone", &wire::Controller::Stub::CreateVolume, clone).volume().volume_id();
    wire::ControllerModifyVolumeRequest modify;
    modify.set_volume_id(id), (*modify.mutable_mutable_parameters())["tagSpecification_1"] = "round=" + std::to_string(i);
    (void)bench.call("modify", &wire::Controller::Stub::ControllerModifyVolume, modify);
    wire::ControllerUnpublishVolumeRequest unpublish;
    unpublish.set_volume_id(id), unpublish.set_node_id(argv[2]);
    (void)bench.call("detach", &wire::Controller::Stub::ControllerUnpublishVolume, unpublish);
    wire::DeleteSnapshotRequest drop;
    drop.set_snapshot_id(taken);
    (void)bench.call("delete a snapshot", &wire::Controller::Stub::DeleteSnapshot, drop);
    for (const std::string& one : {twin, id}) {
      wire::DeleteVolumeRequest remove;
      remove.set_volume_id(one);
      (void)bench.call("delete", &wire::Controller::Stub::DeleteVolume, remove);
    }
  }
  for (auto& [name, ms] : bench.taken) {
    std::sort(ms.begin(), ms.end());
    const auto at = [&](double q) { return ms[std::min(ms.size() - 1, static_cast<std::size_t>(q * static_cast<double>(ms.size())))]; };
    fmt::print("{{\"bench\":\"csi\",\"call\":\"{}\",\"gib\":{},\"rounds\":{},\"p50_ms\":{:.1f},\"p99_ms\":{:.1f},\"max_ms\":{:.1f}}}\n", name, size >> 30, ms.size(), at(0.5), at(0.99), ms.back());
  }
  return 0;
}
