// SPDX-License-Identifier: Apache-2.0
#include "http/pki.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>

#include "base/encoding.h"
#include "http/openssl.h"

namespace fairlead::http {
namespace {

using Certificate = Owned<X509, X509_free>;
using Names = Owned<GENERAL_NAMES, GENERAL_NAMES_free>;

constexpr auto clock_difference = std::chrono::minutes(5);  // a machine whose clock is a little behind accepts a new certificate
constexpr auto ca_valid = std::chrono::hours(24 * 3650);

std::unexpected<Error> openssl_failed(std::string_view doing) {
  char text[256] = "unknown error";
  if (const auto code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return fail(Code::Internal, fmt::format("{}: {}", doing, text));
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<std::size_t>(size)};
}

Result<Certificate> parse_certificate(const std::string& pem) {
  Certificate certificate(PEM_read_bio_X509(memory_of(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (!certificate) return fail(Code::Invalid, "not a certificate in PEM form");
  return certificate;
}

Result<OwnedKey> parse_key(const std::string& pem) {
  OwnedKey key(PEM_read_bio_PrivateKey(memory_of(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (!key) return fail(Code::Invalid, "not a private key in PEM form");
  return key;
}

Result<std::string> print_certificate(X509* certificate) {
  OwnedMemory out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(out.get(), certificate) != 1) return openssl_failed("write certificate");
  return text_of(out.get());
}

Result<std::string> print_key(EVP_PKEY* key) {
  OwnedMemory out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) return openssl_failed("write key");
  return text_of(out.get());
}

std::time_t seconds_of(Instant time) { return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count(); }

Result<Instant> instant_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return fail(Code::Invalid, "the certificate's end cannot be read");
  // Years that nanoseconds cannot count (9999 is common for "never") end at the last one that they can.
  const auto seconds = std::min<std::int64_t>(::timegm(&parts), 9'000'000'000);
  return Instant(std::chrono::seconds(seconds));
}

// RFC 5280 bounds both at 64 characters; a longer one would be refused by some verifier somewhere, so it is refused here.
Result<void> add_name(X509_NAME* name, int nid, const std::string& value, const char* what) {
  if (value.empty() || value.size() > 64) return fail(Code::Invalid, fmt::format("{} \"{}\" must have 1 to 64 characters", what, value));
  if (X509_NAME_add_entry_by_NID(name, nid, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(value.data()), static_cast<int>(value.size()), -1, 0) != 1) {
    ERR_clear_error();
    return fail(Code::Invalid, fmt::format("{} \"{}\" is not valid UTF-8 text", what, value));
  }
  return {};
}

Result<void> add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1) return openssl_failed(fmt::format("extension {}", OBJ_nid2sn(nid)));
  return {};
}

// Built as values, never as configuration text: a name with a comma must stay one name.
Result<void> add_alternative_names(X509* certificate, const CertificateRequest& request) {
  if (request.dns_names.empty() && request.ip_addresses.empty()) return {};
  const Names names(GENERAL_NAMES_new());
  for (const auto& dns : request.dns_names) {
    if (dns.empty() || dns.size() > 253 || !std::ranges::all_of(dns, [](unsigned char c) { return c > 0x20 && c < 0x7f; })) {
      return fail(Code::Invalid, fmt::format("\"{}\" is not a DNS name", dns));
    }
    GENERAL_NAME* name = GENERAL_NAME_new();
    ASN1_IA5STRING* text = ASN1_IA5STRING_new();
    ASN1_STRING_set(text, dns.data(), static_cast<int>(dns.size()));
    GENERAL_NAME_set0_value(name, GEN_DNS, text);
    sk_GENERAL_NAME_push(names.get(), name);
  }
  for (const auto& address : request.ip_addresses) {
    ASN1_OCTET_STRING* bytes = a2i_IPADDRESS(address.c_str());
    if (bytes == nullptr) {
      ERR_clear_error();
      return fail(Code::Invalid, fmt::format("\"{}\" is not an IP address", address));
    }
    GENERAL_NAME* name = GENERAL_NAME_new();
    GENERAL_NAME_set0_value(name, GEN_IPADD, bytes);
    sk_GENERAL_NAME_push(names.get(), name);
  }
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) != 1) return openssl_failed("alternative names");
  return {};
}

Result<void> set_serial(X509* certificate) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return openssl_failed("serial number");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive and never short
  const Owned<BIGNUM, BN_free> number(BN_bin2bn(bytes, sizeof bytes, nullptr));
  if (!number || BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) return openssl_failed("serial number");
  return {};
}

struct Draft {
  OwnedKey key;
  Certificate certificate;
};

// A certificate for this key with everything but issuer, extensions and signature.
Result<Draft> draft(OwnedKey key, const std::string& common_name, const std::vector<std::string>& organizations, Instant begin, Instant end) {
  Draft out{std::move(key), Certificate(X509_new())};
  if (!out.key || !out.certificate) return openssl_failed("make key");
  X509* const certificate = out.certificate.get();
  X509_set_version(certificate, X509_VERSION_3);
  if (auto done = set_serial(certificate); !done) return std::unexpected(std::move(done.error()));
  if (ASN1_TIME_set(X509_getm_notBefore(certificate), seconds_of(begin)) == nullptr || ASN1_TIME_set(X509_getm_notAfter(certificate), seconds_of(end)) == nullptr ||
      X509_set_pubkey(certificate, out.key.get()) != 1) {
    return openssl_failed("fill certificate");
  }
  X509_NAME* const subject = X509_get_subject_name(certificate);
  for (const auto& organization : organizations) {
    if (auto done = add_name(subject, NID_organizationName, organization, "organization"); !done) return std::unexpected(std::move(done.error()));
  }
  if (auto done = add_name(subject, NID_commonName, common_name, "common name"); !done) return std::unexpected(std::move(done.error()));
  return out;
}

using SigningRequest = Owned<X509_REQ, X509_REQ_free>;

// Its key, if the request is signed by it.
Result<OwnedKey> key_of_request(const std::string& pem) {
  const SigningRequest request(PEM_read_bio_X509_REQ(memory_of(pem).get(), nullptr, nullptr, nullptr));
  OwnedKey key(request ? X509_REQ_get_pubkey(request.get()) : nullptr);
  ERR_clear_error();
  if (!request) return fail(Code::Invalid, "not a signing request in PEM form");
  // Before anything is computed with it: of other kinds that may take long.
  char curve[32] = "";
  const bool known = key && EVP_PKEY_get_base_id(key.get()) == EVP_PKEY_EC && EVP_PKEY_get_group_name(key.get(), curve, sizeof curve, nullptr) == 1 && (std::string_view(curve) == "prime256v1" || std::string_view(curve) == "P-256");
  ERR_clear_error();
  if (!known) return fail(Code::Invalid, "the signing request's key is not one of the curve P-256");
  const bool signed_by_it = X509_REQ_verify(request.get(), key.get()) == 1;
  ERR_clear_error();
  if (!signed_by_it) return fail(Code::Invalid, "the signing request is not signed by its key");
  return key;
}

Result<KeyPair> sign_and_print(const Draft& made, EVP_PKEY* signer) {
  if (X509_sign(made.certificate.get(), signer, EVP_sha256()) == 0) return openssl_failed("sign certificate");
  auto certificate = print_certificate(made.certificate.get());
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  auto key = print_key(made.key.get());
  if (!key) return std::unexpected(std::move(key.error()));
  return KeyPair{std::move(*certificate), std::move(*key)};
}

struct Extension {
  int nid;
  const char* value;
};
Result<void> add_extensions(X509* certificate, X509* issuer, const std::vector<Extension>& extensions) {
  for (const auto& [nid, value] : extensions) {
    if (auto done = add_extension(certificate, issuer, nid, value); !done) return done;
  }
  return {};
}

}  // namespace

