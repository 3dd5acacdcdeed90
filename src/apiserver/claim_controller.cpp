// SPDX-License-Identifier: Apache-2.0
#include "apiserver/claim_controller.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

#include "base/files.h"
#include "base/log.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

std::vector<kube::ObjectKey> claims_of_pod(const kube::Change& change) {
  std::vector<kube::ObjectKey> out;
  const Json& pod = change.object();
  for (const Json& volume : pod["spec"]["volumes"].items())
    if (const std::string& name = volume["persistentVolumeClaim"]["claimName"].string(); !name.empty()) out.push_back({kube::space_of(pod), name});
  return out;
}

std::string path_of(const Json& claim) { return fmt::format("{}/{}-{}", kube::space_of(claim), kube::name_of(claim), kube::uid_of(claim)); }

}  // namespace

std::vector<kube::Controller::Source> ClaimController::sources() const {
  return {{kube::resources::claims, "", kube::key_itself}, {kube::resources::pods, "", claims_of_pod}};
}

Result<kube::Next> ClaimController::reconcile(const kube::ObjectKey& key) {
  auto claim = api_.get(kube::resources::claims, key);
  if (!claim && claim.error().code == Code::NotFound) return kube::Next{};
  if (!claim) return std::unexpected(std::move(claim.error()));
  return kube::deleting(*claim) ? release(*claim) : bind(std::move(*claim));
}

Result<kube::Next> ClaimController::bind(Json claim) {
  const std::string path = path_of(claim);
  const Json& annotation = claim["metadata"]["annotations"][claim_path_annotation];
  if (annotation.string() != path || !kube::has_finalizer(claim, claim_finalizer)) {
    // The finalizer is there before the directory is, so that no directory is ever forgotten.
    kube::add_finalizer(claim, claim_finalizer);
    claim.child("metadata").child("annotations").set(claim_path_annotation, path);
    auto written = api_.update(kube::resources::claims, claim);
    if (!written) return std::unexpected(std::move(written.error()));
    claim = std::move(*written);
  }
  if (auto made = make_dirs(folder_ + "/" + path, 0755); !made) return pass(std::move(made.error()), "make the directory of claim " + kube::key_of(claim).text());
  const Json capacity = Json::object({{"storage", claim["spec"]["resources"]["requests"]["storage"]}});
  const Json status = Json::object({{"phase", "Bound"}, {"accessModes", claim["spec"]["accessModes"]}, {"capacity", capacity}});
  if (claim["status"] == status) return kube::Next{};
  claim.set("status", status);
  auto written = api_.update_status(kube::resources::claims, claim);
  if (!written) return std::unexpected(std::move(written.error()));
  log_info("claim bound", {{"claim", kube::key_of(claim).text()}, {"path", path}});
  return kube::Next{};
}

Result<bool> ClaimController::in_use(const Json& claim) {
  auto pods = api_.list(kube::resources::pods, kube::space_of(claim), {.field_selector = "status.phase!=Succeeded,status.phase!=Failed"});
  if (!pods) return pass(std::move(pods.error()), "list pods");
  for (const Json& pod : pods->items)
    for (const Json& volume : pod["spec"]["volumes"].items())
      if (volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]) return true;
  return false;
}

Result<kube::Next> ClaimController::release(const Json& claim) {
  if (!kube::has_finalizer(claim, claim_finalizer)) return kube::Next{};
  auto used = in_use(claim);
  if (!used) return std::unexpected(std::move(used.error()));
  if (*used) return kube::Next{};  // the pod's end is a change that brings us back
  const std::string path = folder_ + "/" + path_of(claim);
  const bool erase = claim["metadata"]["annotations"][claim_reclaim_annotation].string() == "Delete";
  if (exists(path) && erase) {
    if (auto removed = remove_tree(path); !removed) return pass(std::move(removed.error()), "delete the directory of claim " + kube::key_of(claim).text());
  } else if (exists(path)) {
    if (auto made = make_dirs(folder_ + "/released", 0755); !made) return std::unexpected(std::move(made.error()));
    const std::string target = fmt::format("{}/released/{}-{}-{}", folder_, kube::space_of(claim), kube::name_of(claim), kube::uid_of(claim));
    if (std::rename(path.c_str(), target.c_str()) != 0) return fail_errno(errno, "keep the directory of claim " + kube::key_of(claim).text() + " as " + target);
  }
  Json next = claim;
  kube::remove_finalizer(next, claim_finalizer);
  auto written = api_.update(kube::resources::claims, next);
  if (!written && written.error().code != Code::NotFound) return std::unexpected(std::move(written.error()));
  log_info("claim released", {{"claim", kube::key_of(claim).text()}, {"kept", erase ? "no" : "yes"}});
  return kube::Next{};
}

}  // namespace fairlead::apiserver
