// SPDX-License-Identifier: GPL-3.0-or-later
#include "id_mark.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "probe.h"

namespace fairlead::companion {
namespace {

constexpr const char* kName = "/fairlead-ids";
constexpr std::size_t kSize = 64;
constexpr std::string_view kBegin = "fairlead-ids 1 next ", kSum = " sum ";
constexpr std::uint64_t kPageMagic = 0x31534449454c4c46;  // "FLLEIDS1"

std::uint32_t sum_of(std::string_view text) {
  std::uint32_t sum = 0x811c9dc5;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x01000193;
  return sum;
}

std::string line_of(std::uint32_t next) {
  std::string line = fmt::format("{}{:010}", kBegin, next);
  line += fmt::format("{}{:08x}", kSum, sum_of(line));
  line.resize(kSize - 1, ' ');
  return line + '\n';
}

std::optional<std::uint32_t> parse(const std::string& text) {
  if (text.size() != kSize || !text.starts_with(kBegin)) return {};
  std::uint64_t next = 0;
  for (const char c : text.substr(kBegin.size(), 10)) {
    if (c < '0' || c > '9') return {};
    next = next * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (next == 0 || next > UINT32_MAX || text != line_of(static_cast<std::uint32_t>(next))) return {};
  return static_cast<std::uint32_t>(next);
}

// Where the header of a saved state holds the id that comes next: a string with its length (PROTOCOL_VERSION), a version, a time.
struct Header {
  off_t at;
  std::uint32_t next;
};
std::optional<Header> header_of(const std::string& path) {
  constexpr std::string_view kWord = "PROTOCOL_VERSION";
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  unsigned char bytes[64];
  const std::size_t at = 4 + kWord.size() + 1 + 2 + 8;
  if (!fd || ::pread(fd.get(), bytes, sizeof bytes, 0) < static_cast<ssize_t>(at + 4)) return {};
  std::uint32_t length = 0, next = 0;
  std::memcpy(&length, bytes, 4);
  std::memcpy(&next, bytes + at, 4);
  if (ntohl(length) != kWord.size() + 1 || std::memcmp(bytes + 4, kWord.data(), kWord.size()) != 0) return {};
  return Header{static_cast<off_t>(at), ntohl(next)};
}

Result<void> raise_header(const std::string& path, std::uint32_t next, IdRange range) {
  const auto header = header_of(path);
  if (!header || !in_front_of(header->next, next, range)) return {};
  const std::uint32_t bytes = htonl(next);
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::pwrite(fd.get(), &bytes, sizeof bytes, header->at) != sizeof bytes || ::fsync(fd.get()) != 0) return fail_errno(errno, "raise the next id in " + path);
  log_info("the saved state gives out ids from the mark on", {{"state", path}, {"said", std::to_string(header->next)}, {"mark", std::to_string(next)}});
  return {};
}

std::uint32_t number(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > UINT32_MAX) return 0;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value > UINT32_MAX ? 0 : static_cast<std::uint32_t>(value);
}

}  // namespace

IdRange id_range(const std::string& slurm_conf) {
  IdRange range;
  for (const std::string& line : split(slurm_conf, '\n'))
    for (auto [key, value] : {std::pair{"FirstJobId", &range.first}, {"MaxJobId", &range.end}}) {
      if (!is_key(line, key)) continue;
      const std::string_view text = trim(std::string_view(line).substr(line.find('=') + 1));
      if (const std::uint32_t given = number(text.substr(0, text.find_first_of(" \t#"))); given > 0) *value = given;
    }
  const IdRange otherwise;
  if (range.end > 0x03ffffff) range.end = 0x03ffffff;  // MAX_JOB_ID: above it stands the cluster of a federation
  if (range.first >= range.end) return otherwise;
  return range;
}

bool in_front_of(std::uint32_t id, std::uint32_t mark, IdRange range) {
  if (id >= range.end) return id < mark;
  const std::uint32_t ahead = mark >= id ? mark - id : range.end - id + (mark - range.first);
  return ahead != 0 && ahead < (range.end - range.first) / 2;
}

Result<std::optional<std::uint32_t>> read_id_mark(const std::string& state) {
  auto text = read_file(state + kName, 4_KiB);
  if (!text) {
    if (text.error().code == Code::NotFound) return std::optional<std::uint32_t>();
    return std::unexpected(std::move(text.error()));
  }
  const auto next = parse(*text);
  if (!next)
    return fail(Code::Invalid, fmt::format("{}{} is damaged; without it ids could be given twice. Look up the highest job id that was ever given (sacct -a -X -S 2000-01-01 -n -o JobIDRaw) and say `fairlead-slurm ids --at-least N` with a higher one", state, kName));
  return std::optional(*next);
}

Result<void> write_id_mark(const std::string& state, std::uint32_t next, uid_t owner, gid_t group) {
  const std::string path = state + kName, line = line_of(next);
  auto written = write_file_durably(path, line, 0644);
  if (!written && written.error().code == Code::Exhausted && exists(path)) {
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd || ::pwrite(fd.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(kSize) || ::fsync(fd.get()) != 0) return fail_errno(errno, "write " + path);
  } else if (!written) {
    return written;
  }
  if (::chown(path.c_str(), owner, group) != 0) return fail_errno(errno, "chown " + path);  // slurmctld writes it, too
  return {};
}

