// SPDX-License-Identifier: Apache-2.0
#include "fleet/ipmi.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/process.h"

namespace fairlead::fleet {

namespace {

constexpr std::chrono::seconds kLimit{40};
constexpr std::size_t kLongestPassword = 20;  // IPMI 2.0, 22.28: Set User Password

class IpmiControl final : public PowerControl {
 public:
  explicit IpmiControl(std::string program) : program_(std::move(program)) {}

  Result<PowerState> state(const BmcAccess& access) override {
    auto said = ask(access, "status");
    if (!said) return std::unexpected(std::move(said.error()));
    return read_ipmi_status(*said);
  }
  Result<void> act(const BmcAccess& access, PowerAction action) override {
    auto now = state(access);
    if (!now) return std::unexpected(std::move(now.error()));
    if (action == PowerAction::On ? *now == PowerState::On : *now == PowerState::Off && action != PowerAction::ForceRestart) return {};
    const char* word = "on";
    switch (action) {
      case PowerAction::On: break;
      case PowerAction::ForceOff: word = "off"; break;
      case PowerAction::GracefulShutdown: word = "soft"; break;
      case PowerAction::ForceRestart: word = *now == PowerState::Off ? "on" : "reset"; break;
    }
    auto said = ask(access, word);
    if (!said) return std::unexpected(std::move(said.error()));
    return {};
  }

 private:
  Result<std::string> ask(const BmcAccess& access, const char* word) const {
    if (access.password.size() > kLongestPassword) return fail(Code::Invalid, fmt::format("the password in Secret {} has more than the {} characters that IPMI allows", access.bmc.secret, kLongestPassword));
    // SHA-256 where the board has it (IPMI 2.0 errata 5), else SHA-1; to ask it first which it has takes ten seconds with those that do not answer that.
    auto said = ask(access, word, "17");
    if (said && said->exit.code != 0 && said->err.find("invalid authentication algorithm") != std::string::npos) said = ask(access, word, "3");
    if (!said && said.error().code == Code::NotFound) return fail(Code::Unavailable, "ipmitool is not installed on the server's machine: apt install ipmitool");
    if (!said) return pass(std::move(said.error()), "ipmitool");
    if (said->exit.code == 0) return std::move(said->out);
    std::string why = said->err.empty() ? said->out : said->err;
    why.resize(std::min<std::size_t>(why.size(), 300));
    std::replace_if(why.begin(), why.end(), [](unsigned char c) { return c < ' ' || c >= 0x7f; }, ' ');
    while (why.ends_with(' ')) why.pop_back();
    return fail(Code::Unavailable, fmt::format("its BMC does not answer, or not this user (ipmitool chassis power {}): {}", word, why));
  }

  // The password goes by a file that is in memory alone: arguments and environments can be read by others.
  Result<Output> ask(const BmcAccess& access, const char* word, const char* cipher_suite) const {
    const Fd password(::memfd_create("bmc", MFD_CLOEXEC));
    if (!password || ::write(password.get(), access.password.data(), access.password.size()) != static_cast<ssize_t>(access.password.size())) return fail_errno(errno, "hand the password to ipmitool");
    constexpr int kInChild = 3;
    Command command{.argv = {program_, "-I", "lanplus", "-H", access.bmc.host, "-p", std::to_string(access.bmc.port), "-U", access.user, "-f", fmt::format("/proc/self/fd/{}", kInChild), "-L", "OPERATOR", "-C", cipher_suite, "-N", "2", "-R", "2", "chassis", "power", word}};
    command.pass = {{password.get(), kInChild}};
    return run(command, kLimit);
  }
  const std::string program_;
};

}  // namespace

Result<PowerState> read_ipmi_status(std::string_view text) {
  if (text.find("Chassis Power is on") != text.npos) return PowerState::On;
  if (text.find("Chassis Power is off") != text.npos) return PowerState::Off;
  return fail(Code::Invalid, "its BMC does not say whether the power is on");
}

std::unique_ptr<PowerControl> make_ipmi_control(std::string program) { return std::make_unique<IpmiControl>(std::move(program)); }

}  // namespace fairlead::fleet
