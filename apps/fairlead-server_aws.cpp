// SPDX-License-Identifier: Apache-2.0
// The AWS face, wired for both engines.
#include "apps/fairlead-server.h"
#include "apiserver/audit.h"
#include "hyperpod/door.h"
#include "hyperpod/s3.h"
#include "kube/authority.h"

namespace fairlead {
namespace {

// What clients may call it: loopback, where it listens, and the host of --aws-endpoint.
http::CertificateRequest certificate_for(const std::string& address, const std::string& pod_host, const std::string& endpoint) {
  http::CertificateRequest out{.common_name = "fairlead-aws", .organizations = {}, .dns_names = {"localhost"}, .ip_addresses = {"127.0.0.1", "::1"}, .server = true, .client = false, .valid = std::chrono::hours(24 * 365 * 10)};
  const auto add = [&](const std::string& host) {
    const bool ip = host.find_first_not_of("0123456789.") == std::string::npos || host.find(':') != std::string::npos;
    auto& names = ip ? out.ip_addresses : out.dns_names;
    if (!host.empty() && host != "0.0.0.0" && host != "::" && std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
  };
  add(address);
  add(pod_host);
  std::string host = endpoint;
  if (const auto scheme = host.find("://"); scheme != std::string::npos) host.erase(0, scheme + 3);
  host = host.substr(0, host.find('/'));
  if (host.starts_with('[')) host = host.substr(1, host.find(']') == std::string::npos ? std::string::npos : host.find(']') - 1);
  else host = host.substr(0, host.find(':'));
  add(host);
  return out;
}

}  // namespace

Result<std::unique_ptr<hyperpod::Door>> open_aws(const Flags& flags, kube::KubeApi& api, const Clock& clock, const AwsWiring& wiring) {
  hyperpod::DoorOptions options{.address = wiring.address.empty() ? "0.0.0.0" : wiring.address, .port = wiring.port, .certificate = {}, .authority = {}, .endpoint = flags.aws_endpoint, .space = wiring.space, .account = flags.aws_account, .region = flags.aws_region, .front = {}};
  options.names = flags.aws_relaxed_names ? hyperpod::Names::Relaxed : hyperpod::Names::AsInAws;
  options.front.per_second = flags.aws_rate;
  if (!wiring.s3_folder.empty()) options.front.s3 = [buckets = hyperpod::Buckets(wiring.s3_folder)](const http::Request& asked, const hyperpod::Call& call, std::optional<hyperpod::AwsError>& error) { return hyperpod::answer_s3(asked, call, buckets, error); };
  if (!wiring.s3_folder.empty())
    options.read_object = [buckets = hyperpod::Buckets(wiring.s3_folder)](const std::string& bucket, const std::string& key) -> Result<std::string> {
      auto object = buckets.read(bucket, key);
      if (!object) return std::unexpected(std::move(object.error()));
      return std::move(object->second);
    };
  options.pod_host = wiring.pod_host;
  options.pod_hook = wiring.pod_hook;
  options.eks = wiring.cluster;
  options.logs = wiring.logs;
  options.node_ca_pem = wiring.node_ca_pem;
  options.check_node = wiring.check_node;
  options.alarms = wiring.alarms;
  options.eks.name = flags.eks_name;
  if (!flags.eks_endpoint.empty()) options.eks.endpoint = flags.eks_endpoint;
  if (!flags.aws_endpoint.empty() && !flags.aws_endpoint.starts_with("https://")) return fail(Code::Invalid, "--aws-endpoint " + flags.aws_endpoint + ": https://HOST[:PORT] is expected");
  http::CertificateRequest request = certificate_for(wiring.address, wiring.pod_host, flags.aws_endpoint);
  if (wiring.issue) {
    auto certificate = wiring.issue(request);
    if (!certificate) return std::unexpected(std::move(certificate.error()));
    options.certificate = std::move(*certificate);
    options.authority.certificate_pem = wiring.ca_pem;
  } else {
    auto authority = kube::shared_authority(api, {wiring.space, api::identities::authority_name}, "fairlead-aws", clock);
    if (!authority) return std::unexpected(std::move(authority.error()));
    auto certificate = http::issue(*authority, request, clock.now());
    if (!certificate) return std::unexpected(std::move(certificate.error()));
    options.certificate = std::move(*certificate);
    options.authority.certificate_pem = authority->certificate_pem;
  }
  const std::string path = flags.aws_audit_log.empty() ? wiring.audit_log : flags.aws_audit_log == "off" ? "" : std::filesystem::absolute(flags.aws_audit_log).string();
  if (!path.empty()) {
    auto log = apiserver::AuditLog::open({.path = path, .size_limit = {std::int64_t{flags.audit_megabytes} << 20}, .backups = flags.audit_backups});
    if (!log) return pass(std::move(log.error()), "--aws-audit-log");
    options.front.audit = [kept = std::shared_ptr<apiserver::AuditLog>(std::move(*log))](const kube::Json& record) { kept->write(kube::print_json(record)); };
  } else if (flags.aws_audit_log != "off") {  // in a pod: what collects its log keeps it, and no volume fills up
    options.front.audit = [](const kube::Json& record) { log_info("AWS call", {{"record", kube::print_json(record)}}); };
  }
  return hyperpod::Door::open(api, clock, std::move(options));
}

}  // namespace fairlead