Result<void> raise_id_mark(const std::string& state, std::uint32_t next, uid_t owner, gid_t group, IdRange range) {
  auto mark = read_id_mark(state);
  if (!mark) return std::unexpected(std::move(mark.error()));
  if (*mark && !in_front_of(**mark, next, range)) return {};
  return write_id_mark(state, next, owner, group);
}

std::optional<std::uint32_t> id_in_state(const std::string& state) {
  for (const char* name : {"/job_state", "/job_state.old"})
    if (const auto header = header_of(state + name)) return header->next;
  return {};
}

Result<std::uint32_t> prepare_ids(const std::string& state, IdRange range, uid_t owner, gid_t group) {
  auto mark = read_id_mark(state);
  if (!mark) return std::unexpected(std::move(mark.error()));
  std::uint32_t next = mark->value_or(range.first);
  if (const auto saved = id_in_state(state); saved && in_front_of(next, *saved, range)) next = *saved;
  if (auto written = write_id_mark(state, next, owner, group); !written) return std::unexpected(std::move(written.error()));
  for (const char* name : {"/job_state", "/job_state.old"})
    if (auto raised = raise_header(state + name, next, range); !raised) return std::unexpected(std::move(raised.error()));
  return next;
}

struct IdPage::Page {
  std::uint64_t magic;
  std::atomic<std::uint32_t> next;
};

Result<IdPage> IdPage::create(const std::string& path) {
  ::unlink(path.c_str());
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd || ::ftruncate(fd.get(), sizeof(Page)) != 0) return fail_errno(errno, "make " + path);
  void* at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return fail_errno(errno, "map " + path);
  return IdPage(new (at) Page{kPageMagic, 0});
}

IdPage::IdPage(IdPage&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
IdPage& IdPage::operator=(IdPage&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}
IdPage::~IdPage() {
  if (page_) ::munmap(page_, sizeof(Page));
}

std::optional<std::uint32_t> IdPage::next() const {
  const std::uint32_t next = page_->next.load(std::memory_order_acquire);
  return next == 0 ? std::nullopt : std::optional(next);
}

Result<void> IdKeeper::before_start(const std::string& state, std::map<std::string, std::string>& environment) {
  auto conf = read_file(slurm_conf_);
  if (!conf) return std::unexpected(std::move(conf.error()));
  const IdRange range = id_range(*conf);
  const passwd* user = ::getpwnam("slurm");
  auto from = prepare_ids(state, range, user ? user->pw_uid : 0, user ? user->pw_gid : 0);
  if (!from) return std::unexpected(std::move(from.error()));
  const std::string path = run_dir_ + "/ids";
  auto page = IdPage::create(path);
  if (!page) return std::unexpected(std::move(page.error()));
  page_ = std::move(*page);
  from_ = *from;
  environment["FAIRLEAD_STATE"] = state;
  environment["FAIRLEAD_ID_PAGE"] = path;
  environment["FAIRLEAD_ID_RANGE"] = fmt::format("{} {}", range.first, range.end);
  return {};
}

void IdKeeper::after_end(const std::string& state) {
  if (!page_) return;
  const std::uint32_t next = page_->next().value_or(from_);
  page_.reset();
  const passwd* user = ::getpwnam("slurm");
  if (auto written = write_id_mark(state, next, user ? user->pw_uid : 0, user ? user->pw_gid : 0); !written) log_warn("the mark of issued ids stays ahead of them", {{"reason", written.error().message}});
}

int print_ids(const std::string& state, const std::string& at_least) {
  if (!at_least.empty()) {
    const std::uint32_t next = number(at_least);
    if (next == 0) {
      std::fprintf(stderr, "fairlead-slurm ids --at-least: a job id, not \"%s\"\n", at_least.c_str());
      return 2;
    }
    const passwd* user = ::getpwnam("slurm");
    auto mark = read_id_mark(state);
    auto raised = mark ? raise_id_mark(state, next, user ? user->pw_uid : 0, user ? user->pw_gid : 0) : write_id_mark(state, next, user ? user->pw_uid : 0, user ? user->pw_gid : 0);
    if (!raised) {
      std::fprintf(stderr, "fairlead-slurm ids: %s\n", raised.error().message.c_str());
      return 1;
    }
  }
  auto mark = read_id_mark(state);
  if (!mark) {
    std::fprintf(stderr, "fairlead-slurm ids: %s\n", mark.error().message.c_str());
    return 1;
  }
  const auto saved = id_in_state(state);
  std::printf("{\"state\":\"%s\",\"mark\":%s,\"saved\":%s}\n", state.c_str(), *mark ? std::to_string(**mark).c_str() : "null", saved ? std::to_string(*saved).c_str() : "null");
  return 0;
}

}  // namespace fairlead::companion
