// SPDX-License-Identifier: Apache-2.0
#include "volumes/keyring.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <charconv>
#include <map>
#include <optional>

#include "api/volume_key.h"
#include "base/box.h"
#include "base/encoding.h"
#include "base/log.h"
#include "base/rng.h"

namespace fairlead::volumes {

using kube::Json;
namespace resources = kube::resources;

namespace {

constexpr std::size_t kSize = 32;

class ApiKeyring final : public Keyring {
 public:
  explicit ApiKeyring(kube::KubeApi& api) : api_(api) {}

  Result<Wrapped> wrap(const std::string& key, const std::string& about, const std::string& secret) override {
    auto versions = to_close(key, false);
    if (!versions) return std::unexpected(std::move(versions.error()));
    const auto& [number, bytes] = *versions->rbegin();
    Wrapped out{.key = key, .version = number, .box = close_box(bytes, about, secret, secret_bytes(kBoxNonce))};
    forget(*versions);
    return out;
  }

  Result<std::string> unwrap(const Wrapped& wrapped, const std::string& about) override {
    auto object = object_of(wrapped.key);
    if (!object) return std::unexpected(std::move(object.error()));
    auto versions = read(wrapped.key, *object, false);
    if (!versions) return std::unexpected(std::move(versions.error()));
    const auto version = versions->find(wrapped.version);
    auto out = version == versions->end() ? Result<std::string>(fail(Code::NotFound, fmt::format("key {} has no version {} any more", wrapped.key, wrapped.version))) : open_box(version->second, about, wrapped.box);
    forget(*versions);
    return out ? std::move(out) : Result<std::string>(pass(std::move(out.error()), "open a volume's key by key " + wrapped.key));
  }

  Result<std::int64_t> current(const std::string& key) override {
    auto versions = to_close(key, true);
    if (!versions) return std::unexpected(std::move(versions.error()));
    const std::int64_t out = versions->rbegin()->first;
    forget(*versions);
    return out;
  }

  Result<void> may_serve(const std::string& key, const std::string& volume) override {
    const auto object = object_of(key);
    if (!object) return std::unexpected(object.error());
    if (!*object || !(*object)->grants) return {};
    const auto attachments = api_.list(api::kAttachments, "");
    if (!attachments) return pass(Error(attachments.error()), "read the grants of key " + key);
    if (api::is_granted(attachments->items, volume, key)) return {};
    return fail(Code::Forbidden, fmt::format("key {} asks for grants (spec.grants of VolumeKey {}), and the attachment has none: attach it by AttachClusterNodeVolume, as who is allowed kms:CreateGrant", key, key));
  }

