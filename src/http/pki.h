// SPDX-License-Identifier: Apache-2.0
// The site's certificate authority: one self-signed ECDSA P-256 CA and the certificates it gives out. By OpenSSL.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fairlead::http {

struct KeyPair {
  std::string certificate_pem;
  std::string key_pem;
};
struct CertificateRequest {
  std::string common_name;                  // "system:node:worker-0", "fairlead-server"
  std::vector<std::string> organizations;   // Kubernetes groups: "system:nodes", "system:masters"
  std::vector<std::string> dns_names, ip_addresses;  // subject alternative names
  bool server = false, client = false;      // extended key usage
  std::chrono::hours valid{24 * 365};
};
Result<KeyPair> make_ca(const std::string& common_name, Instant now);
Result<KeyPair> issue(const KeyPair& ca, const CertificateRequest& request, Instant now);
// A key of one's own (P-256, PEM), and the request to certify it (PKCS #10, PEM). The name is for people: whoever signs decides on his own.
Result<std::string> make_key();
Result<std::string> make_signing_request(const std::string& key_pem, const std::string& common_name);
// As issue(), for the key of such a request, which has to be signed by that key; nothing else in it counts. Invalid: it is none, or its key is not of the curve P-256.
Result<std::string> sign(const KeyPair& ca, const std::string& signing_request_pem, const CertificateRequest& request, Instant now);
// SHA-256, in hex, of the public key (SubjectPublicKeyInfo, DER) of a key, a request or a certificate. Equal keys, equal words (http::Peer::key).
Result<std::string> fingerprint_of_key(const std::string& key_pem);
Result<std::string> fingerprint_of_request(const std::string& signing_request_pem);
Result<std::string> fingerprint_of_certificate(const std::string& certificate_pem);
Result<Instant> beginning(const std::string& certificate_pem);
// When it ends. Invalid: not a PEM certificate.
Result<Instant> expiry(const std::string& certificate_pem);

}  // namespace fairlead::http
