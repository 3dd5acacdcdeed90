// SPDX-License-Identifier: Apache-2.0
#include "http/pki.h"

#include <gmock/gmock.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace fairlead::http {
namespace {

using testing::HasSubstr;

Instant noon() { return *parse_time("2026-03-01T12:00:00Z"); }

using CertificateHandle = std::unique_ptr<X509, decltype(&X509_free)>;
CertificateHandle read(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  return {PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr), X509_free};
}

// Verifies as OpenSSL would at `at`; the text of the verdict.
std::string verdict(const std::string& ca, const std::string& leaf, Instant at, int purpose) {
  const auto root = read(ca);
  const auto certificate = read(leaf);
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> store(X509_STORE_new(), X509_STORE_free);
  X509_STORE_add_cert(store.get(), root.get());
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(X509_STORE_CTX_new(), X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr);
  X509_STORE_CTX_set_time(context.get(), 0, std::chrono::floor<std::chrono::seconds>(at).time_since_epoch().count());
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  X509_verify_cert(context.get());
  return X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
}

struct Site {
  KeyPair ca = *make_ca("fairlead-ca", noon());
  KeyPair server = *issue(ca, {.common_name = "fairlead-server", .dns_names = {"localhost", "a,b"}, .ip_addresses = {"127.0.0.1", "::1"}, .server = true}, noon());
  KeyPair client = *issue(ca, {.common_name = "system:node:w0", .organizations = {"system:nodes", "x"}, .client = true, .valid = std::chrono::hours(48)}, noon());
};

TEST(Pki, LeavesVerifyForTheirPurposeAlone) {
  const Site site;
  EXPECT_EQ(verdict(site.ca.certificate_pem, site.server.certificate_pem, noon(), X509_PURPOSE_SSL_SERVER), "ok");
  EXPECT_EQ(verdict(site.ca.certificate_pem, site.client.certificate_pem, noon(), X509_PURPOSE_SSL_CLIENT), "ok");
  EXPECT_NE(verdict(site.ca.certificate_pem, site.client.certificate_pem, noon(), X509_PURPOSE_SSL_SERVER), "ok");
  EXPECT_NE(verdict(site.ca.certificate_pem, site.server.certificate_pem, noon(), X509_PURPOSE_SSL_CLIENT), "ok");
}

TEST(Pki, ValidFromFiveMinutesBackToItsEnd) {
  const Site site;
  EXPECT_EQ(verdict(site.ca.certificate_pem, site.client.certificate_pem, noon() - 4min, X509_PURPOSE_SSL_CLIENT), "ok");
  EXPECT_THAT(verdict(site.ca.certificate_pem, site.client.certificate_pem, noon() - 6min, X509_PURPOSE_SSL_CLIENT), HasSubstr("not yet valid"));
  EXPECT_THAT(verdict(site.ca.certificate_pem, site.client.certificate_pem, noon() + 49h, X509_PURPOSE_SSL_CLIENT), HasSubstr("expired"));
  EXPECT_EQ(*expiry(site.client.certificate_pem), noon() + 48h);
}

TEST(Pki, ALeafNeverOutlivesItsAuthority) {
  const Site site;
  const auto late = issue(site.ca, {.common_name = "x", .client = true, .valid = std::chrono::hours(24 * 36500)}, noon());
  ASSERT_TRUE(late);
  EXPECT_EQ(*expiry(late->certificate_pem), *expiry(site.ca.certificate_pem));
  EXPECT_FALSE(issue(site.ca, {.common_name = "x"}, *expiry(site.ca.certificate_pem) + 1s));
}

