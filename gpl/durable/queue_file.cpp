// SPDX-License-Identifier: GPL-3.0-or-later
#include "queue_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace durable {
namespace {

constexpr char kMagic[4] = {'F', 'L', 'Q', '1'};
constexpr uint32_t kSlurmsMagic = 0xdead3219;  // DBD_MAGIC, behind each record

uint32_t sum_on(uint32_t sum, const void* bytes, size_t size) {  // FNV-1a
  for (size_t i = 0; i < size; ++i) sum = (sum ^ static_cast<const unsigned char*>(bytes)[i]) * 0x01000193;
  return sum;
}

uint32_t sum_of_record(QueueRecord record, const void* bytes) {
  record.sum = 0;
  return sum_on(sum_on(0x811c9dc5, &record, sizeof record), bytes, record.size);
}

struct Messages {
  QueuedMessage* list = nullptr;
  size_t count = 0, room = 0;
  void add(const QueuedMessage& message) {
    if (count == room) {
      room = room == 0 ? 64 : room * 2;
      list = static_cast<QueuedMessage*>(realloc(list, room * sizeof(QueuedMessage)));
      if (!list) abort();
    }
    list[count++] = message;
  }
};

}  // namespace

QueueRecord queue_record(uint16_t kind, uint16_t protocol, uint64_t serial, const void* bytes, uint32_t size) {
  QueueRecord record{};
  memcpy(record.magic, kMagic, sizeof kMagic);
  record.kind = kind;
  record.protocol = protocol;
  record.size = size;
  record.serial = serial;
  record.sum = sum_of_record(record, bytes);
  return record;
}

QueuedMessage* queued_messages(const unsigned char* file, size_t size, size_t* count, size_t* end, uint64_t* last) {
  Messages all;
  uint64_t newest = 0, taken = 0;
  size_t at = 0;
  while (size - at >= sizeof(QueueRecord)) {
    QueueRecord record;
    memcpy(&record, file + at, sizeof record);
    if (memcmp(record.magic, kMagic, sizeof kMagic) != 0 || record.size > kLargestMessage || record.size > size - at - sizeof record) break;
    const unsigned char* bytes = file + at + sizeof record;
    if (record.sum != sum_of_record(record, bytes)) break;
    if (record.kind == kMessage) {
      if (record.serial <= newest) break;
      newest = record.serial;
      all.add({record.serial, at, bytes, record.size, record.protocol});
    } else if (record.kind == kTaken && record.size == 0) {
      if (record.serial > newest) newest = record.serial;
      if (record.serial > taken) taken = record.serial;
    } else {
      break;
    }
    at += sizeof record + record.size;
  }
  size_t first = 0;
  while (first < all.count && all.list[first].serial <= taken) ++first;
  if (first > 0) memmove(all.list, all.list + first, (all.count - first) * sizeof(QueuedMessage));
  *count = all.count - first;
  *end = at;
  *last = newest;
  return all.list;
}

namespace {

struct Place {
  uint32_t sum;
  size_t at;  // in the list
};
bool same_content(const QueuedMessage& x, const QueuedMessage& y) { return x.protocol == y.protocol && x.size == y.size && (x.size == 0 || memcmp(x.bytes, y.bytes, x.size) == 0); }
// Equal ones beside one another, the first of them first.
int by_content(const void* one, const void* other, void* list) {
  const auto *a = static_cast<const Place*>(one), *b = static_cast<const Place*>(other);
  const auto* messages = static_cast<const QueuedMessage*>(list);
  const QueuedMessage &x = messages[a->at], &y = messages[b->at];
  if (a->sum != b->sum) return a->sum < b->sum ? -1 : 1;
  if (x.protocol != y.protocol) return x.protocol < y.protocol ? -1 : 1;
  if (x.size != y.size) return x.size < y.size ? -1 : 1;
  if (const int order = x.size == 0 ? 0 : memcmp(x.bytes, y.bytes, x.size); order != 0) return order;
  return a->at < b->at ? -1 : 1;
}

}  // namespace

