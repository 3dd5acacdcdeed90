// SPDX-License-Identifier: GPL-3.0-or-later
// The queue of accounting on disk, ours and Slurm's: any bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "durable/queue_file.h"

using namespace durable;

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t count = 0, end = 0, length = 0;
  std::uint64_t last = 0;
  QueuedMessage* ours = queued_messages(data, size, &count, &end, &last);
  const size_t kept = drop_repeated(ours, count);
  require(kept <= count && (count == 0 || kept > 0) && drop_repeated(ours, kept) == kept);
  count = kept;
  require(end <= size);
  for (std::size_t i = 0; i < count; ++i) require(ours[i].serial <= last && ours[i].bytes + ours[i].size <= data + end && (i == 0 || ours[i].serial > ours[i - 1].serial));
  std::free(ours);
  QueuedMessage* slurms = slurms_messages(data, size, &count);
  for (std::size_t i = 0; i < count; ++i) require(slurms[i].bytes + slurms[i].size <= data + size);
  if (count > 0) {
    // What it says is what it says when we write it.
    std::size_t again = 0;
    unsigned char* file = slurms_file(slurms, count, slurms[0].protocol, &length);
    QueuedMessage* others = slurms_messages(file, length, &again);
    require(again == count);
    for (std::size_t i = 0; i < count; ++i) require(others[i].size == slurms[i].size && (slurms[i].size == 0 || std::memcmp(others[i].bytes, slurms[i].bytes, slurms[i].size) == 0));
    std::free(others);
    std::free(file);
  }
  std::free(slurms);
  // A sum that fits is rarely guessed: the bytes as a message of a sound file, and what is cut off it.
  const auto text = static_cast<std::uint32_t>(size);
  const QueueRecord record = queue_record(kMessage, 9728, 1, data, text);
  auto* file = static_cast<unsigned char*>(std::malloc(2 * (sizeof record + size)));
  if (!file) return 0;
  std::memcpy(file, &record, sizeof record);
  if (size > 0) std::memcpy(file + sizeof record, data, size);
  if (size > 0) std::memcpy(file + sizeof record + size, data, size);
  ours = queued_messages(file, sizeof record + 2 * size, &count, &end, &last);
  require(end >= sizeof record + size);
  std::free(ours);
  std::free(file);
  return 0;
}