 private:
  using Versions = std::map<std::int64_t, std::string>;
  using Object = std::optional<api::VolumeKey>;
  static void forget(Versions& versions) {
    for (auto& [number, bytes] : versions) OPENSSL_cleanse(bytes.data(), bytes.size());
  }
  // Nothing: there is none, and the Secret alone says what may be done.
  Result<Object> object_of(const std::string& key) {
    const auto object = api_.get(api::kVolumeKeys, {"", key});
    if (object) return Object(api::read_volume_key(*object));
    if (object.error().code == Code::NotFound) return Object();
    return pass(Error(object.error()), "read VolumeKey " + key);
  }
  // What closes now: made where there is none yet, and with as many versions as are asked for.
  Result<Versions> to_close(const std::string& key, bool disabled_too) {
    auto object = object_of(key);
    if (!object) return std::unexpected(std::move(object.error()));
    for (int tries = 0;; ++tries) {
      auto versions = read(key, *object, disabled_too);
      const bool none = !versions && versions.error().code == Code::NotFound, old = versions && *object && versions->rbegin()->first < (*object)->version;
      if (tries >= 5 || (none ? !*object && key != kServiceKey : !old)) return versions;
      if (versions) forget(*versions);
      auto made = none ? make(key, *object) : rotate(key, **object);
      if (!made && made.error().code != Code::Conflict) return std::unexpected(std::move(made.error()));
    }
  }
  Result<Versions> read(const std::string& key, const Object& object, bool disabled_too) {
    if (const std::string why = object && !disabled_too ? api::why_closed(*object) : ""; !why.empty()) return fail(Code::Forbidden, why);
    auto secret = api_.get(resources::secrets, {kKeySpace, key});
    if (!secret && secret.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no key {} (Secret {} in namespace {})", key, key, kKeySpace));
    if (!secret) return pass(std::move(secret.error()), "read key " + key);
    const Json& notes = (*secret)["metadata"]["annotations"];
    if (!disabled_too && notes[kDisabledKey].string() == "true") return fail(Code::Forbidden, fmt::format("key {} is disabled (annotation {} of Secret {} in namespace {})", key, kDisabledKey, key, kKeySpace));
    // Who may delete the object must not open by that what it kept closed.
    if (const std::string& of = notes[api::kKeyObjectNote].string(); !of.empty() && (!object || object->uid != of))
      return fail(Code::Forbidden, fmt::format("the VolumeKey of key {} is gone: nothing is opened by it until an administrator takes annotation {} from Secret {} in namespace {}", key, api::kKeyObjectNote, key, kKeySpace));
    Versions out;
    for (const auto& [name, value] : (*secret)["data"].members()) {
      std::int64_t number = 0;
      const auto end = name.data() + name.size();
      if (name.size() < 2 || name[0] != 'v' || std::from_chars(name.data() + 1, end, number).ptr != end || number <= 0) continue;
      auto bytes = parse_base64(value.string());
      if (!bytes || bytes->size() != kSize) return fail(Code::Invalid, fmt::format("key {}: {} is not {} bytes", key, name, kSize));
      out.emplace(number, std::move(*bytes));
    }
    if (out.empty()) return fail(Code::Invalid, fmt::format("key {} has no version: v1, of {} bytes, is expected in its Secret", key, kSize));
    return out;
  }
  Result<void> make(const std::string& key, const Object& object) {
    std::string bytes = secret_bytes(kSize);
    Json metadata = Json::object({{"name", key}, {"namespace", kKeySpace}});
    if (object) metadata.set("annotations", Json::object({{api::kKeyObjectNote, object->uid}}));
    const Json secret = Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", std::move(metadata)}, {"type", "Opaque"}, {"data", Json::object({{fmt::format("v{}", object ? object->version : 1), base64(bytes)}})}});
    OPENSSL_cleanse(bytes.data(), bytes.size());
    auto made = api_.create(resources::secrets, secret);
    // Only where it is not there: by the chart it is, and making namespaces is nothing that a pool may.
    if (!made && made.error().code == Code::NotFound) {
      auto space = api_.create(resources::namespaces, Json::object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", Json::object({{"name", kKeySpace}})}}));
      if (!space && space.error().code != Code::Exists) return pass(std::move(space.error()), fmt::format("make namespace {}", kKeySpace));
      made = api_.create(resources::secrets, secret);
    }
    // Another pool's daemon may have been earlier: that one holds.
    if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make key " + key);
    if (made) log_info("a key for volumes is made", {{"secret", fmt::format("{}/{}", kKeySpace, key)}});
    return {};
  }
  // Conflict: somebody else wrote it meanwhile.
  Result<void> rotate(const std::string& key, const api::VolumeKey& object) {
    auto secret = api_.get(resources::secrets, {kKeySpace, key});
    if (!secret) return pass(std::move(secret.error()), "read key " + key);
    const std::string name = fmt::format("v{}", object.version);
    if ((*secret)["data"].has(name)) return {};
    std::string bytes = secret_bytes(kSize);
    secret->child("data").set(name, base64(bytes));
    OPENSSL_cleanse(bytes.data(), bytes.size());
    auto done = api_.update(resources::secrets, *secret);
    if (!done) return pass(std::move(done.error()), "rotate key " + key);
    log_info("a key for volumes has a new version", {{"secret", fmt::format("{}/{}", kKeySpace, key)}, {"version", name}});
    return {};
  }

  kube::KubeApi& api_;
};

}  // namespace

std::unique_ptr<Keyring> api_keyring(kube::KubeApi& api) { return std::make_unique<ApiKeyring>(api); }

}  // namespace fairlead::volumes
