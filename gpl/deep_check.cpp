// SPDX-License-Identifier: GPL-3.0-or-later
#include "deep_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"

namespace fairlead::companion {
namespace {

using Clock = std::chrono::steady_clock;

// What a part came to: words for people, and whether they tell of a fault of the machine. An error: the check could not be made.
struct Found {
  std::string words;
  bool fault = false;
};

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Integers and doubles by turns, with one right result: IEEE 754 leaves no choice in what is added and multiplied here, in this order.
std::uint64_t work_unit(std::uint64_t seed) {
  constexpr int kSize = 48;
  static thread_local std::array<double, kSize * kSize> a, b, c;
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(mixed(seed + i) >> 40) / 16777216.0;
    b[i] = static_cast<double>(mixed(seed ^ (i << 20)) >> 40) / 16777216.0;
  }
  for (int i = 0; i < kSize; ++i)
    for (int j = 0; j < kSize; ++j) {
      double sum = 0;
      for (int k = 0; k < kSize; ++k) sum += a[static_cast<std::size_t>(i * kSize + k)] * b[static_cast<std::size_t>(k * kSize + j)];
      c[static_cast<std::size_t>(i * kSize + j)] = sum;
    }
  std::uint64_t out = seed;
  for (const double value : c) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    out = mixed(out ^ bits);
  }
  const std::string sum = sha256(std::string_view(reinterpret_cast<const char*>(c.data()), sizeof c));
  std::uint64_t bits = 0;
  std::memcpy(&bits, sum.data(), sizeof bits);
  return out ^ bits;
}

std::vector<int> processors() {
  std::vector<int> out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) out.push_back(i);
  if (out.empty()) out.push_back(-1);
  return out;
}

// Each processor does the same work again and again; each result is compared with the first of that work, whichever processor had it.
Result<Found> try_processors(std::chrono::seconds limit, int flip_at) {
  constexpr std::uint64_t kKinds = 64;
  const auto end = Clock::now() + limit;
  std::vector<std::uint64_t> right(kKinds);
  for (std::uint64_t kind = 0; kind < kKinds; ++kind) right[kind] = work_unit(kind);
  std::atomic<std::uint64_t> units = 0;
  std::atomic<int> flips = 0;
  std::mutex mutex;
  std::string wrong;
  const std::vector<int> cpus = processors();
  std::vector<std::jthread> threads;
  for (const int cpu : cpus) try {
    threads.emplace_back([&, cpu] {
      if (cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        ::sched_setaffinity(0, sizeof one, &one);
      }
      for (std::uint64_t kind = 0; Clock::now() < end; kind = (kind + 1) % kKinds) {
        std::uint64_t result = work_unit(kind);
        if (flip_at >= 0 && flips++ == flip_at) result ^= 1;
        ++units;
        if (result == right[kind]) continue;
        const std::lock_guard lock(mutex);
        if (wrong.empty()) wrong = fmt::format("processor {} computed {:016x} where {:016x} is right (work {})", cpu, result, right[kind], kind);
        return;
      }
    });
  } catch (const std::system_error& error) {
    return fail(Code::Exhausted, fmt::format("a thread for each of {} processors: {}", cpus.size(), error.what()));  // those that run end by themselves
  }
  threads.clear();
  if (!wrong.empty()) return Found{wrong, true};
  return Found{fmt::format("processors: {}, {} results, all the same", cpus.size(), units.load())};
}

