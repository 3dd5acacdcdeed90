// SPDX-License-Identifier: Apache-2.0
#include "volumes/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/files.h"

namespace fairlead::volumes {

using kube::Json;

namespace {

constexpr std::string_view magic = "FVJ1";
constexpr std::size_t head = 12, most_record = 16 << 20;

void put32(std::string& out, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
}
std::uint32_t get32(std::string_view from) {
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < 4; ++i) out |= static_cast<std::uint32_t>(static_cast<unsigned char>(from[i])) << 8 * i;
  return out;
}
// With what stands before it: a head with zeros behind it, as a crash leaves them, is no empty record.
std::uint32_t sum_of(std::string_view text) {
  std::string begin(magic);
  put32(begin, static_cast<std::uint32_t>(text.size()));
  const uLong first = ::crc32(0, reinterpret_cast<const Bytef*>(begin.data()), static_cast<uInt>(begin.size()));
  return static_cast<std::uint32_t>(::crc32(first, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

// The text of the record that begins there; nothing: none that is whole does.
std::optional<std::string_view> record_at(std::string_view bytes, std::size_t at) {
  if (bytes.size() - at < head || bytes.substr(at, magic.size()) != magic) return std::nullopt;
  const std::size_t length = get32(bytes.substr(at + 4, 4));
  if (length > most_record || bytes.size() - at - head < length) return std::nullopt;
  const std::string_view text = bytes.substr(at + head, length);
  return sum_of(text) == get32(bytes.substr(at + 8, 4)) ? std::optional(text) : std::nullopt;
}

class File final : public JournalFile {
 public:
  File(std::string path, Fd fd, Fd lock) : path_(std::move(path)), fd_(std::move(fd)), lock_(std::move(lock)) {}
  Result<std::string> read() override { return read_file(path_, 1_GiB); }
  Result<void> append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(fd_.get(), bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return fail_errno(errno, "write " + path_);
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    }
    return {};
  }
  Result<void> sync() override { return ::fdatasync(fd_.get()) == 0 ? Result<void>() : Result<void>(fail_errno(errno, "sync " + path_)); }
  Result<void> cut(std::size_t size) override { return ::ftruncate(fd_.get(), static_cast<off_t>(size)) == 0 ? Result<void>() : Result<void>(fail_errno(errno, "cut " + path_)); }
  Result<void> replace(std::string_view bytes) override {
    if (auto done = write_file_durably(path_, bytes, 0600); !done) return done;
    fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
    return fd_ ? Result<void>() : Result<void>(fail_errno(errno, "open " + path_));
  }

 private:
  const std::string path_;
  Fd fd_;
  const Fd lock_;  // of a file beside it: it stays when the journal is replaced
};

}  // namespace

Result<std::unique_ptr<JournalFile>> open_journal_file(const std::string& path) {
  Fd lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return fail_errno(errno, "open " + path + ".lock");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? fail(Code::Unavailable, "another process has " + path) : fail_errno(errno, "lock " + path + ".lock");
  if (!exists(path))
    if (auto made = write_file_durably(path, "", 0600); !made) return std::unexpected(std::move(made.error()));
  Fd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno(errno, "open " + path);
  return std::make_unique<File>(path, std::move(fd), std::move(lock));
}

std::string frame_record(std::string_view text) {
  std::string out(magic);
  put32(out, static_cast<std::uint32_t>(text.size()));
  put32(out, sum_of(text));
  return out.append(text);
}

Result<Records> read_records(std::string_view bytes) {
  Records out;
  while (out.good < bytes.size()) {
    const auto text = record_at(bytes, out.good);
    if (!text) break;
    out.texts.emplace_back(*text);
    out.good += head + text->size();
  }
  // A record is synced before the next is begun: behind a torn one there is none.
  for (std::size_t at = bytes.find(magic, out.good + 1); at != bytes.npos; at = bytes.find(magic, at + 1))
    if (record_at(bytes, at)) return fail(Code::Internal, fmt::format("the journal is damaged at byte {}: whole records follow at byte {}", out.good, at));
  return out;
}

Result<std::unique_ptr<Journal>> Journal::open(std::unique_ptr<JournalFile> file, std::vector<Json>& records) {
  const auto bytes = file->read();
  if (!bytes) return std::unexpected(bytes.error());
  const auto read = read_records(*bytes);
  if (!read) return std::unexpected(read.error());
  records.clear();
  for (const std::string& text : read->texts) {
    auto json = kube::parse_json(text, {.depth_limit = 16});
    if (!json || !json->is_object()) return fail(Code::Internal, "the journal has a record that is no JSON object");
    records.push_back(std::move(*json));
  }
  std::unique_ptr<Journal> out(new Journal(std::move(file)));
  out->size_ = read->good;
  if (read->good < bytes->size()) {
    auto done = out->file_->cut(read->good);
    if (done) done = out->file_->sync();
    if (!done) return std::unexpected(std::move(done.error()));
  }
  return out;
}

Result<void> Journal::append(const Json& record) {
  if (broken_) return fail(Code::Unavailable, "the journal could not be written before: open the pool again");
  const std::string text = kube::print_json(record);
  // What is larger would be taken for a torn end when it is read.
  if (text.size() > most_record) return fail(Code::Exhausted, fmt::format("a record of the journal of {} bytes: {} at most", text.size(), most_record));
  const std::string bytes = frame_record(text);
  auto done = file_->append(bytes);
  if (done) done = file_->sync();
  broken_ = !done;
  if (done) size_ += bytes.size();
  return done;
}

Result<void> Journal::replace(const std::vector<Json>& records) {
  if (broken_) return fail(Code::Unavailable, "the journal could not be written before: open the pool again");
  std::string bytes;
  for (const Json& record : records) {
    const std::string text = kube::print_json(record);
    if (text.size() > most_record) return fail(Code::Exhausted, fmt::format("a record of the journal of {} bytes: {} at most", text.size(), most_record));
    bytes += frame_record(text);
  }
  auto done = file_->replace(bytes);
  broken_ = !done;
  if (done) size_ = bytes.size();
  return done;
}

}  // namespace fairlead::volumes