Result<KeyPair> make_ca(const std::string& common_name, Instant now) {
  auto made = draft(OwnedKey(EVP_EC_gen("P-256")), common_name, {}, now - clock_difference, now + ca_valid);
  if (!made) return pass(std::move(made.error()), "make certificate authority");
  X509* const certificate = made->certificate.get();
  if (X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) != 1) return openssl_failed("make certificate authority");
  auto done = add_extensions(certificate, certificate,
                             {{NID_basic_constraints, "critical,CA:TRUE"},
                              {NID_key_usage, "critical,digitalSignature,keyCertSign,cRLSign"},
                              {NID_subject_key_identifier, "hash"}});
  if (!done) return pass(std::move(done.error()), "make certificate authority");
  return sign_and_print(*made, made->key.get());
}

namespace {

struct Signed {
  Draft made;
  OwnedKey signer;
};

Result<Signed> prepare(const KeyPair& ca, OwnedKey key, const CertificateRequest& request, Instant now) {
  auto ca_certificate = parse_certificate(ca.certificate_pem);
  if (!ca_certificate) return std::unexpected(std::move(ca_certificate.error()));
  auto ca_key = parse_key(ca.key_pem);
  if (!ca_key) return std::unexpected(std::move(ca_key.error()));
  if (X509_check_private_key(ca_certificate->get(), ca_key->get()) != 1) {
    ERR_clear_error();
    return fail(Code::Invalid, "the authority's key does not belong to its certificate");
  }
  auto ca_end = instant_of(X509_get0_notAfter(ca_certificate->get()));
  if (!ca_end) return std::unexpected(std::move(ca_end.error()));
  if (*ca_end <= now) return fail(Code::Invalid, "the authority's certificate has ended");

  const Instant end = std::min<Instant>(now + request.valid, *ca_end);
  auto made = draft(std::move(key), request.common_name, request.organizations, now - clock_difference, end);
  if (!made) return std::unexpected(std::move(made.error()));
  X509* const certificate = made->certificate.get();
  if (X509_set_issuer_name(certificate, X509_get_subject_name(ca_certificate->get())) != 1) return openssl_failed("name the issuer");
  std::vector<Extension> extensions = {{NID_basic_constraints, "critical,CA:FALSE"}, {NID_key_usage, "critical,digitalSignature"}};
  if (request.server && request.client) extensions.push_back({NID_ext_key_usage, "serverAuth,clientAuth"});
  if (request.server && !request.client) extensions.push_back({NID_ext_key_usage, "serverAuth"});
  if (!request.server && request.client) extensions.push_back({NID_ext_key_usage, "clientAuth"});
  extensions.push_back({NID_subject_key_identifier, "hash"});
  extensions.push_back({NID_authority_key_identifier, "keyid:always"});
  if (auto done = add_extensions(certificate, ca_certificate->get(), extensions); !done) return std::unexpected(std::move(done.error()));
  if (auto done = add_alternative_names(certificate, request); !done) return std::unexpected(std::move(done.error()));
  return Signed{std::move(*made), std::move(*ca_key)};
}

std::string issuing(const CertificateRequest& request) { return fmt::format("issue certificate for \"{}\"", request.common_name); }

}  // namespace