TEST(Pki, AlternativeNamesStayWhole) {
  const Site site;
  const auto certificate = read(site.server.certificate_pem);
  EXPECT_EQ(X509_check_host(certificate.get(), "localhost", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(certificate.get(), "b", 0, 0, nullptr), 0);  // "a,b" is one name
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "::1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "127.0.0.2", 0), 0);
}

TEST(Pki, SerialsDiffer) {
  const Site site;
  EXPECT_NE(ASN1_INTEGER_cmp(X509_get0_serialNumber(read(site.server.certificate_pem).get()), X509_get0_serialNumber(read(site.client.certificate_pem).get())), 0);
}

TEST(Pki, AnotherAuthorityOfTheSameNameDoesNotVerify) {
  const Site site;
  const auto other = make_ca("fairlead-ca", noon());
  EXPECT_NE(verdict(other->certificate_pem, site.client.certificate_pem, noon(), X509_PURPOSE_SSL_CLIENT), "ok");
}

TEST(Pki, RefusesWhatCannotBeACertificate) {
  const Site site;
  EXPECT_EQ(issue(site.ca, {.common_name = std::string(65, 'x')}, noon()).error().code, Code::Invalid);
  EXPECT_EQ(issue(site.ca, {.common_name = ""}, noon()).error().code, Code::Invalid);
  EXPECT_EQ(issue(site.ca, {.common_name = "x", .ip_addresses = {"300.1.1.1"}}, noon()).error().code, Code::Invalid);
  EXPECT_EQ(issue(site.ca, {.common_name = "x", .dns_names = {"a b"}}, noon()).error().code, Code::Invalid);
  EXPECT_EQ(issue({site.ca.certificate_pem, site.client.key_pem}, {.common_name = "x"}, noon()).error().code, Code::Invalid);
  EXPECT_EQ(expiry("nonsense").error().code, Code::Invalid);
}

TEST(Pki, WhoAsksForACertificateGetsWhatTheSignerDecidesForItsKeyAlone) {
  const Site site;
  const std::string key = *make_key();
  const std::string request = *make_signing_request(key, "system:masters or what you like");
  const auto certificate = sign(site.ca, request, {.common_name = "system:node:a", .organizations = {"system:nodes"}, .ip_addresses = {"10.0.0.7"}, .server = true, .client = true, .valid = 24h}, noon());
  ASSERT_TRUE(certificate) << certificate.error().message;
  EXPECT_EQ(verdict(site.ca.certificate_pem, *certificate, noon(), X509_PURPOSE_SSL_CLIENT), "ok");
  EXPECT_EQ(verdict(site.ca.certificate_pem, *certificate, noon(), X509_PURPOSE_SSL_SERVER), "ok");
  char name[64] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(read(*certificate).get()), NID_commonName, name, sizeof name);
  EXPECT_STREQ(name, "system:node:a");
  EXPECT_EQ(*beginning(*certificate), noon() - 5min);
  EXPECT_EQ(*expiry(*certificate), noon() + 24h);
  EXPECT_EQ(*fingerprint_of_key(key), *fingerprint_of_request(request));
  EXPECT_EQ(*fingerprint_of_key(key), *fingerprint_of_certificate(*certificate));
  EXPECT_EQ(fingerprint_of_key(key)->size(), 64U);
  EXPECT_NE(*fingerprint_of_key(key), *fingerprint_of_key(*make_key()));
}

TEST(Pki, RequestsThatAreNoneAreRefused) {
  const Site site;
  const std::string request = *make_signing_request(*make_key(), "a");
  std::string other = *make_signing_request(*make_key(), "a");
  // The middle of another one: its signature is not of that key.
  other.replace(100, 60, request.substr(100, 60));
  for (const std::string& bad : {std::string(), std::string("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"), site.ca.certificate_pem, request.substr(0, request.size() / 2), other}) {
    EXPECT_EQ(sign(site.ca, bad, {.common_name = "a", .client = true}, noon()).error().code, Code::Invalid) << bad;
    EXPECT_EQ(fingerprint_of_request(bad).error().code, Code::Invalid);
  }
  EXPECT_EQ(fingerprint_of_certificate("x").error().code, Code::Invalid);
  EXPECT_EQ(fingerprint_of_key("x").error().code, Code::Invalid);
}

}  // namespace
}  // namespace fairlead::http
