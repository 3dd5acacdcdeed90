// SPDX-License-Identifier: Apache-2.0
// Intents and outcomes on disk, one record after the other. A record: "FVJ1", length of the JSON that follows, CRC-32 (zlib) of these and it, both 32 bit little-endian, then the JSON. Source of the design: docs/design/069-volume-pool.md.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "kube/json.h"

namespace fairlead::volumes {

// What a journal is kept in. Bytes that were appended may be lost, or be there in part, until sync() has returned.
class JournalFile {
 public:
  virtual ~JournalFile() = default;
  virtual Result<std::string> read() = 0;
  virtual Result<void> append(std::string_view bytes) = 0;
  virtual Result<void> sync() = 0;
  virtual Result<void> cut(std::size_t size) = 0;                // to this size; durable with the next sync()
  virtual Result<void> replace(std::string_view bytes) = 0;      // all or nothing, durable when it returns
};

// PATH, of this process alone while it is open. Unavailable: another process has it. 0600; the folder must be there.
Result<std::unique_ptr<JournalFile>> open_journal_file(const std::string& path);

std::string frame_record(std::string_view text);
struct Records {
  std::vector<std::string> texts;
  std::size_t good = 0;             // bytes up to the end of the last whole record
};
// What is cut short at the end was never synced: it is left out. Internal: a bad record with whole ones behind it; its place is told.
Result<Records> read_records(std::string_view bytes);

class Journal {
 public:
  // Reads what is there, and cuts a torn end off. `records`: JSON objects, in order.
  static Result<std::unique_ptr<Journal>> open(std::unique_ptr<JournalFile> file, std::vector<kube::Json>& records);
  // Durable when it returns. After an error nothing more is written: what is on disk is not known. Unavailable.
  Result<void> append(const kube::Json& record);
  bool broken() const { return broken_; }  // a write failed: what is on disk is not known until it is opened anew
  Result<void> replace(const std::vector<kube::Json>& records);  // what `records` of the next open() are
  std::size_t size() const { return size_; }

 private:
  explicit Journal(std::unique_ptr<JournalFile> file) : file_(std::move(file)) {}
  std::unique_ptr<JournalFile> file_;
  std::size_t size_ = 0;
  bool broken_ = false;
};

}  // namespace fairlead::volumes
