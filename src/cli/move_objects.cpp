// SPDX-License-Identifier: Apache-2.0
#include "cli/move_objects.h"

#include "kube/object.h"

namespace fairlead::cli {
namespace {

using kube::Json;
using References = std::set<std::pair<std::string, std::string>>;

void collect(const Json& value, References& out) {
  const auto note = [&](const char* kind, const std::string& name) {
    if (!name.empty()) out.emplace(kind, name);
  };
  for (const Json& item : value.items()) collect(item, out);
  for (const auto& [key, member] : value.members()) {
    const auto ends = [&](std::string_view with) { return std::string_view(key).ends_with(with); };
    if (member.is_string()) {
      if (key == "claimName") note("PersistentVolumeClaim", member.string());
      else if (key == "secretName" || key == "sshdKeysName" || ends("SecretName") || ends("SecretRefName")) note("Secret", member.string());
      else if (ends("ConfigMapRefName") || ends("configMapRefName") || ends("ConfigMapName") || ends("configMapName")) note("ConfigMap", member.string());
    } else if (member.is_object()) {
      if (ends("configMap") || ends("ConfigMap") || ends("configMapRef") || ends("ConfigMapRef") || ends("configMapKeyRef") || ends("ConfigMapKeyRef")) note("ConfigMap", member["name"].string());
      else if (ends("secret") || ends("secretRef") || ends("SecretRef") || ends("secretKeyRef") || ends("SecretKeyRef")) note("Secret", member["name"].string());
    } else if (key == "imagePullSecrets") {
      for (const Json& one : member.items()) note("Secret", one["name"].string());
    }
    collect(member, out);
  }
}

}  // namespace

References references_of(const Json& object) {
  References out;
  collect(object["spec"], out);
  return out;
}

Json portable(const Json& object) {
  Json out = object;
  out.erase("status");
  Json meta = Json::object({{"name", object["metadata"]["name"]}});
  if (const Json* labels = object["metadata"].find("labels"); labels && labels->is_object()) meta.set("labels", *labels);
  Json annotations = Json::object();
  for (const auto& [name, value] : object["metadata"]["annotations"].members()) {
    const std::string_view text(name);
    if (text.starts_with("kubectl.kubernetes.io/") || text.starts_with("pv.kubernetes.io/") || text.starts_with("volume.") || text.starts_with("fairlead.dev/")) continue;
    annotations.set(name, value);
  }
  if (!annotations.members().empty()) meta.set("annotations", std::move(annotations));
  out.set("metadata", std::move(meta));
  if (object["kind"].string() == "PersistentVolumeClaim") {
    for (const char* name : {"volumeName", "dataSource", "dataSourceRef", "volumeMode"}) out.child("spec").erase(name);
  }
  return out;
}

bool says_the_same(const Json& wanted, const Json& have) {
  const std::string& kind = wanted["kind"].string();
  if (kind == "PersistentVolumeClaim" || kind == "Namespace") return true;
  if (kind == "ConfigMap" || kind == "Secret") return wanted["data"] == have["data"] && wanted["binaryData"] == have["binaryData"];
  return wanted["spec"] == have["spec"];
}

}  // namespace fairlead::cli
