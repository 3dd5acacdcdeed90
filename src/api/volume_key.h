// SPDX-License-Identifier: Apache-2.0
// Keys of encrypted volumes as objects (VolumeKey, fairlead.dev/v1alpha1): what may be done by them. Their material is in Secrets of kVolumeKeySpace under the same names. Pure; docs/design/076-volume-keys.md.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kVolumeKeys{"fairlead.dev", "v1alpha1", "volumekeys", "VolumeKey", false};
kube::Json volume_key_crd();

inline constexpr const char* kServiceAlias = "alias/aws/ebs";                   // of the site's own key
inline constexpr const char* kKeyObjectNote = "fairlead.dev/volume-key";      // annotation of a Secret with material: uid of the VolumeKey that it was made for, without which it opens nothing
inline constexpr const char* kGrantRevokedNote = "fairlead.dev/grant-revoked";  // annotation of an Attachment, "true": its grant opens nothing any more

struct VolumeKey {
  std::string name, uid, description;
  bool enabled = true;
  bool grants = false;                  // a volume is served only by an attachment with a grant
  std::optional<std::string> deletion;  // it was asked for, at that time (RFC 3339)
  kube::Json policy;                    // null: the account's identities' policies decide
  std::vector<std::string> aliases;     // "alias/mine"
  std::int64_t version = 1;             // that it has at least
  const char* state() const { return deletion ? "PendingDeletion" : enabled ? "Enabled" : "Disabled"; }
  bool opens() const { return enabled && !deletion; }
};
// What is written in a way that is not understood closes: enabled is true alone.
VolumeKey read_volume_key(const kube::Json& object);
// Why nothing is opened by it, in words; empty: it opens.
std::string why_closed(const VolumeKey& key);
// The one that is meant by an id, an alias, or the ARN of either, of whichever account; the service's own needs no object. NotFound; Conflict: several have that alias.
Result<VolumeKey> key_called(const std::vector<VolumeKey>& keys, std::string_view text);
// As KMS calls it: its name where that is a UUID, else one made of its name's hash.
std::string key_id(std::string_view name);
bool is_key_id(std::string_view text);

// Of an Attachment, that serves a volume by a key in its maker's name.
struct KeyGrant {
  std::string id, key, issuer;  // id: 64 hexadecimal digits
  bool revoked = false;
};
std::optional<KeyGrant> read_grant(const kube::Json& attachment);
// The attachment's spec has it from here on. issuer: whose ARN.
void set_grant(kube::Json& attachment, const std::string& key, const std::string& issuer);
// May this volume be served by the key? `attachments`: all that there are.
bool is_granted(const std::vector<kube::Json>& attachments, std::string_view volume, std::string_view key);

}  // namespace fairlead::api
