// SPDX-License-Identifier: Apache-2.0
#include "apiserver/warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "apiserver/kinds/resources.h"
#include "apiserver/quota_kinds.h"
#include "base/encoding.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

struct Block {
  std::string type, bytes;
};

std::vector<Block> pem_blocks(const std::string& text) {
  std::vector<Block> out;
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  char *name = nullptr, *header = nullptr;
  unsigned char* data = nullptr;
  long length = 0;
  while (bio && PEM_read_bio(bio.get(), &name, &header, &data, &length) == 1) {
    out.push_back({name, std::string(reinterpret_cast<const char*>(data), static_cast<std::size_t>(length))});
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(data);
  }
  ERR_clear_error();  // the end of the text is an error to it
  return out;
}

std::string types_of(const std::vector<Block>& blocks) {
  std::vector<std::string> types;
  for (const Block& block : blocks) types.push_back(block.type);
  return fmt::format("[{}]", fmt::join(types, " "));
}

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

}  // namespace

std::string key_pair_error(const std::string& certificate_pem, const std::string& key_pem) {
  const Block *certificate = nullptr, *key = nullptr;
  const std::vector<Block> certificates = pem_blocks(certificate_pem);
  for (const Block& block : certificates)
    if (block.type == "CERTIFICATE" && certificate == nullptr) certificate = &block;
  if (certificate == nullptr && certificates.empty()) return "tls: failed to find any PEM data in certificate input";
  if (certificate == nullptr && certificates.size() == 1 && certificates[0].type.ends_with("PRIVATE KEY"))
    return "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched";
  if (certificate == nullptr) return fmt::format("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: {}", types_of(certificates));
  const std::vector<Block> keys = pem_blocks(key_pem);
  for (const Block& block : keys)
    if ((block.type == "PRIVATE KEY" || block.type.ends_with(" PRIVATE KEY")) && key == nullptr) key = &block;
  if (key == nullptr && keys.empty()) return "tls: failed to find any PEM data in key input";
  if (key == nullptr && keys.size() == 1 && keys[0].type == "CERTIFICATE") return "tls: found a certificate rather than a key in the PEM for the private key";
  if (key == nullptr) return fmt::format("tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: {}", types_of(keys));

  const auto* at = reinterpret_cast<const unsigned char*>(certificate->bytes.data());
  const std::unique_ptr<X509, decltype(&X509_free)> parsed(d2i_X509(nullptr, &at, static_cast<long>(certificate->bytes.size())), &X509_free);
  const auto* from = reinterpret_cast<const unsigned char*>(key->bytes.data());
  const Key secret(d2i_AutoPrivateKey(nullptr, &from, static_cast<long>(key->bytes.size())), &EVP_PKEY_free);
  const Key open(parsed ? X509_get_pubkey(parsed.get()) : nullptr, &EVP_PKEY_free);
  ERR_clear_error();
  if (!parsed || !open) return "x509: malformed certificate";
  if (!secret) return "tls: failed to parse private key";
  if (EVP_PKEY_base_id(open.get()) != EVP_PKEY_base_id(secret.get())) return "tls: private key type does not match public key type";
  return EVP_PKEY_eq(open.get(), secret.get()) == 1 ? "" : "tls: private key does not match public key";
}

std::vector<std::string> object_warnings(const kube::Resource& resource, const Json& object) {
  if (workloads::is(resource, workloads::quotas)) return quota_warnings(object);
  if (!resource.group.empty() || resource.plural != kube::resources::secrets.plural || object["type"].string() != "kubernetes.io/tls") return {};
  const auto part = [&](const char* name) { return parse_base64(object["data"][name].string()).value_or(""); };
  const std::string wrong = key_pair_error(part("tls.crt"), part("tls.key"));
  return wrong.empty() ? std::vector<std::string>() : std::vector<std::string>{wrong};
}

}  // namespace fairlead::apiserver
