// SPDX-License-Identifier: Apache-2.0
#include "governance/conversion_point.h"

#include <fmt/format.h>

#include "base/log.h"

namespace fairlead::governance {

namespace {
constexpr std::chrono::seconds pause{5};
constexpr std::chrono::hours ten_years{24 * 365 * 10};  // of a certificate that lives in memory and is made anew with each start
bool is_address(const std::string& host) { return host.find_first_not_of("0123456789.") == std::string::npos || host.find(':') != std::string::npos; }
}  // namespace

ConversionPoint::ConversionPoint(kube::KubeApi& api, const Clock& clock, Options options) : api_(api), clock_(clock), options_(std::move(options)) {
  thread_ = std::jthread([this](std::stop_token stop) {
    bool told = false;
    while (!stop.stop_requested()) {
      auto served = serve();
      std::unique_lock lock(mutex_);
      if (served) {
        log_info("the conversion webhook serves", {{"address", options_.address}, {"port", std::to_string(server_->port())}});
        where_ = std::move(*served);
        changed_.notify_all();
        return;
      }
      if (!std::exchange(told, true)) log_warn("the conversion webhook cannot serve yet, trying again: v1beta1 of queues fails meanwhile", {{"why", served.error().message}});
      changed_.wait_for(lock, stop, pause, [] { return false; });
    }
  });
}

ConversionPoint::~ConversionPoint() = default;  // the thread is joined first: it is the last member

Result<api::QueueWebhook> ConversionPoint::serve() {
  auto authority = webhook_authority(api_, options_.secret, clock_);
  if (!authority) return std::unexpected(std::move(authority.error()));
  http::CertificateRequest request{.common_name = "fairlead-webhooks", .server = true, .valid = ten_years};
  const std::string name = options_.service.empty() ? options_.address : fmt::format("{}.{}.svc", options_.service, options_.secret.space);
  (options_.service.empty() && is_address(name) ? request.ip_addresses : request.dns_names).push_back(name);
  auto certificate = http::issue(*authority, request, clock_.now());
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  auto server = serve_conversion(options_.address, options_.port, *certificate);
  if (!server) return std::unexpected(std::move(server.error()));
  const std::lock_guard lock(mutex_);
  server_ = std::move(*server);
  api::QueueWebhook out{.url = {}, .space = options_.secret.space, .service = options_.service, .ca_pem = authority->certificate_pem};
  const bool six = options_.address.find(':') != std::string::npos;
  if (options_.service.empty()) out.url = fmt::format("https://{}{}{}:{}{}", six ? "[" : "", options_.address, six ? "]" : "", server_->port(), conversion_path);
  return out;
}

std::optional<api::QueueWebhook> ConversionPoint::where(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return where_.has_value(); });
  return where_;
}

}  // namespace fairlead::governance