std::string fingerprint(EVP_PKEY* key) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key, &der);
  INVARIANT(size > 0);
  const std::string bytes(reinterpret_cast<const char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return hex(sha256(bytes));
}

Result<KeyPair> issue(const KeyPair& ca, const CertificateRequest& request, Instant now) {
  auto ready = prepare(ca, OwnedKey(EVP_EC_gen("P-256")), request, now);
  if (!ready) return pass(std::move(ready.error()), issuing(request));
  return sign_and_print(ready->made, ready->signer.get());
}

Result<std::string> make_key() {
  const OwnedKey key(EVP_EC_gen("P-256"));
  if (!key) return openssl_failed("make key");
  return print_key(key.get());
}

Result<std::string> make_signing_request(const std::string& key_pem, const std::string& common_name) {
  const std::string doing = "make a signing request";
  auto key = parse_key(key_pem);
  if (!key) return pass(std::move(key.error()), doing);
  const SigningRequest request(X509_REQ_new());
  if (!request || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 || X509_REQ_set_pubkey(request.get(), key->get()) != 1) return openssl_failed(doing);
  if (auto done = add_name(X509_REQ_get_subject_name(request.get()), NID_commonName, common_name, "common name"); !done) return pass(std::move(done.error()), doing);
  const OwnedMemory out(BIO_new(BIO_s_mem()));
  if (X509_REQ_sign(request.get(), key->get(), EVP_sha256()) == 0 || PEM_write_bio_X509_REQ(out.get(), request.get()) != 1) return openssl_failed(doing);
  return text_of(out.get());
}

Result<std::string> sign(const KeyPair& ca, const std::string& signing_request_pem, const CertificateRequest& request, Instant now) {
  auto key = key_of_request(signing_request_pem);
  if (!key) return pass(std::move(key.error()), issuing(request));
  auto ready = prepare(ca, std::move(*key), request, now);
  if (!ready) return pass(std::move(ready.error()), issuing(request));
  if (X509_sign(ready->made.certificate.get(), ready->signer.get(), EVP_sha256()) == 0) return openssl_failed(issuing(request));
  return print_certificate(ready->made.certificate.get());
}

Result<std::string> fingerprint_of_key(const std::string& key_pem) {
  auto key = parse_key(key_pem);
  if (!key) return std::unexpected(std::move(key.error()));
  return fingerprint(key->get());
}

Result<std::string> fingerprint_of_request(const std::string& signing_request_pem) {
  auto key = key_of_request(signing_request_pem);
  if (!key) return std::unexpected(std::move(key.error()));
  return fingerprint(key->get());
}

Result<std::string> fingerprint_of_certificate(const std::string& certificate_pem) {
  auto certificate = parse_certificate(certificate_pem);
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  EVP_PKEY* const key = X509_get0_pubkey(certificate->get());
  ERR_clear_error();
  if (key == nullptr) return fail(Code::Invalid, "the certificate's key cannot be read");
  return fingerprint(key);
}

Result<Instant> beginning(const std::string& certificate_pem) {
  auto certificate = parse_certificate(certificate_pem);
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  return instant_of(X509_get0_notBefore(certificate->get()));
}

Result<Instant> expiry(const std::string& certificate_pem) {
  auto certificate = parse_certificate(certificate_pem);
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  return instant_of(X509_get0_notAfter(certificate->get()));
}

}  // namespace fairlead::http
