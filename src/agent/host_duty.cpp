// SPDX-License-Identifier: Apache-2.0
#include "agent/host_duty.h"

#include "agent/companion.h"
#include "agent/join.h"
#include "base/files.h"
#include "base/log.h"
#include "base/own_program.h"
#include "http/pki.h"

namespace fairlead::agent {

using kube::Json;

namespace {
constexpr auto kPeriod = std::chrono::milliseconds(5'000);
constexpr auto kBetweenRenewals = std::chrono::minutes(1);
}  // namespace

bool is_to_reboot(const Json& machine, const std::string& boot_id, Instant now) {
  const Json& reboot = machine["status"]["reboot"];
  // Nobody expects an order of yesterday, and somebody may work here again.
  const auto began = parse_time(reboot["began"].string());
  if (!began || now - *began > kNoRebootAfter) return false;
  return !boot_id.empty() && reboot["phase"].string() == "Rebooting" && reboot["was"]["boot"].string() == boot_id;
}

HostDuty::HostDuty(kube::KubeApi& api, const Clock& clock, node::NodeConfig config, std::string boot_id, HostDutyPorts ports)
    : api_(api), clock_(clock), config_(std::move(config)), boot_id_(std::move(boot_id)), ports_(std::move(ports)), thread_([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          look();
          std::unique_lock lock(mutex_);
          changed_.wait_for(lock, stop, kPeriod, [] { return false; });
        }
      }) {}

HostDuty::~HostDuty() {
  thread_.request_stop();
  thread_.join();
}

void HostDuty::look() {
  if (!config_.companion_dir.empty())
    if (auto source = program_beside("fairlead-slurm"))
      if (auto placed = place_companion(*source, config_.companion_dir); !placed) log_warn("Slurm's companion is not in its place", {{"folder", config_.companion_dir}, {"reason", placed.error().message}});
  renew_if_due();
  reboot_if_asked();
}

void HostDuty::renew_if_due() {
  auto text = read_file(config_.cert_file, 1_MiB);
  if (!text) return;
  const auto begin = http::beginning(*text), end = http::expiry(*text);
  if (!begin || !end || !renewal_is_due(*begin, *end, clock_.now())) return;
  if (asked_renewal_ && clock_.monotonic() - *asked_renewal_ < kBetweenRenewals) return;
  asked_renewal_ = clock_.monotonic();
  if (auto done = ports_.renew(); !done) {
    log_warn("the certificate is not renewed yet", {{"ends", print_time(*end)}, {"reason", done.error().message}});
    return;
  }
  // By a clock that is wrong the new one would be due as well, and the agent would do nothing else.
  auto fresh = read_file(config_.cert_file, 1_MiB);
  const auto fresh_begin = fresh ? http::beginning(*fresh) : begin, fresh_end = fresh ? http::expiry(*fresh) : end;
  if (!fresh_begin || !fresh_end || renewal_is_due(*fresh_begin, *fresh_end, clock_.now())) {
    log_warn("the certificate was renewed and would have to be again: is this machine's clock right?", {{"ends", fresh_end ? print_time(*fresh_end) : ""}, {"now", print_time(clock_.now())}});
    return;
  }
  log_info("the certificate was renewed; the agent starts anew", {{"ended", print_time(*end)}});
  ports_.restart();
}

void HostDuty::reboot_if_asked() {
  if (rebooting_) return;
  auto machine = api_.get(kube::resources::machines, {"", config_.node_name});
  if (!machine) {
    const bool outside = machine.error().code == Code::Unauthorized;
    if (outside && !outside_) log_error("this host is not of the site any more: what runs here goes on, nothing new comes; `fairlead leave` ends it", {{"node", config_.node_name}});
    outside_ = outside;
    return;
  }
  outside_ = false;
  if (!is_to_reboot(*machine, boot_id_, clock_.now())) return;
  log_warn("this host reboots", {{"request", (*machine)["status"]["reboot"]["id"].string()}, {"by", (*machine)["status"]["reboot"]["by"].string()}});
  if (auto done = ports_.reboot(); !done) {
    log_error("the reboot could not be begun", {{"reason", done.error().message}});
    return;
  }
  rebooting_ = true;
}

}  // namespace fairlead::agent