size_t drop_repeated(QueuedMessage* messages, size_t count) {
  if (count < 2) return count;
  auto* places = static_cast<Place*>(malloc(count * sizeof(Place)));
  auto* again = static_cast<bool*>(calloc(count, sizeof(bool)));
  if (!places || !again) abort();
  for (size_t i = 0; i < count; ++i) places[i] = {sum_on(0x811c9dc5, messages[i].bytes, messages[i].size), i};
  qsort_r(places, count, sizeof(Place), by_content, messages);
  for (size_t i = 1; i < count; ++i) {
    const QueuedMessage &x = messages[places[i - 1].at], &y = messages[places[i].at];
    again[places[i].at] = places[i - 1].sum == places[i].sum && same_content(x, y);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i)
    if (!again[i]) messages[kept++] = messages[i];
  free(places);
  free(again);
  return kept;
}

QueuedMessage* slurms_messages(const unsigned char* file, size_t size, size_t* count) {
  Messages all;
  uint16_t protocol = 0;
  for (size_t at = 0; size - at >= 2 * sizeof(uint32_t);) {
    uint32_t length = 0, magic = 0;
    memcpy(&length, file + at, sizeof length);
    if (length > kLargestMessage || length > size - at - 2 * sizeof(uint32_t)) break;
    const unsigned char* bytes = file + at + sizeof length;
    memcpy(&magic, bytes + length, sizeof magic);
    if (magic != kSlurmsMagic) break;
    if (at == 0) {
      // A text as Slurm packs it: its length with the 0 at its end, the other way round, and the text.
      char text[16] = "";
      if (length <= sizeof(uint32_t) || length - sizeof(uint32_t) >= sizeof text) break;
      memcpy(text, bytes + sizeof(uint32_t), length - sizeof(uint32_t));
      unsigned version = 0;
      if (sscanf(text, "VER%5u", &version) != 1 || version > UINT16_MAX) break;
      protocol = static_cast<uint16_t>(version);
    } else {
      all.add({all.count + 1, at, bytes, length, protocol});
    }
    at += 2 * sizeof(uint32_t) + length;
  }
  *count = all.count;
  return all.list;
}

unsigned char* slurms_file(const QueuedMessage* messages, size_t count, uint16_t protocol, size_t* size) {
  char version[16];
  const auto text = static_cast<uint32_t>(snprintf(version, sizeof version, "VER%u", protocol)) + 1;
  size_t room = 3 * sizeof(uint32_t) + text;
  for (size_t i = 0; i < count; ++i) room += 2 * sizeof(uint32_t) + messages[i].size;
  auto* file = static_cast<unsigned char*>(malloc(room));
  if (!file) abort();
  size_t at = 0;
  const auto put = [&](const void* bytes, size_t length) {
    memcpy(file + at, bytes, length);
    at += length;
  };
  const uint32_t length = sizeof(uint32_t) + text, packed = __builtin_bswap32(text);
  put(&length, sizeof length);
  put(&packed, sizeof packed);
  put(version, text);
  put(&kSlurmsMagic, sizeof kSlurmsMagic);
  for (size_t i = 0; i < count; ++i) {
    put(&messages[i].size, sizeof messages[i].size);
    if (messages[i].size > 0) put(messages[i].bytes, messages[i].size);
    put(&kSlurmsMagic, sizeof kSlurmsMagic);
  }
  *size = at;
  return file;
}

unsigned char* whole_file(const char* path, size_t* size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat about{};
  unsigned char* bytes = nullptr;
  size_t got = 0;
  int error = 0;
  if (fstat(fd, &about) != 0) error = errno;
  else bytes = static_cast<unsigned char*>(malloc(static_cast<size_t>(about.st_size) + 1));
  while (bytes && error == 0 && got < static_cast<size_t>(about.st_size)) {
    const ssize_t part = read(fd, bytes + got, static_cast<size_t>(about.st_size) - got);
    if (part > 0) got += static_cast<size_t>(part);
    else if (part == 0) break;
    else if (errno != EINTR) error = errno;
  }
  close(fd);
  if (error != 0) {
    free(bytes);
    bytes = nullptr;
    errno = error;
  }
  *size = got;
  return bytes;
}

bool write_all_at(int fd, const void* bytes, size_t size, size_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t part = pwrite(fd, static_cast<const unsigned char*>(bytes) + done, size - done, static_cast<off_t>(at + done));
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return false;
    done += static_cast<size_t>(part);
  }
  return true;
}

}  // namespace durable
