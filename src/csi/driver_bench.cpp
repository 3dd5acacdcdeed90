// SPDX-License-Identifier: Apache-2.0
// What calls of a CSI driver take: one after the other, over its socket, by the client that sidecars use too (gRPC).
// usage: driver_bench SOCKET NODE [ROUNDS] [GIB] [--source VOLUME] [--block FOLDER] [--name NAME] [--class CLASS]    Prints one line of JSON for each call. VOLUME: snapshots and clones are taken of it (else of a
// fresh one), and it has GIB at most. FOLDER: volumes are raw block devices, and are staged and published there as well. NAME: the driver's, for the lines. CLASS: one whose volumes have limits, which are what is modified (else tags).
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "csi/csi.grpc.pb.h"

namespace {

namespace wire = csi::v1;

struct Bench {
  std::unique_ptr<wire::Controller::Stub> controller;
  std::unique_ptr<wire::Node::Stub> node;
  std::map<std::string, std::vector<double>> taken;  // ms, by call

  template <class Stub, class Request, class Response>
  Response call(const char* name, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request) {
    Stub& stub = [&]() -> Stub& {
      if constexpr (std::is_same_v<Stub, wire::Node::Stub>) {
        return *node;
      } else {
        return *controller;
      }
    }();
    for (int tries = 0;; ++tries) {
      grpc::ClientContext context;
      Response response;
      const auto began = std::chrono::steady_clock::now();
      const grpc::Status status = (stub.*method)(&context, request, &response);
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

wire::VolumeCapability capability(bool block) {
  wire::VolumeCapability out;
  if (block) {
    out.mutable_block();
  } else {
    out.mutable_mount()->set_fs_type("xfs");
  }
  out.mutable_access_mode()->set_mode(wire::VolumeCapability::AccessMode::SINGLE_NODE_WRITER);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::string given, folder, name = "fairlead-csi", klass;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string* option = word == "--source" ? &given : word == "--block" ? &folder : word == "--name" ? &name : word == "--class" ? &klass : nullptr;
    if (!option) {
      words.push_back(word);
    } else if (++i < argc) {
      *option = argv[i];
    } else {
      words.clear();  // an option without its value
    }
  }
  if (words.size() < 2 || words.size() > 4) return fmt::print(stderr, "usage: driver_bench SOCKET NODE [ROUNDS] [GIB] [--source VOLUME] [--block FOLDER] [--name NAME] [--class CLASS]\n"), 2;
  const int rounds = words.size() > 2 ? std::atoi(words[2].c_str()) : 50;
  const std::int64_t gib = std::int64_t{1} << 30, size = (words.size() > 3 ? std::atoll(words[3].c_str()) : 10) * gib;
  const auto channel = grpc::CreateChannel("unix:" + words[0], grpc::InsecureChannelCredentials());
  Bench bench{.controller = wire::Controller::NewStub(channel), .node = wire::Node::NewStub(channel), .taken = {}};
  // The first call connects.
  (void)bench.call("connect", &wire::Controller::Stub::ControllerGetCapabilities, wire::ControllerGetCapabilitiesRequest());
  bench.taken.clear();
  const auto run = std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  const wire::VolumeCapability kind = capability(!folder.empty());
  for (int i = 0; i < rounds; ++i) {
    wire::CreateVolumeRequest create;
    create.set_name(fmt::format("bench-{}-{}", run, i));
    *create.add_volume_capabilities() = kind;
    create.mutable_capacity_range()->set_required_bytes(size);
    if (!klass.empty()) (*create.mutable_parameters())["class"] = klass;
    const std::string id = bench.call("create", &wire::Controller::Stub::CreateVolume, create).volume().volume_id(), source = given.empty() ? id : given;
    wire::ControllerPublishVolumeRequest attach;
    attach.set_volume_id(id), attach.set_node_id(words[1]);
    *attach.mutable_volume_capability() = kind;
    const auto context = bench.call("attach", &wire::Controller::Stub::ControllerPublishVolume, attach).publish_context();
    const std::string staging = folder + "/staging-" + id, target = folder + "/target-" + id;
    if (!folder.empty()) {
      std::filesystem::create_directories(staging);
      wire::NodeStageVolumeRequest stage;
      stage.set_volume_id(id), stage.set_staging_target_path(staging);
      *stage.mutable_volume_capability() = kind, *stage.mutable_publish_context() = context;
      (void)bench.call("stage", &wire::Node::Stub::NodeStageVolume, stage);
      wire::NodePublishVolumeRequest publish;
      publish.set_volume_id(id), publish.set_staging_target_path(staging), publish.set_target_path(target);
      *publish.mutable_volume_capability() = kind, *publish.mutable_publish_context() = context;
      (void)bench.call("publish", &wire::Node::Stub::NodePublishVolume, publish);
    }
    wire::ControllerExpandVolumeRequest grow;
    grow.set_volume_id(id), grow.mutable_capacity_range()->set_required_bytes(size + gib), *grow.mutable_volume_capability() = kind;
    (void)bench.call("grow, attached", &wire::Controller::Stub::ControllerExpandVolume, grow);
    wire::CreateSnapshotRequest snapshot;
    snapshot.set_source_volume_id(source), snapshot.set_name(fmt::format("bench-snap-{}-{}", run, i));
    const std::string taken = bench.call("snapshot", &wire::Controller::Stub::CreateSnapshot, snapshot).snapshot().snapshot_id();
    wire::CreateVolumeRequest clone;
    clone.set_name(fmt::format("bench-clone-{}-{}", run, i));
    *clone.add_volume_capabilities() = kind;
    clone.mutable_capacity_range()->set_required_bytes(given.empty() ? size + gib : size);
    *clone.mutable_parameters() = create.parameters();
    clone.mutable_volume_content_source()->mutable_volume()->set_volume_id(source);
    const std::string twin = bench.call("clone", &wire::Controller::Stub::CreateVolume, clone).volume().volume_id();
    clone.set_name(fmt::format("bench-restored-{}-{}", run, i));
    clone.mutable_volume_content_source()->mutable_snapshot()->set_snapshot_id(taken);
    const std::string restored = bench.call("restore", &wire::Controller::Stub::CreateVolume, clone).volume().volume_id();
    wire::ControllerModifyVolumeRequest modify;
    modify.set_volume_id(id);
    if (klass.empty()) (*modify.mutable_mutable_parameters())["tagSpecification_1"] = "round=" + std::to_string(i);
    else (*modify.mutable_mutable_parameters())["iops"] = std::to_string(1000 + i);
    (void)bench.call("modify", &wire::Controller::Stub::ControllerModifyVolume, modify);
    if (!folder.empty()) {
      wire::NodeUnpublishVolumeRequest unpublish;
      unpublish.set_volume_id(id), unpublish.set_target_path(target);
      (void)bench.call("unpublish", &wire::Node::Stub::NodeUnpublishVolume, unpublish);
      wire::NodeUnstageVolumeRequest unstage;
      unstage.set_volume_id(id), unstage.set_staging_target_path(staging);
      (void)bench.call("unstage", &wire::Node::Stub::NodeUnstageVolume, unstage);
    }
    wire::ControllerUnpublishVolumeRequest detach;
    detach.set_volume_id(id), detach.set_node_id(words[1]);
    (void)bench.call("detach", &wire::Controller::Stub::ControllerUnpublishVolume, detach);
    wire::DeleteSnapshotRequest drop;
    drop.set_snapshot_id(taken);
    (void)bench.call("delete a snapshot", &wire::Controller::Stub::DeleteSnapshot, drop);
    for (const std::string& one : {restored, twin, id}) {
      wire::DeleteVolumeRequest remove;
      remove.set_volume_id(one);
      (void)bench.call("delete", &wire::Controller::Stub::DeleteVolume, remove);
    }
  }
  for (auto& [call, ms] : bench.taken) {
    std::sort(ms.begin(), ms.end());
    const auto at = [&](double q) { return ms[std::min(ms.size() - 1, static_cast<std::size_t>(q * static_cast<double>(ms.size())))]; };
    fmt::print("{{\"bench\":\"csi\",\"driver\":\"{}\",\"class\":\"{}\",\"call\":\"{}\",\"gib\":{},\"rounds\":{},\"p50_ms\":{:.1f},\"p99_ms\":{:.1f},\"max_ms\":{:.1f}}}\n", name, klass, call, size / gib, ms.size(), at(0.5), at(0.99), ms.back());
  }
  return 0;
}
