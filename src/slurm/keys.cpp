// SPDX-License-Identifier: Apache-2.0
#include "slurm/keys.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <memory>

#include "base/encoding.h"
#include "base/rng.h"
#include "slurm/plan/rest.h"

namespace fairlead::slurm {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// RFC 4251 section 5.
void put_u32(std::string& out, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift & 255);
}
void put_string(std::string& out, std::string_view value) {
  put_u32(out, static_cast<std::uint32_t>(value.size()));
  out += value;
}
void put_mpint(std::string& out, const BIGNUM* value) {
  std::string bytes(static_cast<std::size_t>(BN_num_bytes(value)), '\0');
  BN_bn2bin(value, reinterpret_cast<unsigned char*>(bytes.data()));
  if (!bytes.empty() && (bytes[0] & 0x80)) bytes.insert(0, 1, '\0');
  put_string(out, bytes);
}

Result<std::string> private_pem(EVP_PKEY* key) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
  if (!out || PEM_write_bio_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) return fail(Code::Internal, "writing a private key failed");
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

std::string public_line(const char* type, const std::string& blob, const std::string& comment) { return std::string(type) + " " + base64(blob) + " " + comment + "\n"; }

struct SshKey {
  std::string secret, line;
};

Result<SshKey> make_rsa(const std::string& comment) {
  const Key key(EVP_RSA_gen(3072), EVP_PKEY_free);
  if (!key) return fail(Code::Internal, "making an RSA key failed");
  auto pem = private_pem(key.get());
  if (!pem) return std::unexpected(std::move(pem.error()));
  BIGNUM *n = nullptr, *e = nullptr;
  EVP_PKEY_get_bn_param(key.get(), OSSL_PKEY_PARAM_RSA_N, &n);
  EVP_PKEY_get_bn_param(key.get(), OSSL_PKEY_PARAM_RSA_E, &e);
  INVARIANT(n && e);
  std::string blob;
  put_string(blob, "ssh-rsa");
  put_mpint(blob, e);
  put_mpint(blob, n);
  BN_free(n);
  BN_free(e);
  return SshKey{*pem, public_line("ssh-rsa", blob, comment)};
}

Result<SshKey> make_ecdsa(const std::string& comment) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  if (!key) return fail(Code::Internal, "making an ECDSA key failed");
  auto pem = private_pem(key.get());
  if (!pem) return std::unexpected(std::move(pem.error()));
  unsigned char point[133];
  std::size_t size = 0;
  INVARIANT(EVP_PKEY_get_octet_string_param(key.get(), OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point, &size) == 1);
  std::string blob;
  put_string(blob, "ecdsa-sha2-nistp256");
  put_string(blob, "nistp256");
  put_string(blob, std::string_view(reinterpret_cast<char*>(point), size));
  return SshKey{*pem, public_line("ecdsa-sha2-nistp256", blob, comment)};
}

// OpenSSH reads Ed25519 private keys in its own container only (PROTOCOL.key in OpenSSH's source).
Result<SshKey> make_ed25519(const std::string& comment) {
  const Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free);
  unsigned char seed[32], point[32];
  std::size_t seed_size = sizeof seed, point_size = sizeof point;
  if (!key || EVP_PKEY_get_raw_private_key(key.get(), seed, &seed_size) != 1 || EVP_PKEY_get_raw_public_key(key.get(), point, &point_size) != 1)
    return fail(Code::Internal, "making an Ed25519 key failed");
  const std::string_view pub(reinterpret_cast<char*>(point), sizeof point);
  std::string blob;
  put_string(blob, "ssh-ed25519");
  put_string(blob, pub);

  const std::string check = secret_bytes(4);
  std::string inner = check + check;
  put_string(inner, "ssh-ed25519");
  put_string(inner, pub);
  put_string(inner, std::string(reinterpret_cast<char*>(seed), sizeof seed) + std::string(pub));
  put_string(inner, comment);
  for (char pad = 1; inner.size() % 8 != 0; ++pad) inner += pad;

  std::string whole("openssh-key-v1\0", 15);
  put_string(whole, "none");
  put_string(whole, "none");
  put_string(whole, "");
  put_u32(whole, 1);
  put_string(whole, blob);
  put_string(whole, inner);
  std::string text = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
  const std::string encoded = base64(whole);
  for (std::size_t i = 0; i < encoded.size(); i += 70) text += encoded.substr(i, 70) + "\n";
  text += "-----END OPENSSH PRIVATE KEY-----\n";
  return SshKey{std::move(text), public_line("ssh-ed25519", blob, comment)};
}

