// SPDX-License-Identifier: GPL-3.0-or-later
#include "mariadb.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/encoding.h"

namespace fairlead::companion {
namespace {
constexpr const char* kSocket = "--socket=/run/mysqld/mysqld.sock";
}

std::vector<std::string> client(const std::string& database) { return {"mariadb", "--no-defaults", kSocket, "--user=root", "--batch", "--skip-column-names", "--default-character-set=utf8mb4", database}; }

std::vector<std::string> dumper(const std::string& database) {
  return {"mariadb-dump", "--no-defaults", kSocket, "--user=root", "--single-transaction", "--quick", "--order-by-primary", "--routines", "--hex-blob", "--skip-comments", "--skip-dump-date", "--max-allowed-packet=64M", "--default-character-set=utf8mb4", database};
}

Result<std::string> ask_database(const std::string& sql, std::chrono::milliseconds limit) {
  auto arguments = client("");
  arguments.pop_back();
  auto out = run({.argv = std::move(arguments)}, limit, sql + ";\n");
  if (!out) return std::unexpected(std::move(out.error()));
  if (out->exit.code != 0) return fail(Code::Unavailable, std::string(trim(out->err)));
  return std::move(out->out);
}

Result<void> pipeline(const std::vector<std::vector<std::string>>& programs, int in, int out, std::chrono::minutes limit) {
  std::vector<Child> children;
  Fd before;  // what the last program writes
  for (std::size_t i = 0; i < programs.size(); ++i) {
    int ends[2] = {-1, -1};
    const bool last = i + 1 == programs.size();
    if (!last && ::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
    Fd read_end(ends[0]);
    const Fd write_end(ends[1]);
    auto child = Child::start({.argv = programs[i], .stdin_fd = i == 0 ? in : before.get(), .stdout_fd = last ? out : write_end.get(), .stderr_fd = 2, .die_with_parent = true});
    if (!child) return pass(std::move(child.error()), programs[i][0]);
    children.push_back(std::move(*child));
    before = std::move(read_end);
  }
  const SystemClock clock;
  const auto end = clock.monotonic() + limit;
  for (std::size_t i = 0; i < children.size(); ++i) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.monotonic());
    auto exit = children[i].wait(std::max(left, std::chrono::milliseconds(0)));
    if (!exit) return std::unexpected(std::move(exit.error()));
    if (!*exit) return fail(Code::Unavailable, fmt::format("{} did not end within {} minutes", programs[i][0], limit.count()));
    if ((*exit)->code != 0) return fail(Code::Unavailable, fmt::format("{} ended with {}", programs[i][0], (*exit)->code));
  }
  return {};
}

Result<std::string> pipeline_text(const std::vector<std::vector<std::string>>& programs, int in, std::chrono::minutes limit) {
  const Fd text(::memfd_create("output", MFD_CLOEXEC));
  if (!text) return fail_errno(errno, "make a file in memory");
  if (auto done = pipeline(programs, in, text.get(), limit); !done) return std::unexpected(std::move(done.error()));
  std::string out(65536, '\0');
  const ssize_t size = ::pread(text.get(), out.data(), out.size(), 0);
  if (size < 0) return fail_errno(errno, "read what was written");
  out.resize(static_cast<std::size_t>(size));
  return out;
}

}  // namespace fairlead::companion
