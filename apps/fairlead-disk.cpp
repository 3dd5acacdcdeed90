// SPDX-License-Identifier: Apache-2.0
// fairlead-disk: the engine of one volume (src/disk). Started by fairlead-volumes, and outlives it. Wiring only.
//   fairlead-disk serve --file FILE --folder DIR --name NAME [--read-only] [--iops N] [--throughput BYTES] [--begins BYTE --key-stdin]
//   fairlead-disk status|stop --folder DIR
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/fd.h"
#include "base/log.h"
#include "disk/fuse_disk.h"

namespace fairlead {
namespace {

struct Flags {
  std::string file;
  disk::DiskPlace place;
  blocks::DiskLimits limits;
  bool read_only = false, foreground = false, encrypted = false;
  std::int64_t begins = 0;
};

int refuse(const std::string& why) {
  fmt::print(stderr, "fairlead-disk: {}\n", why);
  return 1;
}

// `told`: where to say that it serves, or why not.
int serve(const Flags& flags, std::string key, Fd told) {
  const auto tell = [&](const std::string& words) {
    if (told) (void)!::write(told.get(), words.data(), words.size());
    told.reset();
  };
  std::unique_ptr<disk::Cipher> cipher;
  if (flags.encrypted) {
    auto made = disk::Cipher::make(key);
    OPENSSL_cleanse(key.data(), key.size());
    if (!made) return tell(made.error().message), 1;
    cipher = std::move(*made);
  }
  auto image = disk::Image::open(flags.file, flags.read_only, flags.begins, std::move(cipher));
  auto done = image ? disk::serve_disk(**image, flags.place, flags.limits, SystemClock(), [&] { tell("ready"); }) : Result<void>(std::unexpected(std::move(image.error())));
  if (done) return 0;
  if (told) tell(done.error().message);
  else log_error("the volume is served no more", {{"why", done.error().message}});
  return 1;
}

// Its parent ends once it serves; what it writes from then on goes to FOLDER.log.
int in_background(const Flags& flags, std::string key, char** argv) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return refuse("no pipe is to be had");
  Fd hears(ends[0]), tells(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return refuse("no process is to be had");
  if (child == 0) {
    hears.reset();
    ::setsid();
    (void)!::chdir("/");
    // systemd ends those last whose command begins so: file systems are unmounted before that, and need what they lie on (ROOT_STORAGE_DAEMONS).
    argv[0][0] = '@';
    const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC)), log(::open((flags.place.folder + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    ::dup2(null.get(), 0), ::dup2(null.get(), 1), ::dup2(log ? log.get() : null.get(), 2);
    const int status = serve(flags, std::move(key), std::move(tells));
    if (status == 0) ::unlink((flags.place.folder + ".log").c_str());
    std::fflush(nullptr);
    ::_exit(status);
  }
  tells.reset();
  OPENSSL_cleanse(key.data(), key.size());
  std::string words;
  char piece[512];
  for (ssize_t got = 0; (got = ::read(hears.get(), piece, sizeof piece)) > 0;) words.append(piece, static_cast<std::size_t>(got));
  return words == "ready" ? 0 : refuse(words.empty() ? "it ended before it served" : words);
}

int ask(const Flags& flags, blocks::DiskRequest::Do what) {
  auto answer = blocks::ask_disk(flags.place.folder + "/control", {.what = what, .limits = {}});
  if (!answer) return refuse(answer.error().message);
  fmt::print("{}", blocks::print(*answer));
  return 0;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  // A volume is in use until its device is gone, whatever else ends: it ends when it is told to by its socket.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  ::mallopt(M_ARENA_MAX, 1);
  fairlead::Flags flags;
  CLI::App app("fairlead-disk " FAIRLEAD_VERSION ": the engine of one volume; started by fairlead-volumes");
  app.require_subcommand(1);
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  auto* serve = app.add_subcommand("serve", "serve a volume's file as the file NAME in DIR/disk; goes on in the background once it does");
  auto* status = app.add_subcommand("status", "what an engine does");
  auto* stop = app.add_subcommand("stop", "end one; refused while its file is open");
  for (CLI::App* one : {serve, status, stop}) one->add_option("--folder", flags.place.folder, "absolute; it holds the socket, and the mount")->required();
  serve->add_option("--file", flags.file, "of the volume")->required();
  serve->add_option("--name", flags.place.name, "as which it is served")->required();
  serve->add_flag("--read-only", flags.read_only, "refuse writes");
  serve->add_option("--iops", flags.limits.iops, "operations a second; 0: no limit")->check(CLI::NonNegativeNumber);
  serve->add_option("--throughput", flags.limits.bytes_per_second, "bytes a second; 0: no limit")->check(CLI::NonNegativeNumber);
  serve->add_option("--begins", flags.begins, "byte of the file at which the data begins")->check(CLI::NonNegativeNumber);
  serve->add_flag("--key-stdin", flags.encrypted, "the data is encrypted (AES-256-XTS, sectors of 4096 bytes); the 64 bytes of the key come by stdin");
  serve->add_flag("--foreground", flags.foreground, "stay");
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging("fairlead-disk", "info");
  if (!flags.place.folder.starts_with('/')) return fairlead::refuse("--folder: an absolute path is expected");
  if (status->parsed()) return fairlead::ask(flags, fairlead::blocks::DiskRequest::Do::Status);
  if (stop->parsed()) return fairlead::ask(flags, fairlead::blocks::DiskRequest::Do::Stop);
  // Neither an argument nor the environment, which others can read.
  std::string key(flags.encrypted ? fairlead::disk::Cipher::kKey : 0, '\0');
  for (std::size_t got = 0; got < key.size();) {
    const ssize_t n = ::read(0, key.data() + got, key.size() - got);
    if (n <= 0) return fairlead::refuse("--key-stdin: 64 bytes are expected");
    got += static_cast<std::size_t>(n);
  }
  return flags.foreground ? fairlead::serve(flags, std::move(key), fairlead::Fd()) : fairlead::in_background(flags, std::move(key), argv);
}