// A key on P-256 and a certificate that it signs itself, for ten years: clients trust it alone, so no authority has to be kept safe.
Result<std::pair<std::string, std::string>> make_certificate(const std::string& name) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  if (!key || !certificate) return fail(Code::Internal, "making an ECDSA key failed");
  const std::string random = secret_bytes(8);
  std::uint64_t number = 0;
  std::memcpy(&number, random.data(), sizeof number);
  X509* const out = certificate.get();
  // A day back, for clocks that differ.
  bool done = X509_set_version(out, 2) == 1 && ASN1_INTEGER_set_uint64(X509_get_serialNumber(out), number >> 1) == 1 && X509_gmtime_adj(X509_getm_notBefore(out), -86'400) != nullptr &&
              X509_time_adj_ex(X509_getm_notAfter(out), 3653, 0, nullptr) != nullptr && X509_set_pubkey(out, key.get()) == 1;
  X509_NAME* const subject = X509_get_subject_name(out);
  const std::string common = name.substr(0, 64);  // ub-common-name of RFC 5280
  done = done && X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(common.data()), static_cast<int>(common.size()), -1, 0) == 1 && X509_set_issuer_name(out, subject) == 1;
  for (const auto& [nid, value] : {std::pair<int, const char*>{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"}, {NID_key_usage, "critical,digitalSignature,keyCertSign"}, {NID_ext_key_usage, "serverAuth"}}) {
    const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value), X509_EXTENSION_free);
    done = done && extension && X509_add_ext(out, extension.get(), -1) == 1;
  }
  const std::unique_ptr<BIO, decltype(&BIO_free)> bytes(BIO_new(BIO_s_mem()), BIO_free);
  done = done && X509_sign(out, key.get(), EVP_sha256()) > 0 && bytes && PEM_write_bio_X509(bytes.get(), out) == 1;
  if (!done) return fail(Code::Internal, "signing a certificate failed");
  auto pem = private_pem(key.get());
  if (!pem) return std::unexpected(std::move(pem.error()));
  char* data = nullptr;
  const long size = BIO_get_mem_data(bytes.get(), &data);
  return std::pair(std::move(*pem), std::string(data, static_cast<std::size_t>(size)));
}

}  // namespace

Result<std::map<std::string, std::string>> make_keys(Keys keys, const std::string& comment) {
  std::map<std::string, std::string> out;
  const auto add = [&](const std::string& name, Result<SshKey> key) -> Result<void> {
    if (!key) return pass(std::move(key.error()), name);
    out[name] = std::move(key->secret);
    out[name + ".pub"] = std::move(key->line);
    return {};
  };
  switch (keys) {
    case Keys::Munge: out["munge.key"] = secret_bytes(1024); break;
    case Keys::Tokens: out[kTokenKeyFile] = secret_bytes(64); break;  // HS256: as many bytes as a block of its hash
    case Keys::Quorum: out["key"] = secret_bytes(32); break;
    case Keys::Database: {
      auto certificate = make_certificate(comment);
      if (!certificate) return pass(std::move(certificate.error()), "certificate of the database");
      out["password"] = hex(secret_bytes(24));
      out["tls.key"] = std::move(certificate->first);
      out["tls.crt"] = certificate->second;
      out["ca.crt"] = std::move(certificate->second);
      break;
    }
    case Keys::HostKeys:
      if (auto done = add("ssh_host_rsa_key", make_rsa(comment)); !done) return std::unexpected(std::move(done.error()));
      if (auto done = add("ssh_host_ecdsa_key", make_ecdsa(comment)); !done) return std::unexpected(std::move(done.error()));
      if (auto done = add("ssh_host_ed25519_key", make_ed25519(comment)); !done) return std::unexpected(std::move(done.error()));
      break;
    case Keys::ClientKey:
      if (auto done = add("ssh_ed25519", make_ed25519(comment)); !done) return std::unexpected(std::move(done.error()));
      break;
  }
  return out;
}

}  // namespace fairlead::slurm
