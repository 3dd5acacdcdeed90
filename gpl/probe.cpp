// SPDX-License-Identifier: GPL-3.0-or-later
#include "probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

constexpr auto kPace = std::chrono::milliseconds(250);

std::string_view value_of(std::string_view line) { return trim(line.substr(line.find('=') + 1)); }

// Slurm's library lies beside its plug-ins, in a folder that depends on the distribution.
void* slurm_library() {
  for (const char* pattern : {"/usr/lib/*/slurm-wlm/libslurmfull.so", "/usr/lib/*/slurm/libslurmfull.so", "/usr/lib64/slurm/libslurmfull.so", "/usr/lib/slurm/libslurmfull.so", "/usr/lib/*/libslurm.so.*", "/usr/lib64/libslurm.so.*"}) {
    glob_t found{};
    void* library = nullptr;
    if (::glob(pattern, 0, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc && !library; ++i) library = ::dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL);
    ::globfree(&found);
    if (library) return library;
  }
  return nullptr;
}

}  // namespace

bool is_hung(const Silence& silence) {
  using namespace std::chrono_literals;
  const bool busy = !silence.stopped && (silence.runnable || silence.processor * 5 > silence.since_answer);  // a fifth of one core, and more
  if (!silence.answered_ever) return silence.since_answer > (busy ? 300s : 30s);
  if (!busy) return silence.since_answer > 1s;
  return silence.since_answer > 10s * (1 << std::min(silence.times_killed, 5));
}

bool is_key(std::string_view line, std::string_view key) {
  const std::string_view text = trim(line);
  if (text.size() <= key.size() || ::strncasecmp(text.data(), key.data(), key.size()) != 0) return false;
  const std::string_view rest = trim(text.substr(key.size()));
  return rest.starts_with('=');
}

std::string controller_name(const std::string& slurm_conf) {
  for (const std::string& line : split(slurm_conf, '\n'))
    if (is_key(line, "SlurmctldHost")) {
      const std::string_view value = value_of(line);
      return std::string(trim(value.substr(0, value.find_first_of("( \t"))));
    }
  return "";
}

std::string own_address_conf(const std::string& slurm_conf) {
  std::string out;
  for (const std::string& line : split(slurm_conf, '\n')) out += (is_key(line, "SlurmctldHost") ? "SlurmctldHost=" + controller_name(slurm_conf) + "(127.0.0.1)" : line) + "\n";
  return out;
}

int run_probe() {
  void* library = slurm_library();
  int (*ping)(int) = nullptr;
  void (*init)(const char*) = nullptr;
  if (void* at = library ? ::dlsym(library, "slurm_ping") : nullptr) std::memcpy(&ping, &at, sizeof ping);
  if (void* at = library ? ::dlsym(library, "slurm_init") : nullptr) std::memcpy(&init, &at, sizeof init);
  if (ping && init) init(nullptr);  // by SLURM_CONF
  // A Slurm that keeps its library elsewhere is asked by its tool, which costs a process each time.
  const auto answers = [&] {
    if (ping) return ping(0) == 0;
    auto told = fairlead::run({.argv = {"scontrol", "ping"}}, std::chrono::seconds(2));
    return told && told->exit.code == 0 && told->out.find("is UP") != std::string::npos;
  };
  while (true) {
    if (answers()) {
      if (::write(1, "1", 1) != 1) return 0;
      std::this_thread::sleep_for(kPace);
    } else {
      std::this_thread::sleep_for(ping ? kPace / 10 : kPace);  // starting, or gone
    }
  }
}

Result<std::pair<Child, Fd>> start_probe(const std::string& slurm_conf_path) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno(errno, "make a pipe");
  Fd out(ends[0]);
  const Fd in(ends[1]);
  const char* path = std::getenv("PATH");
  auto child = Child::start({.argv = {"/proc/self/exe", "probe"},
                             .environment = std::map<std::string, std::string>{{"PATH", path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"}, {"SLURM_CONF", slurm_conf_path}},
                             .stdout_fd = in.get(),
                             .stderr_fd = -1,
                             .die_with_parent = true});
  if (!child) return std::unexpected(std::move(child.error()));
  return std::pair(std::move(*child), std::move(out));
}

std::optional<ProcessLook> look_at_process(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  // The name may hold anything but comes in brackets; behind it: state, 10 numbers, utime, stime in ticks.
  const auto fields_of = [](const std::string& path) {
    auto stat = read_file(path);
    const auto close = stat ? stat->rfind(')') : std::string::npos;
    return close == std::string::npos ? std::vector<std::string>() : split(std::string_view(*stat).substr(std::min(stat->size(), close + 2)), ' ');
  };
  const auto fields = fields_of(folder + "/stat");
  if (fields.size() < 13) return std::nullopt;
  const long long ticks = std::atoll(fields[11].c_str()) + std::atoll(fields[12].c_str());
  ProcessLook look{.stopped = fields[0] == "T" || fields[0] == "t", .processor = quorum::Time(ticks * 1'000'000'000LL / ::sysconf(_SC_CLK_TCK))};
  if (auto threads = list_dir(folder + "/task"))
    for (const std::string& thread : *threads)
      if (const auto of = fields_of(folder + "/task/" + thread + "/stat"); !of.empty() && (of[0] == "R" || of[0] == "D")) look.runnable = true;
  return look;
}

}  // namespace fairlead::companion
