// SPDX-License-Identifier: Apache-2.0
#include "cli/move.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <iterator>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "cli/move_archive.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

// While a terminal does not echo: what it was, for whoever ends this process meanwhile. tcsetattr, signal and raise may be called by a handler (POSIX.1-2017, 2.4.3).
int silenced = -1;
termios as_before {};
void echo_and_end(int signal) {
  ::tcsetattr(silenced, TCSANOW, &as_before);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}
constexpr int kEnds[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

Result<std::string> ask_terminal(const std::string& question) {
  const Fd terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!terminal || ::tcgetattr(terminal.get(), &as_before) != 0) return fail(Code::Invalid, "there is no terminal to ask for the passphrase: give --passphrase-file FILE (or - for stdin)");
  silenced = terminal.get();
  struct sigaction ends {}, was[std::size(kEnds)];
  ends.sa_handler = echo_and_end;
  for (std::size_t i = 0; i < std::size(kEnds); ++i) ::sigaction(kEnds[i], &ends, &was[i]);
  termios silent = as_before;
  silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  (void)!::write(terminal.get(), question.data(), question.size());
  ::tcsetattr(terminal.get(), TCSAFLUSH, &silent);
  std::string out;
  char c = 0;
  for (ssize_t n; (n = ::read(terminal.get(), &c, 1)) == 1 && c != '\n' && out.size() < 4096;) out += c;
  ::tcsetattr(terminal.get(), TCSAFLUSH, &as_before);
  for (std::size_t i = 0; i < std::size(kEnds); ++i) ::sigaction(kEnds[i], &was[i], nullptr);
  (void)!::write(terminal.get(), "\n", 1);
  return out;
}

}  // namespace

Result<std::string> secret_line(const std::string& path) {
  std::string text;
  if (path == "-") {
    char c = 0;
    for (ssize_t n; (n = ::read(STDIN_FILENO, &c, 1)) == 1 && c != '\n' && text.size() < 4096;) text += c;
    return text;
  }
  auto read = read_file(path, 4_KiB);
  if (!read) return read;
  text = read->substr(0, read->find('\n'));
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

Result<std::string> passphrase_of(const MoveOptions& options, bool fresh) {
  std::string out;
  if (!options.passphrase_file.empty()) {
    auto read = secret_line(options.passphrase_file);
    if (!read) return pass(std::move(read.error()), "the passphrase");
    out = std::move(*read);
  } else {
    auto asked = ask_terminal("Passphrase of the export: ");
    if (!asked) return asked;
    if (fresh) {
      auto again = ask_terminal("The same again: ");
      if (!again) return again;
      if (*again != *asked) return fail(Code::Invalid, "the two passphrases differ");
    }
    out = std::move(*asked);
  }
  if (fresh && out.size() < kShortestPassphrase) return fail(Code::Invalid, fmt::format("a passphrase of {} characters or more is wanted: the export holds the keys of the cluster", kShortestPassphrase));
  return out;
}

Result<std::string> said(Session& session, const SetKeeper& keeper, const std::vector<std::string>& words, std::chrono::milliseconds limit, const std::string& input) {
  auto ran = ask_set_keeper(session, keeper, words, limit, input);
  if (!ran) return std::unexpected(std::move(ran.error()));
  if (ran->exit_code != 0) return fail(Code::Conflict, std::string(trim(ran->err)));
  return std::string(trim(ran->out));
}

Result<Json> state_of(Session& session, const SetKeeper& keeper, const std::vector<std::string>& words) {
  auto text = said(session, keeper, words, 60s);
  if (!text) return std::unexpected(std::move(text.error()));
  auto json = kube::parse_json(*text);
  if (!json) return pass(std::move(json.error()), "what the pod said");
  return json;
}

// What is under way there: "export" and "import" of its list; null: nothing.
Result<Json> under_way(Session& session, const SetKeeper& keeper, const char* what) {
  auto all = state_of(session, keeper, {"sets"});
  if (!all) return all;
  return (*all)[what];
}

std::string titles_of(const Json& objects) {
  std::vector<std::string> out;
  for (const Json& one : objects.items()) out.push_back(title_of(one));
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace fairlead::cli