// Bytes that may be taken without harm to others: half of what is free, and of what this container may have.
std::uint64_t free_memory() {
  std::uint64_t out = 0;
  if (const auto info = read_file("/proc/meminfo"))
    if (const auto at = info->find("MemAvailable:"); at != std::string::npos) out = std::strtoull(info->c_str() + at + 13, nullptr, 10) * 1024;
  for (const auto& [limit, used] : {std::pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"), std::pair("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes")}) {
    const auto most = read_file(limit), now = read_file(used);
    if (!most || !now || most->starts_with("max")) continue;
    const std::uint64_t bytes = std::strtoull(most->c_str(), nullptr, 10), taken = std::strtoull(now->c_str(), nullptr, 10);
    if (bytes > taken) out = std::min(out, bytes - taken);
  }
  return out / 2;
}

Result<Found> try_memory(std::chrono::seconds limit, std::uint64_t most) {
  constexpr std::uint64_t kPart = 64 << 20;
  std::uint64_t size = most > 0 ? most : free_memory();
  size -= size % 4096;
  if (size < 4096) return fail(Code::Exhausted, "there is no memory left to try");
  const std::uint64_t began_with = size;
  void* const room = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return fail_errno(errno, "take memory");
  auto* const words = static_cast<volatile std::uint64_t*>(room);
  const auto end = Clock::now() + limit;
  std::uint64_t passes = 0, reached = 0;
  std::string wrong;
  // Patterns that depend on the place, and their opposite: every bit is both, and a wrong address is seen.
  for (std::uint64_t pass = 0; wrong.empty() && (pass == 0 || Clock::now() < end); ++pass) {
    const std::uint64_t turn = pass % 2 == 0 ? 0 : ~0ULL;
    std::uint64_t written = 0;
    for (std::uint64_t at = 0; at < size && (pass > 0 || at == 0 || Clock::now() < end); at += kPart) {
      // Others on this machine may take memory meanwhile, such as a check beside this one: it is theirs first.
      if (pass == 0 && at > 0 && most == 0 && free_memory() < began_with / 4) break;
      const std::uint64_t to = std::min(size, at + kPart);
      for (std::uint64_t i = at / 8; i < to / 8; ++i) words[i] = mixed(i + pass / 2) ^ turn;
      written = to;
    }
    if (pass == 0) size = written;  // what time is left for
    reached = std::max(reached, written);
    for (std::uint64_t i = 0; i < written / 8 && wrong.empty(); ++i)
      if (const std::uint64_t is = words[i]; is != (mixed(i + pass / 2) ^ turn)) wrong = fmt::format("memory: {:016x} was written and {:016x} was read, {} MiB in", mixed(i + pass / 2) ^ turn, is, i * 8 >> 20);
    ++passes;
  }
  ::munmap(room, std::max(reached, size));
  if (!wrong.empty()) return Found{wrong, true};
  return Found{fmt::format("memory: {} MiB, {} times", reached >> 20, passes)};
}

Result<Found> try_disk(const std::string& folder, std::uint64_t bytes, std::chrono::seconds limit) {
  const std::string path = folder + "/.fairlead-deep-check";
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return fail_errno(errno, "make a file in " + folder);
  ::unlink(path.c_str());
  constexpr std::size_t kPart = 1 << 20;
  std::vector<std::uint64_t> part(kPart / 8);
  const auto fill = [&](std::uint64_t at) {
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = mixed(at + i * 8);
  };
  const auto began = Clock::now();
  std::uint64_t written = 0;
  while (written < bytes && (written == 0 || Clock::now() - began < std::chrono::duration<double>(limit) / 2)) {
    fill(written);
    const auto* const from = reinterpret_cast<const char*>(part.data());
    std::size_t done = 0;
    while (done < kPart) {
      const ssize_t put = ::pwrite(file.get(), from + done, kPart - done, static_cast<off_t>(written + done));
      if (put < 0 && (errno == ENOSPC || errno == EDQUOT)) return fail_errno(errno, "write to " + folder);  // full is no fault
      if (put < 0) return Found{fmt::format("disk: writing failed: {}", std::strerror(errno)), true};
      done += static_cast<std::size_t>(put);
    }
    written += kPart;
  }
  if (::fsync(file.get()) != 0) return errno == ENOSPC || errno == EDQUOT ? Result<Found>(fail_errno(errno, "write to " + folder)) : Found{fmt::format("disk: fsync failed: {}", std::strerror(errno)), true};
  const double write_seconds = std::chrono::duration<double>(Clock::now() - began).count();
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);  // read from the disk, not from memory
  const auto again = Clock::now();
  std::vector<char> back(kPart);
  for (std::uint64_t at = 0; at < written; at += kPart) {
    for (std::size_t done = 0; done < kPart;) {
      const ssize_t got = ::pread(file.get(), back.data() + done, kPart - done, static_cast<off_t>(at + done));
      if (got <= 0) return Found{fmt::format("disk: reading failed: {}", got == 0 ? "the file is shorter" : std::strerror(errno)), true};
      done += static_cast<std::size_t>(got);
    }
    fill(at);
    if (std::memcmp(back.data(), part.data(), kPart) != 0) return Found{fmt::format("disk: what was read differs from what was written, {} MiB in", at >> 20), true};
  }
  const double read_seconds = std::chrono::duration<double>(Clock::now() - again).count();
  return Found{fmt::format("disk: {} MiB written at {:.0f} MB/s and read at {:.0f} MB/s", written >> 20, static_cast<double>(written) / 1e6 / std::max(write_seconds, 1e-6), static_cast<double>(written) / 1e6 / std::max(read_seconds, 1e-6))};
}

