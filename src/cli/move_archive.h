// SPDX-License-Identifier: Apache-2.0
// The file that a Slurm cluster travels in (docs/design/017): a line that says what it is, a line of JSON that may be read by anybody, and records that are sealed with AES-256-GCM under a key made of a passphrase (scrypt).
// The header is sealed with each record, records are counted, and the last one says so: nothing can be changed, left out, or cut off unseen.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::cli {

struct ArchiveHeader {
  std::string id, cluster, space, time;  // of the export; time: RFC 3339
  std::string code_sum;                  // SHA-256 of the code that opens the target, in hexadecimal digits
  std::string set, slurm;                // name of the set in it; version of Slurm
  std::string salt;                      // 32 bytes
  std::int64_t n = 1 << 16;              // of scrypt, r 8 and p 1: 64 MiB of memory
  friend bool operator==(const ArchiveHeader&, const ArchiveHeader&) = default;
};
std::string print_archive_header(const ArchiveHeader& header);
// Of the beginning of a file; `size`: bytes that it takes. Invalid: none of ours, of a later form, or with numbers that would take more than a gigabyte of memory.
Result<ArchiveHeader> parse_archive_header(std::string_view text, std::size_t& size);
inline constexpr std::size_t kMaxArchiveHeader = 16 << 10;

inline constexpr std::size_t kShortestPassphrase = 8;

class ArchiveWriter {
 public:
  // Writes to PATH.partial, which becomes PATH in finish(); until then nothing is there that looks like an archive. Exists: PATH is there.
  static Result<ArchiveWriter> create(const std::string& path, const ArchiveHeader& header, const std::string& passphrase);
  ArchiveWriter(ArchiveWriter&&) noexcept = default;
  ~ArchiveWriter();
  Result<void> write(std::string_view bytes);
  Result<void> finish();

 private:
  ArchiveWriter(std::string path, Fd fd, std::string key, std::string bound) : path_(std::move(path)), fd_(std::move(fd)), key_(std::move(key)), bound_(std::move(bound)) {}
  Result<void> seal(bool last);
  std::string path_;
  Fd fd_;
  std::string key_, bound_, waiting_;
  std::uint64_t number_ = 0;
};

class ArchiveReader {
 public:
  static Result<ArchiveReader> open(const std::string& path);
  const ArchiveHeader& header() const { return header_; }
  // Forbidden: another passphrase, or a changed header.
  Result<void> unlock(const std::string& passphrase);
  // Up to that many bytes; empty: the end, and it is the right one. Invalid: damaged or cut off.
  Result<std::string> read(std::size_t most);
  // Exactly that many.
  Result<std::string> read_all_of(std::size_t count);

 private:
  ArchiveReader(Fd fd, ArchiveHeader header, std::string bound) : fd_(std::move(fd)), header_(std::move(header)), bound_(std::move(bound)) {}
  Result<void> next();
  Fd fd_;
  ArchiveHeader header_;
  std::string key_, bound_, open_;
  std::uint64_t number_ = 0;
  bool last_ = false;
};

}  // namespace fairlead::cli
