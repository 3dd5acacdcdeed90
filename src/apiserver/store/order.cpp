// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/order.h"

#include <fmt/format.h>

namespace fairlead::apiserver {
namespace {

constexpr std::size_t largest_write = 16 << 20;

std::size_t size_of(const Write& write) {
  return write.key.size() + (write.value ? write.value->before.size() + write.value->after.size() : 0);
}

Result<void> check(const Write& write, const Current& now) {
  if (write.key.empty()) return fail(Code::Invalid, "write: empty key");
  if (size_of(write) > largest_write) {
    return fail(Code::Invalid, fmt::format("write {}: {} bytes; at most {} are stored", write.key, size_of(write), largest_write));
  }
  if (!write.value && now.revision == 0) return fail(Code::NotFound, fmt::format("delete {}: no such key", write.key));
  if (!write.expected || *write.expected == now.revision) return {};
  if (*write.expected == 0) return fail(Code::Exists, fmt::format("{} exists at revision {}", write.key, now.revision));
  return fail(Code::Conflict, now.revision == 0 ? fmt::format("{} is gone; revision {} was expected", write.key, *write.expected)
                                                : fmt::format("{} is at revision {}; {} was expected", write.key, now.revision, *write.expected));
}

std::string bytes_of(const Template& value, Revision revision) {
  if (value.before.empty() && value.after.empty()) return {};
  const std::string number = std::to_string(revision);
  std::string bytes;
  bytes.reserve(value.before.size() + number.size() + value.after.size());
  bytes.append(value.before).append(number).append(value.after);
  return bytes;
}

}  // namespace

Order::Outcome Order::add(const Write& write) {
  const auto earlier = written_.find(write.key);
  const bool leans = earlier != written_.end();
  const Current now = leans ? earlier->second : index_.current(write.key);
  if (auto fine = check(write, now); !fine) return {std::unexpected(std::move(fine.error())), leans};

  StoreEvent event{.revision = next_++, .key = write.key, .value = nullptr, .before = now.value, .before_revision = now.revision};
  if (write.value) event.value = Value(bytes_of(*write.value, event.revision));
  written_.insert_or_assign(write.key, event.value ? Current{event.revision, event.value} : Current{});
  Entry entry{write.key, event.revision, event.value ? event.value : event.before};
  events_.push_back(std::move(event));
  return {std::move(entry), true};
}

}  // namespace fairlead::apiserver
