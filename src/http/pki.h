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
// When it ends. Invalid: not a PEM certificate.
Result<Instant> expiry(const std::string& certificate_pem);

}  // namespace fairlead::http
