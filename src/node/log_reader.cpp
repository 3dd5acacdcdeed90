// SPDX-License-Identifier: Apache-2.0
#include "node/log_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace fairlead::node {

std::optional<LogEntry> parse_log_entry(std::string_view line) {
  LogEntry out;
  for (std::string_view* field : {&out.time, &out.stream}) {
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos || blank == 0) return std::nullopt;
    *field = line.substr(0, blank);
    line.remove_prefix(blank + 1);
  }
  if (out.stream != "stdout" && out.stream != "stderr") return std::nullopt;
  if (line.empty() || (line[0] != 'F' && line[0] != 'P')) return std::nullopt;
  out.partial = line[0] == 'P';
  if (line.size() > 1 && line[1] != ' ') return std::nullopt;
  out.text = line.size() > 2 ? line.substr(2) : std::string_view();
  return out;
}

LogReader::LogReader(std::string path, LogQuery query) : path_(std::move(path)), query_(query) {}

void LogReader::open_first() {
  file_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_) return;
  opened_ = true;
  for (int i = 1; i < 100; ++i) {
    Fd old(::open(fmt::format("{}.{}", path_, i).c_str(), O_RDONLY | O_CLOEXEC));
    if (!old) break;
    older_.push_back(std::move(old));
  }
  seek_tail();
  if (!older_.empty()) {
    // The newest file is read last.
    older_.insert(older_.begin(), std::move(file_));
    file_ = std::move(older_.back());
    older_.pop_back();
  }
}

// Counts entries from the end, block by block; files before the first wanted entry are dropped.
void LogReader::seek_tail() {
  if (!query_.tail_lines) return;
  std::int64_t wanted = *query_.tail_lines;
  constexpr off_t block = 64 * 1024;
  for (std::size_t index = 0; index <= older_.size(); ++index) {
    const Fd& fd = index == 0 ? file_ : older_[index - 1];
    off_t end = ::lseek(fd.get(), 0, SEEK_END);
    if (wanted <= 0) {
      // Nothing of what is there; what follows is read from here.
      older_.erase(older_.begin() + static_cast<std::ptrdiff_t>(index == 0 ? 0 : index - 1), older_.end());
      return;
    }
    bool at_end = true;
    while (end > 0) {
      const off_t from = end > block ? end - block : 0;
      std::string text(static_cast<std::size_t>(end - from), '\0');
      const ssize_t n = ::pread(fd.get(), text.data(), text.size(), from);
      if (n != static_cast<ssize_t>(text.size())) return;
      for (std::size_t i = text.size(); i-- > 0;) {
        if (text[i] != '\n') {
          at_end = false;
          continue;
        }
        // The newline that ends the last entry counts for that entry; every other one is where an entry begins.
        if (at_end) {
          at_end = false;
          continue;
        }
        if (--wanted == 0) {
          ::lseek(fd.get(), from + static_cast<off_t>(i) + 1, SEEK_SET);
          older_.erase(older_.begin() + static_cast<std::ptrdiff_t>(index), older_.end());
          return;
        }
      }
      end = from;
    }
    if (!at_end) --wanted;  // the entry at the very start of the file
    ::lseek(fd.get(), 0, SEEK_SET);
    if (wanted == 0) {
      older_.erase(older_.begin() + static_cast<std::ptrdiff_t>(index), older_.end());
      return;
    }
  }
}

void LogReader::format(const LogEntry& entry, std::string& out) {
  if (query_.timestamps && !line_open_) {
    // As Kubernetes prints it: UTC with a Z.
    std::string_view time = entry.time;
    if (time.ends_with("+00:00")) time.remove_suffix(6);
    out += time;
    out += entry.time.ends_with("+00:00") ? "Z " : " ";
  }
  out += entry.text;
  if (!entry.partial) out += '\n';
  line_open_ = entry.partial;
}

void LogReader::take_lines(const std::function<void(const LogEntry&)>& each) {
  std::size_t at = 0;
  for (std::size_t end; (end = rest_.find('\n', at)) != std::string::npos; at = end + 1) {
    const auto entry = parse_log_entry(std::string_view(rest_).substr(at, end - at));
    if (!entry) continue;
    if (query_.since) {
      const auto time = parse_time(entry->time);
      if (time && *time < *query_.since) continue;
    }
    each(*entry);
  }
  rest_.erase(0, at);
}

// Some more of the files into rest_. False: nothing more for now.
Result<bool> LogReader::read_on() {
  if (!opened_) open_first();
  if (!opened_) return false;
  char chunk[64 * 1024];
  while (true) {
    const ssize_t n = ::read(file_.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read " + path_);
    if (n > 0) {
      rest_.append(chunk, static_cast<std::size_t>(n));
      return true;
    }
    if (!older_.empty()) {
      file_ = std::move(older_.back());
      older_.pop_back();
      rest_.clear();
      continue;
    }
    // Rotated meanwhile: the name belongs to a new file, and this one has been read to its end twice, the second time after that was known.
    struct stat ours{}, named{};
    if (::fstat(file_.get(), &ours) != 0 || ::stat(path_.c_str(), &named) != 0 || ours.st_ino == named.st_ino) return false;
    const ssize_t more = ::read(file_.get(), chunk, sizeof chunk);
    if (more > 0) {
      rest_.append(chunk, static_cast<std::size_t>(more));
      return true;
    }
    Fd fresh(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fresh) return false;
    file_ = std::move(fresh);
    rest_.clear();
  }
}

Result<std::string> LogReader::next() {
  std::string out;
  if (done()) return out;
  while (out.empty()) {
    auto read = read_on();
    if (!read) return std::unexpected(std::move(read.error()));
    if (!*read) break;
    take_lines([&](const LogEntry& entry) { format(entry, out); });
  }
  if (query_.limit_bytes) {
    if (static_cast<std::int64_t>(out.size()) > *query_.limit_bytes) out.resize(static_cast<std::size_t>(*query_.limit_bytes));
    *query_.limit_bytes -= static_cast<std::int64_t>(out.size());
  }
  return out;
}

Result<bool> LogReader::next_entries(const std::function<void(const LogEntry&)>& each) {
  auto read = read_on();
  if (read && *read) take_lines(each);
  return read;
}

}  // namespace fairlead::node
