// SPDX-License-Identifier: Apache-2.0
// A board's Redfish service whose power is switched by commands: a tool of tests, in no package.
//   fairlead-bmc --listen ADDRESS:PORT --certificate FILE --key FILE --password-file FILE COMMAND
// COMMAND state: exit 0 is on, 1 off, else an error; COMMAND On | ForceOff | GracefulShutdown | ForceRestart: switches.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>

#include "base/files.h"
#include "base/process.h"
#include "fleet/redfish_service.h"

int main(int argc, char** argv) {
  using namespace fairlead;
  std::string listen, certificate, key, password_file, command;
  CLI::App app("a Redfish service for tests");
  app.add_option("--listen", listen)->required();
  app.add_option("--certificate", certificate)->required();
  app.add_option("--key", key)->required();
  app.add_option("--password-file", password_file)->required();
  app.add_option("command", command)->required();
  CLI11_PARSE(app, argc, argv);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const auto password = read_file(password_file);
  if (!password) {
    fmt::print(stderr, "{}\n", password.error().message);
    return 1;
  }
  const auto ask = [&](const std::string& word) { return run(Command{.argv = {command, word}}, std::chrono::seconds(20)); };
  fleet::RedfishServiceOptions options;
  options.address = listen.substr(0, listen.rfind(':'));
  options.port = static_cast<unsigned short>(std::stoi(listen.substr(listen.rfind(':') + 1)));
  options.tls = {.certificate = certificate, .key = key, .client_ca = {}};
  options.password = *password;
  while (options.password.ends_with('\n')) options.password.pop_back();
  options.state = [&](const std::string&) -> Result<fleet::PowerState> {
    auto said = ask("state");
    if (!said) return std::unexpected(std::move(said.error()));
    if (said->exit.code > 1) return fail(Code::Internal, said->err);
    return said->exit.code == 0 ? fleet::PowerState::On : fleet::PowerState::Off;
  };
  options.reset = [&](const std::string&, const std::string& type) -> Result<void> {
    auto said = ask(type);
    if (!said) return std::unexpected(std::move(said.error()));
    if (said->exit.code != 0) return fail(Code::Internal, said->err);
    return {};
  };
  const auto service = fleet::RedfishService::open(std::move(options));
  if (!service) {
    fmt::print(stderr, "{}\n", service.error().message);
    return 1;
  }
  fmt::print("serving\n");
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}
