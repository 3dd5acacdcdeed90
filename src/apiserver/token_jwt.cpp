// SPDX-License-Identifier: Apache-2.0
#include "apiserver/token_jwt.h"

#include <fmt/format.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>

#include "base/encoding.h"
#include "http/openssl.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

using http::memory_of;
using KeyPtr = http::OwnedKey;
using Digest = http::Owned<EVP_MD_CTX, EVP_MD_CTX_free>;
using Memory = http::OwnedMemory;
using Number = http::Owned<BIGNUM, BN_free>;
using Signature = http::Owned<ECDSA_SIG, ECDSA_SIG_free>;

constexpr std::size_t token_limit = 16 * 1024;
constexpr int half = 32;  // of an ES256 signature: r and s
constexpr int least_rsa_bits = 2048;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

KeyPtr read_key(const std::string& pem, bool must_be_private) {
  KeyPtr key(PEM_read_bio_PrivateKey(memory_of(pem).get(), nullptr, nullptr, nullptr));
  if (!key && !must_be_private) key.reset(PEM_read_bio_PUBKEY(memory_of(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return key;
}

std::string number_bytes(const EVP_PKEY* key, const char* name, int width = 0) {
  BIGNUM* raw = nullptr;
  if (EVP_PKEY_get_bn_param(key, name, &raw) != 1) return {};
  const Number number(raw);
  std::string out(static_cast<std::size_t>(width > 0 ? width : BN_num_bytes(number.get())), '\0');
  BN_bn2binpad(number.get(), bytes_of(out), static_cast<int>(out.size()));
  return out;
}

// DER (what OpenSSL makes) to r || s (what a token holds) and back.
std::string raw_of_der(const std::string& der) {
  const unsigned char* at = bytes_of(std::string_view(der));
  const Signature signature(d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())));
  INVARIANT(signature != nullptr);
  std::string out(2 * half, '\0');
  BN_bn2binpad(ECDSA_SIG_get0_r(signature.get()), bytes_of(out), half);
  BN_bn2binpad(ECDSA_SIG_get0_s(signature.get()), bytes_of(out) + half, half);
  return out;
}
std::string der_of_raw(const std::string& raw) {
  if (raw.size() != 2 * half) return {};
  const Signature signature(ECDSA_SIG_new());
  Number r(BN_bin2bn(bytes_of(std::string_view(raw)), half, nullptr)), s(BN_bin2bn(bytes_of(std::string_view(raw)) + half, half, nullptr));
  if (!signature || !r || !s || ECDSA_SIG_set0(signature.get(), r.get(), s.get()) != 1) return {};
  r.release(), s.release();  // the signature owns them now
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(signature.get(), &der);
  if (size <= 0) return {};
  std::string out(reinterpret_cast<char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return out;
}

std::unexpected<Error> unauthorized(std::string why) { return fail(Code::Unauthorized, std::move(why)); }

}  // namespace

struct TokenKeys::Key {
  KeyPtr key;
  bool rsa = false;
  std::string id;  // as Kubernetes: base64url of SHA-256 of the public key in DER
  const char* algorithm() const { return rsa ? "RS256" : "ES256"; }

  std::string sign(const std::string& text) const {
    const Digest digest(EVP_MD_CTX_new());
    std::size_t size = 0;
    INVARIANT(EVP_DigestSignInit(digest.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1);
    INVARIANT(EVP_DigestSign(digest.get(), nullptr, &size, bytes_of(std::string_view(text)), text.size()) == 1);
    std::string out(size, '\0');
    INVARIANT(EVP_DigestSign(digest.get(), bytes_of(out), &size, bytes_of(std::string_view(text)), text.size()) == 1);
    out.resize(size);
    return rsa ? out : raw_of_der(out);
  }
  bool verify(std::string_view text, const std::string& signature) const {
    const std::string form = rsa ? signature : der_of_raw(signature);
    const Digest digest(EVP_MD_CTX_new());
    const bool good = !form.empty() && EVP_DigestVerifyInit(digest.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
                      EVP_DigestVerify(digest.get(), bytes_of(std::string_view(form)), form.size(), bytes_of(text), text.size()) == 1;
    ERR_clear_error();
    return good;
  }
  Json jwk() const {
    Json out = Json::object({{"use", "sig"}, {"kty", rsa ? "RSA" : "EC"}, {"kid", id}, {"alg", algorithm()}});
    if (rsa) {
      out.set("n", base64url(number_bytes(key.get(), OSSL_PKEY_PARAM_RSA_N))).set("e", base64url(number_bytes(key.get(), OSSL_PKEY_PARAM_RSA_E)));
    } else {
      out.set("crv", "P-256");
      out.set("x", base64url(number_bytes(key.get(), OSSL_PKEY_PARAM_EC_PUB_X, half))).set("y", base64url(number_bytes(key.get(), OSSL_PKEY_PARAM_EC_PUB_Y, half)));
    }
    return out;
  }
};

std::string base64url(std::string_view bytes) {
  std::string out = base64(bytes);
  while (!out.empty() && out.back() == '=') out.pop_back();
  std::replace(out.begin(), out.end(), '+', '-');
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

Result<std::string> parse_base64url(std::string_view text) {
  if (text.find_first_of("+/=") != std::string_view::npos) return fail(Code::Invalid, "not base64url");
  std::string plain(text);
  std::replace(plain.begin(), plain.end(), '-', '+');
  std::replace(plain.begin(), plain.end(), '_', '/');
  while (plain.size() % 4 != 0) plain += '=';
  auto bytes = parse_base64(plain);
  // One text for one value: bits beyond the last byte must be zero.
  if (!bytes || base64url(*bytes) != text) return fail(Code::Invalid, "not base64url");
  return bytes;
}

Result<JwtParts> parse_jwt(std::string_view token) {
  if (token.size() > token_limit) return fail(Code::Invalid, "the token is too long");
  const auto first = token.find('.');
  const auto second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos) return fail(Code::Invalid, "a token has three parts");
  JwtParts out;
  out.signed_text = token.substr(0, second);
  const auto object_of = [](std::string_view part) -> Result<Json> {
    const auto bytes = parse_base64url(part);
    if (!bytes) return std::unexpected(bytes.error());
    auto json = kube::parse_json(*bytes, {.depth_limit = 16});
    if (json && !json->is_object()) return fail(Code::Invalid, "a part of a token must be a JSON object");
    return json;
  };
  auto header = object_of(token.substr(0, first));
  if (!header) return std::unexpected(std::move(header.error()));
  auto claims = object_of(token.substr(first + 1, second - first - 1));
  if (!claims) return std::unexpected(std::move(claims.error()));
  auto signature = parse_base64url(token.substr(second + 1));
  if (!signature) return std::unexpected(std::move(signature.error()));
  out.header = std::move(*header), out.claims = std::move(*claims), out.signature = std::move(*signature);
  return out;
}

Result<TokenKeys> TokenKeys::make(const std::string& signing_pem, const std::vector<std::string>& verifying_pem) {
  TokenKeys out;
  const auto add = [&](const std::string& pem, bool signing) -> Result<void> {
    auto made = std::make_shared<Key>();
    made->key = read_key(pem, signing);
    if (!made->key) return fail(Code::Invalid, signing ? "not a private key in PEM form" : "not a key in PEM form");
    made->rsa = EVP_PKEY_base_id(made->key.get()) == EVP_PKEY_RSA;
    char curve[32] = {};
    const bool p256 = EVP_PKEY_get_utf8_string_param(made->key.get(), OSSL_PKEY_PARAM_GROUP_NAME, curve, sizeof curve, nullptr) == 1 && std::string_view(curve) == "prime256v1";
    ERR_clear_error();
    if (made->rsa ? EVP_PKEY_bits(made->key.get()) < least_rsa_bits : !p256) return fail(Code::Invalid, "keys of tokens are EC P-256, or RSA of at least 2048 bits");
    unsigned char* der = nullptr;
    const int size = i2d_PUBKEY(made->key.get(), &der);
    INVARIANT(size > 0);
    made->id = base64url(sha256({reinterpret_cast<const char*>(der), static_cast<std::size_t>(size)}));
    OPENSSL_free(der);
    out.keys_.push_back(std::move(made));
    return {};
  };
  if (auto added = add(signing_pem, true); !added) return std::unexpected(std::move(added.error()));
  for (const std::string& pem : verifying_pem) {
    if (auto added = add(pem, false); !added) return std::unexpected(std::move(added.error()));
  }
  return out;
}

std::string TokenKeys::sign(const Json& claims) const {
  const Key& key = *keys_.front();
  const Json header = Json::object({{"alg", key.algorithm()}, {"kid", key.id}});
  const std::string text = base64url(print_json(header)) + "." + base64url(print_json(claims));
  return text + "." + base64url(key.sign(text));
}

Result<Json> TokenKeys::verify(std::string_view token) const {
  auto parts = parse_jwt(token);
  if (!parts) return unauthorized("the token cannot be read: " + parts.error().message);
  const std::string &id = parts->header["kid"].string(), &algorithm = parts->header["alg"].string();
  if (parts->header.has("crit")) return unauthorized("the token needs extensions that are not known here");
  for (const auto& key : keys_) {
    if ((!id.empty() && id != key->id) || algorithm != key->algorithm()) continue;
    if (key->verify(parts->signed_text, parts->signature)) return std::move(parts->claims);
  }
  return unauthorized("no key of this site signed the token");
}

Json TokenKeys::jwks() const {
  Json keys = Json::array();
  for (const auto& key : keys_) keys.push(key->jwk());
  return Json::object({{"keys", std::move(keys)}});
}

std::vector<std::string> TokenKeys::algorithms() const {
  std::vector<std::string> out;
  for (const auto& key : keys_) {
    if (std::find(out.begin(), out.end(), key->algorithm()) == out.end()) out.emplace_back(key->algorithm());
  }
  return out;
}

Result<std::string> make_token_key() {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const Memory memory(BIO_new(BIO_s_mem()));
  if (!key || PEM_write_bio_PKCS8PrivateKey(memory.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) return fail(Code::Internal, "a key for tokens could not be made");
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

}  // namespace fairlead::apiserver
