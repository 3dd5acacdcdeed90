// SPDX-License-Identifier: Apache-2.0
#include "volumes/keyring.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <charconv>
#include <map>

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
    auto versions = read(key);
    if (!versions && versions.error().code == Code::NotFound && key == kServiceKey) {
      if (auto made = make(key); !made) return std::unexpected(std::move(made.error()));
      versions = read(key);
    }
    if (!versions) return std::unexpected(std::move(versions.error()));
    const auto& [number, bytes] = *versions->rbegin();
    Wrapped out{.key = key, .version = number, .box = close_box(bytes, about, secret, secret_bytes(kBoxNonce))};
    forget(*versions);
    return out;
  }

  Result<std::string> unwrap(const Wrapped& wrapped, const std::string& about) override {
    auto versions = read(wrapped.key);
    if (!versions) return std::unexpected(std::move(versions.error()));
    const auto version = versions->find(wrapped.version);
    auto out = version == versions->end() ? Result<std::string>(fail(Code::NotFound, fmt::format("key {} has no version {} any more", wrapped.key, wrapped.version))) : open_box(version->second, about, wrapped.box);
    forget(*versions);
    return out ? std::move(out) : Result<std::string>(pass(std::move(out.error()), "open a volume's key by key " + wrapped.key));
  }

 private:
  using Versions = std::map<std::int64_t, std::string>;
  static void forget(Versions& versions) {
    for (auto& [number, bytes] : versions) OPENSSL_cleanse(bytes.data(), bytes.size());
  }
  Result<Versions> read(const std::string& key) {
    auto secret = api_.get(resources::secrets, {kKeySpace, key});
    if (!secret && secret.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no key {} (Secret {} in namespace {})", key, key, kKeySpace));
    if (!secret) return pass(std::move(secret.error()), "read key " + key);
    if (kube::annotations_of(*secret)[kDisabledKey] == "true") return fail(Code::Forbidden, fmt::format("key {} is disabled (annotation {} of Secret {} in namespace {})", key, kDisabledKey, key, kKeySpace));
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
  Result<void> make(const std::string& key) {
    auto space = api_.create(resources::namespaces, Json::object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", Json::object({{"name", kKeySpace}})}}));
    if (!space && space.error().code != Code::Exists) return pass(std::move(space.error()), fmt::format("make namespace {}", kKeySpace));
    std::string bytes = secret_bytes(kSize);
    auto made = api_.create(resources::secrets, Json::object({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", Json::object({{"name", key}, {"namespace", kKeySpace}})}, {"type", "Opaque"}, {"data", Json::object({{"v1", base64(bytes)}})}}));
    OPENSSL_cleanse(bytes.data(), bytes.size());
    // Another pool's daemon may have been earlier: that one holds.
    if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make key " + key);
    if (made) log_info("the service's key for volumes is made", {{"secret", fmt::format("{}/{}", kKeySpace, key)}});
    return {};
  }

  kube::KubeApi& api_;
};

}  // namespace

std::unique_ptr<Keyring> api_keyring(kube::KubeApi& api) { return std::make_unique<ApiKeyring>(api); }

}  // namespace fairlead::volumes
