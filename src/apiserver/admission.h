// SPDX-License-Identifier: Apache-2.0
// What a write must pass between its defaults and its validation, beyond what the object says: who writes, and what else is there. The registry asks; the answer changes the
// new object or refuses it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "apiserver/auth_access.h"
#include "apiserver/registry.h"
#include "apiserver/validation.h"

namespace fairlead::apiserver {

// What an account gives a new pod: pull secrets, and the volume with its token where pod and account let it be mounted. Pure: that volume's name comes of the pod's uid.
void apply_service_account(kube::Json& pod, const kube::Json& account);
// Stands for a pod that a node runs of its own accord; it has no account. Empty: it may be stored; else the reason why not.
bool is_mirror_pod(const kube::Json& pod);
std::string mirror_pod_refusal(const kube::Json& pod);

// Gives a new pod of `space` and of this service account what the site has for it. `look` finds an object as it is now; nothing: it is not there. Must not block, and must leave a pod as it is that it has nothing for.
using FindObject = std::function<std::optional<kube::Json>(const kube::Resource& resource, const kube::ObjectKey& key)>;
using PodEquipment = std::function<void(const std::string& space, const kube::Json& account, kube::Json& pod, const FindObject& look)>;

// As Kubernetes' plug-ins ServiceAccount, Priority and NodeRestriction, RBAC's escalation check, and that of the parameters of admission policies.
class AccessAdmission final : public Admission {
 public:
  using NodeCheck = std::function<Result<void>(const User& user, const kube::Json* old, const kube::Json& next)>;  // HandlerOptions::check_node; may be empty
  AccessAdmission(const Access& access, const Registry& registry, NodeCheck check_node = {}, PodEquipment equip_pod = {}) : access_(access), registry_(registry), check_node_(std::move(check_node)), equip_pod_(std::move(equip_pod)) {}
  Result<void> admit(const AdmissionCall& call, kube::Json& object) const override;

 private:
  Result<void> admit_pod(const AdmissionCall& call, kube::Json& pod) const;
  Result<void> admit_priority_class(const AdmissionCall& call, const kube::Json& object) const;
  Result<void> admit_rbac(const AdmissionCall& call, const kube::Json& object) const;
  Result<void> admit_policy(const AdmissionCall& call, const kube::Json& object) const;
  std::optional<kube::Json> find(const kube::Resource& resource, const kube::ObjectKey& key) const;
  std::vector<kube::Json> default_classes() const;

  const Access& access_;
  const Registry& registry_;
  const NodeCheck check_node_;
  const PodEquipment equip_pod_;
};

}  // namespace fairlead::apiserver
