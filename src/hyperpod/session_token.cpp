// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/session_token.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "api/identity_crds.h"
#include "base/encoding.h"
#include "base/rng.h"
#include "kube/json.h"

namespace fairlead::hyperpod {

using kube::Json;

namespace {

constexpr std::string_view about = "fairlead session token 1";
constexpr std::size_t key_bytes = 32, nonce_bytes = 12, tag_bytes = 16;

using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;
const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

std::string seal(const std::string& key, const std::string& plain) {
  const std::string nonce = secret_bytes(nonce_bytes);
  std::string box(plain.size(), '\0'), tag(tag_bytes, '\0');
  const Context context(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int size = 0;
  const bool done = context && EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes_of(std::string_view(key)), bytes_of(std::string_view(nonce))) == 1 &&
                    EVP_EncryptUpdate(context.get(), nullptr, &size, bytes_of(about), static_cast<int>(about.size())) == 1 &&
                    EVP_EncryptUpdate(context.get(), bytes_of(box), &size, bytes_of(std::string_view(plain)), static_cast<int>(plain.size())) == 1 && EVP_EncryptFinal_ex(context.get(), bytes_of(box) + size, &size) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, tag_bytes, tag.data()) == 1;
  INVARIANT(done);
  return nonce + box + tag;
}

std::optional<std::string> unseal(const std::string& key, const std::string& sealed) {
  if (sealed.size() < nonce_bytes + tag_bytes) return std::nullopt;
  const std::string nonce = sealed.substr(0, nonce_bytes);
  const std::string box = sealed.substr(nonce_bytes, sealed.size() - nonce_bytes - tag_bytes);
  std::string tag = sealed.substr(sealed.size() - tag_bytes), plain(box.size(), '\0');
  const Context context(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int size = 0;
  const bool good = context && EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes_of(std::string_view(key)), bytes_of(std::string_view(nonce))) == 1 &&
                    EVP_DecryptUpdate(context.get(), nullptr, &size, bytes_of(about), static_cast<int>(about.size())) == 1 &&
                    EVP_DecryptUpdate(context.get(), bytes_of(plain), &size, bytes_of(std::string_view(box)), static_cast<int>(box.size())) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, tag_bytes, tag.data()) == 1 && EVP_DecryptFinal_ex(context.get(), bytes_of(plain) + size, &size) == 1;
  if (!good) return std::nullopt;
  return plain;
}

std::int64_t seconds(Instant time) { return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count(); }
Instant instant(const Json& seconds) { return Instant(std::chrono::seconds(seconds.integer())); }

}  // namespace

Result<void> SessionSeal::check(const std::vector<std::string>& keys) {
  if (keys.empty()) return fail(Code::Invalid, "there is no key for session tokens");
  for (const std::string& key : keys)
    if (key.size() != key_bytes) return fail(Code::Invalid, fmt::format("a key for session tokens has {} bytes instead of {}", key.size(), key_bytes));
  return {};
}

Result<SessionSeal> SessionSeal::make(std::vector<std::string> keys) {
  if (auto good = check(keys); !good) return std::unexpected(good.error());
  return SessionSeal(std::move(keys));
}

Result<void> SessionSeal::rekey(std::vector<std::string> keys) {
  if (auto good = check(keys); !good) return good;
  const std::unique_lock lock(mutex_);
  keys_ = std::move(keys);
  return {};
}

std::vector<std::string> SessionSeal::keys() const {
  const std::shared_lock lock(mutex_);
  return keys_;
}

Result<std::string> SessionSeal::close(const Session& session) const {
  Json policies = Json::array();
  for (const std::string& policy : session.policies) policies.push(policy);
  Json json = Json::object({{"r", session.role}, {"u", session.role_id}, {"n", session.name}, {"a", session.key_id}, {"s", session.secret}, {"i", seconds(session.issued)}, {"e", seconds(session.expires)}, {"p", std::move(policies)}});
  if (!session.tags.empty()) {
    Json tags = Json::array();
    for (const auto& [key, value] : session.tags) tags.push(Json::array({Json(key), Json(value)}));
    json.set("t", std::move(tags));
  }
  if (!session.provider.empty()) json.set("f", session.provider);
  std::string token = base64(seal(keys().front(), kube::print_json(json)));
  if (token.size() > most_token_bytes) return fail(Code::Exhausted, fmt::format("the session's policies make a token of {} bytes; at most {} go into a header", token.size(), most_token_bytes));
  return token;
}

std::optional<Session> SessionSeal::open(std::string_view token) const {
  if (token.size() > most_token_bytes) return std::nullopt;
  const auto sealed = parse_base64(token);
  if (!sealed) return std::nullopt;
  for (const std::string& key : keys()) {
    const auto plain = unseal(key, *sealed);
    if (!plain) continue;
    const auto json = kube::parse_json(*plain);
    if (!json) return std::nullopt;
    Session session{.role = (*json)["r"].string(), .role_id = (*json)["u"].string(), .name = (*json)["n"].string(), .key_id = (*json)["a"].string(), .secret = (*json)["s"].string(), .policies = {}, .issued = instant((*json)["i"]), .expires = instant((*json)["e"])};
    for (const Json& policy : (*json)["p"].items()) session.policies.push_back(policy.string());
    for (const Json& tag : (*json)["t"].items())
      if (tag.items().size() == 2) session.tags.emplace_back(tag.items()[0].string(), tag.items()[1].string());
    session.provider = (*json)["f"].string();
    if (session.role.empty() || session.role_id.empty() || session.key_id.empty() || session.secret.empty()) return std::nullopt;
    return session;
  }
  return std::nullopt;
}

void make_session_key(Session& session) {
  session.key_id = api::identities::random_key_id("ASIA");
  session.secret = base64(secret_bytes(30));
}

}  // namespace fairlead::hyperpod
