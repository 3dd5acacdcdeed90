// SPDX-License-Identifier: Apache-2.0
// What a request of CSI asks for, or why it is refused. Pure. Codes: container-storage-interface/spec 1.12.0.
#pragma once
#include <cstdint>
#include <google/protobuf/map.h>
#include <grpcpp/support/status.h>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/volume.h"
#include "base/result.h"
#include "csi/csi.pb.h"

namespace fairlead::csi {

namespace wire = ::csi::v1;
using grpc::Status;
using grpc::StatusCode;

inline Status refuse(StatusCode code, std::string why) { return {code, std::move(why)}; }
Status status_of(const Error& error);  // of an error of ours

// Name of 1 to 128 bytes without control characters.
Status check_name(std::string_view name, std::string_view field);
// One that a local-fast volume can have.
Status check_capability(const wire::VolumeCapability& capability);
template <class Many>
Status check_capabilities(const Many& capabilities) {
  if (capabilities.empty()) return refuse(StatusCode::INVALID_ARGUMENT, "volume_capabilities: one at least is expected");
  for (const auto& one : capabilities)
    if (auto status = check_capability(one); !status.ok()) return status;
  return Status::OK;
}
bool same_kind(const wire::VolumeCapability& a, const wire::VolumeCapability& b);  // both block, or both mounts
bool is_single_pod(const wire::VolumeCapability& capability);                      // SINGLE_NODE_SINGLE_WRITER
bool is_read_only(const wire::VolumeCapability& capability);                       // by its access mode
bool is_for_many(const wire::VolumeCapability& capability);                        // nodes: MULTI_NODE_READER_ONLY

// The size that a volume is to have: whole MiB where the range allows, `least` at least (of what it is made of).
Status choose_size(const wire::CapacityRange* range, std::int64_t least, std::int64_t& size);

struct Parameters {
  std::string klass, pool;                       // klass: empty: what pools have (api::meant_classes)
  std::map<std::string, std::string> tags;
  bool encrypted = false;
  std::string key;
  std::optional<std::int64_t> iops, throughput;  // of a class with engines; throughput: bytes a second
  bool engine() const { return encrypted || iops.value_or(0) > 0 || throughput.value_or(0) > 0; }
};
using Map = google::protobuf::Map<std::string, std::string>;
Status read_parameters(const Map& parameters, Parameters& out);
// Tags by `tagSpecification_N`: "KEY=VALUE", as the EBS driver takes them; iops and throughput where a class limits them.
// of `out.klass`; what is not named stays as it is in `out`.
Status read_mutable(const Map& parameters, Parameters& out);

// Pools that a topology names, in addition to `pools`: the first one of a node, then its further ones.
void read_segments(const wire::Topology& topology, std::vector<std::string>& pools);
// Pools that a requirement allows. Empty: any. preferred: those of each topology together, most wanted first. Segments of others are nobody's business here.
Status read_topology(const wire::TopologyRequirement& requirement, std::vector<std::vector<std::string>>& preferred, std::vector<std::string>& allowed);

// A page of `names`, sorted: from behind the one in the token. Tokens of others: ABORTED.
struct Page {
  std::size_t from = 0, to = 0;
  std::string next;
};
Status page_of(const std::vector<std::string>& names, std::int32_t most, const std::string& token, Page& out);

}  // namespace fairlead::csi
