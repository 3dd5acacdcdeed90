// SPDX-License-Identifier: Apache-2.0
#include "disk/engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "base/fd.h"
#include "base/log.h"
#include "disk/ublk_disk.h"

namespace fairlead::disk {
namespace {

using Open = std::function<Result<std::unique_ptr<Medium>>()>;

int refuse(const EngineFlags& flags, const std::string& why) {
  fmt::print(stderr, "{}: {}\n", flags.program, why);
  return 1;
}

// Where /dev is a container's, what the kernel adds to its own is not seen.
bool by_ublk(const EngineFlags& flags, const Image& image) {
  if (flags.shows != EngineFlags::Shows::UblkIfItCan) return flags.shows == EngineFlags::Shows::Ublk;
  return !image.is_async() && blocks::sees_new_devices() && blocks::Ublk::open().has_value();
}

// `told`: where to say that it serves, or why not.
int serve(const EngineFlags& flags, std::string key, Fd told, const Clock& clock, const Open& open) {
  const auto tell = [&](const std::string& words) {
    if (told) (void)!::write(told.get(), words.data(), words.size());
    told.reset();
  };
  std::unique_ptr<Cipher> cipher;
  if (flags.encrypted) {
    auto made = Cipher::make(key);
    OPENSSL_cleanse(key.data(), key.size());
    if (!made) return tell(made.error().message), 1;
    cipher = std::move(*made);
  }
  auto medium = open();
  auto image = medium ? Image::open(std::move(*medium), flags.read_only, flags.begins, std::move(cipher)) : Result<std::unique_ptr<Image>>(std::unexpected(std::move(medium.error())));
  auto done = image ? (by_ublk(flags, **image) ? serve_ublk : serve_disk)(**image, flags.place, flags.limits, clock, [&] { tell("ready"); }) : Result<void>(std::unexpected(std::move(image.error())));
  if (done) return 0;
  if (told) tell(done.error().message);
  else log_error("the volume is served no more", {{"why", done.error().message}});
  return 1;
}

// Its parent ends once it serves; what it writes from then on goes to FOLDER.log.
int in_background(const EngineFlags& flags, std::string key, const Clock& clock, const Open& open, char** argv) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return refuse(flags, "no pipe is to be had");
  Fd hears(ends[0]), tells(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return refuse(flags, "no process is to be had");
  if (child == 0) {
    hears.reset();
    ::setsid();
    (void)!::chdir("/");
    // systemd ends those last whose command begins so: file systems are unmounted before that, and need what they lie on (ROOT_STORAGE_DAEMONS).
    argv[0][0] = '@';
    const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC)), log(::open((flags.place.folder + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    ::dup2(null.get(), 0), ::dup2(null.get(), 1), ::dup2(log ? log.get() : null.get(), 2);
    const int status = serve(flags, std::move(key), std::move(tells), clock, open);
    if (status == 0) ::unlink((flags.place.folder + ".log").c_str());
    std::fflush(nullptr);
    ::_exit(status);
  }
  tells.reset();
  OPENSSL_cleanse(key.data(), key.size());
  std::string words;
  char piece[512];
  for (ssize_t got = 0; (got = ::read(hears.get(), piece, sizeof piece)) > 0;) words.append(piece, static_cast<std::size_t>(got));
  return words == "ready" ? 0 : refuse(flags, words.empty() ? "it ended before it served" : words);
}

}  // namespace

void ignore_signals() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
}

int run_engine(const EngineFlags& flags, const Clock& clock, const Open& open, char** argv) {
  std::string key(flags.encrypted ? Cipher::kKey : 0, '\0');
  for (std::size_t got = 0; got < key.size();) {
    const ssize_t n = ::read(0, key.data() + got, key.size() - got);
    if (n <= 0) return refuse(flags, "--key-stdin: 64 bytes are expected");
    got += static_cast<std::size_t>(n);
  }
  return flags.foreground ? serve(flags, std::move(key), Fd(), clock, open) : in_background(flags, std::move(key), clock, open, argv);
}

int ask_engine(const EngineFlags& flags, blocks::DiskRequest::Do what) {
  auto answer = blocks::ask_disk(flags.place.folder + "/control", {.what = what, .limits = {}});
  if (!answer) return refuse(flags, answer.error().message);
  fmt::print("{}", blocks::print(*answer));
  return 0;
}

}  // namespace fairlead::disk