Result<Found> try_devices(int gpus, std::chrono::seconds limit) {
  if (gpus == 0) return Found{"devices: none are asked for"};
  ::setenv("FAIRLEAD_MOCK_GPUS", std::to_string(gpus).c_str(), 0);  // images without GPUs may have a stand-in, which then shows them
  // Slow or not to be begun is no fault of GPUs.
  const auto listing = run(Command{.argv = {"nvidia-smi", "-L"}}, std::chrono::minutes(2));
  if (!listing && listing.error().code == Code::NotFound) return Found{fmt::format("devices: {} GPUs by its Node's word; there is no nvidia-smi here to ask", gpus)};
  if (!listing) return fail(Code::Unavailable, "nvidia-smi did not end in two minutes");
  if (listing->out.find("Fairlead Mock GPU") != std::string::npos) return Found{fmt::format("devices: {} GPUs by its Node's word; nvidia-smi is a stand-in here", gpus)};
  // 6: it looked, and found none (nvidia-smi(1), RETURN VALUE); other statuses tell of its library or driver.
  constexpr int kNoDevice = 6;
  if (listing->exit.code != 0 && listing->exit.code != kNoDevice) return fail(Code::Unavailable, fmt::format("nvidia-smi ended with {}: {}", listing->exit.code, std::string(trim(listing->err.empty() ? listing->out : listing->err)).substr(0, 300)));
  if (const int there = count_gpus(listing->out); there != gpus) return Found{fmt::format("devices: {} GPUs of {}", there, gpus), true};
  const auto diagnosis = run(Command{.argv = {"dcgmi", "diag", "-r", "2"}}, limit + std::chrono::minutes(10));
  if (!diagnosis && diagnosis.error().code == Code::NotFound) return Found{fmt::format("devices: {} GPUs; there is no dcgmi here to try them", gpus)};
  if (!diagnosis) return fail(Code::Unavailable, "dcgmi did not end in time");
  if (const std::string fault = dcgm_fault(diagnosis->out); !fault.empty()) return Found{"devices: dcgmi diag: " + fault, true};
  // Its own trouble (no host engine, permissions) says nothing of GPUs.
  if (diagnosis->exit.code != 0) return Found{fmt::format("devices: {} GPUs; dcgmi could not try them", gpus)};
  return Found{fmt::format("devices: {} GPUs, dcgmi diag -r 2 passed", gpus)};
}

}  // namespace

std::string dcgm_fault(std::string_view table) {
  for (const std::string& line : split(table, '\n')) {
    const auto columns = split(line, '|');
    if (columns.size() < 3) continue;
    const std::string_view test = trim(columns[1]), result = trim(columns[2]);
    if (!result.starts_with("Fail")) continue;
    for (const std::string_view of : {"Memory", "GPU Memory", "PCIe", "NVLink", "Diagnostic", "Targeted Stress", "Targeted Power", "Memory Bandwidth", "Memtest", "Pulse Test", "EUD Test"})
      if (test == of) return fmt::format("{}: {}", test, result);
  }
  return "";
}

int count_gpus(std::string_view listing) {
  int out = 0;
  for (const std::string& line : split(listing, '\n')) out += line.starts_with("GPU ") ? 1 : 0;
  return out;
}

Result<DeepCheckOptions> deep_check_options(const std::map<std::string, std::string>& environment) {
  DeepCheckOptions out;
  const auto number = [&](const char* name, auto& into, long least, long most) -> Result<void> {
    const auto found = environment.find(name);
    if (found == environment.end()) return {};
    long value = 0;
    const auto [end, error] = std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    if (error != std::errc() || end != found->second.data() + found->second.size() || value < least || value > most) return fail(Code::Invalid, fmt::format("{}: a number from {} to {}", name, least, most));
    into = static_cast<std::remove_reference_t<decltype(into)>>(value);
    return {};
  };
  long seconds = out.limit.count();
  if (auto done = number("FAIRLEAD_CHECK_SECONDS", seconds, 3, 86'400); !done) return std::unexpected(std::move(done.error()));
  out.limit = std::chrono::seconds(seconds);
  if (auto done = number("FAIRLEAD_CHECK_GPUS", out.gpus, 0, 64); !done) return std::unexpected(std::move(done.error()));
  return out;
}

int run_deep_check(const DeepCheckOptions& options) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto part = std::max<std::chrono::seconds>(options.limit / 3, std::chrono::seconds(1));
  std::string told;
  const auto last = [&](int status, const std::string& words) {
    std::printf("%s\n", words.c_str());
    const Fd file(::open(options.last_word.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file && ::write(file.get(), words.data(), words.size()) < 0) std::perror("last word");
    return status;
  };
  for (const int kind : {0, 1, 2, 3}) {
    const Result<Found> found = kind == 0 ? try_devices(options.gpus, part) : kind == 1 ? try_processors(part, options.flip_at) : kind == 2 ? try_memory(part, options.most_memory) : try_disk(options.folder, options.most_disk, part);
    if (!found) return last(125, fmt::format("the check could not be made: {}", found.error().message));
    if (found->fault) return last(kFaultFound, found->words);
    std::printf("%s\n", found->words.c_str());
    told += (told.empty() ? "" : "; ") + found->words;
  }
  return last(0, told);
}

}  // namespace fairlead::companion
