// SPDX-License-Identifier: GPL-3.0-or-later
// The file STATE/fairlead-accounting: what slurmctld has for slurmdbd and nobody has taken yet (docs/design/034-accounting-queue.md), and Slurm's own file for the same, STATE/dbd.messages, which it writes only when it ends in an
// orderly way. Plain functions over bytes and paths, for the library that is preloaded into slurmctld and for tests: no C++ library, no exceptions.
//
// The file: records one behind the other, numbers as this machine has them; nothing is ever changed in place.
//   {"FLQ1", kind, protocol, size, serial, sum} and `size` bytes. A message has a serial above those before it; a record "taken" says that all messages up to its serial are done.
//   What is behind a torn record, or one whose serial does not grow, is of the past and counts as not there.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace durable {

struct QueueRecord {
  char magic[4];
  uint16_t kind, protocol;  // protocol: Slurm's, of the message's bytes
  uint32_t size, sum;       // sum: of this record without the sum, and of the bytes
  uint64_t serial;
};
static_assert(sizeof(QueueRecord) == 24);
enum : uint16_t { kMessage = 1, kTaken = 2 };
constexpr uint32_t kLargestMessage = 1U << 30;  // as Slurm's MAX_MSG_SIZE

QueueRecord queue_record(uint16_t kind, uint16_t protocol, uint64_t serial, const void* bytes, uint32_t size);

struct QueuedMessage {
  uint64_t serial;
  size_t at;  // of its record in the file
  const unsigned char* bytes;
  uint32_t size;
  uint16_t protocol;
};
// The messages of a file that are not taken, in order; to be freed. `end`: behind the last good record; `last`: the highest serial that it names. Null with count 0: there is none.
QueuedMessage* queued_messages(const unsigned char* file, size_t size, size_t* count, size_t* end, uint64_t* last);

// Of messages with the same bytes the first stays, all others go; the order stays. A slurmctld that begins asks for the records of all ended jobs again (job_mgr.c, _load_job_state), so that each beginning while slurmdbd is away would
// add as many messages as it has jobs. Such a message tells of an event, with its times: what came behind the first one in the list stands. Their new number. O(count log count).
size_t drop_repeated(QueuedMessage* messages, size_t count);

// Slurm's file (src/plugins/accounting_storage/slurmdbd/slurmdbd_agent.c, 17.11 to 25.05): its messages in order, serials from 1; what is behind a record that is cut is not there, as for Slurm.
QueuedMessage* slurms_messages(const unsigned char* file, size_t size, size_t* count);
// The other way round, for the messages of one protocol; to be freed.
unsigned char* slurms_file(const QueuedMessage* messages, size_t count, uint16_t protocol, size_t* size);

// The whole of a file, to be freed; null with errno. An empty one is not null.
unsigned char* whole_file(const char* path, size_t* size);
bool write_all_at(int fd, const void* bytes, size_t size, size_t at);

}  // namespace durable
