// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/store.h"

#include <condition_variable>
#include <mutex>

namespace fairlead::apiserver {

Result<Entry> Store::write_and_wait(Write write) {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Result<Entry>> answer;
  this->write(std::move(write), [&](Result<Entry> result) {
    // Notified under the lock: the waiter owns these variables and may be gone right after it sees the answer.
    const std::lock_guard lock(mutex);
    answer = std::move(result);
    answered.notify_one();
  });
  std::unique_lock lock(mutex);
  answered.wait(lock, [&] { return answer.has_value(); });
  return std::move(*answer);
}

}  // namespace fairlead::apiserver
