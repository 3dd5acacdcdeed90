// SPDX-License-Identifier: Apache-2.0
// How many durable creates does the store make in a second, for 1, 16 and 64 writers that each wait for their answer? No HTTP, no TLS.
//   store_bench [FOLDER [SECONDS]]     FOLDER decides the disk; default: the current one
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "apiserver/store/store.h"
#include "base/files.h"

using namespace fairlead;
using namespace fairlead::apiserver;

namespace {

struct Run {
  double per_second = 0;
  double p50_ms = 0, p99_ms = 0, max_ms = 0;
};

// Fails loudly when what was acknowledged is not there afterwards.
Result<Run> run(const std::string& folder, int writers, double seconds) {
  using Time = std::chrono::steady_clock;
  auto store = open_sqlite_store({.path = folder + "/store.db"});
  if (!store) return std::unexpected(std::move(store.error()));
  const std::string half(1'000, 'x');
  std::atomic<bool> stop{false}, failed{false};
  std::vector<std::vector<float>> latencies(static_cast<std::size_t>(writers));
  std::vector<std::thread> threads;
  const auto start = Time::now();
  for (int w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      for (int i = 0; !stop; ++i) {
        const auto before = Time::now();
        auto entry = (*store)->write_and_wait({.key = fmt::format("/pods/w{}/{}", w, i), .expected = 0, .value = Template{half, half}});
        if (!entry) {
          failed = true;
          return;
        }
        latencies[static_cast<std::size_t>(w)].push_back(std::chrono::duration<float, std::milli>(Time::now() - before).count());
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const double elapsed = std::chrono::duration<double>(Time::now() - start).count();
  std::vector<float> all;
  for (const auto& some : latencies) all.insert(all.end(), some.begin(), some.end());
  if (failed) return fail(Code::Internal, "a create was refused");
  store->reset();
  auto again = open_sqlite_store({.path = folder + "/store.db"});
  if (!again) return std::unexpected(std::move(again.error()));
  if ((*again)->revision() != static_cast<Revision>(all.size())) return fail(Code::Internal, "acknowledged creates are missing after reopening");
  std::sort(all.begin(), all.end());
  const auto at = [&](double part) { return static_cast<double>(all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))]); };
  return Run{static_cast<double>(all.size()) / elapsed, at(0.5), at(0.99), at(1)};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string where = argc > 1 ? argv[1] : ".";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5;
  fmt::print("durable creates, 2 kB values, {} s each, {} cores\n{:>8} {:>12} {:>9} {:>9} {:>9}\n", seconds, std::thread::hardware_concurrency(), "writers",
             "creates/s", "p50 ms", "p99 ms", "max ms");
  for (const int writers : {1, 16, 64}) {
    std::string folder = where + "/fairlead-store-bench-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) {
      fmt::print(stderr, "store_bench: cannot make a folder in {}\n", where);
      return 1;
    }
    auto result = run(folder, writers, seconds);
    if (auto removed = remove_tree(folder); !removed) fmt::print(stderr, "store_bench: {}\n", removed.error().message);
    if (!result) {
      fmt::print(stderr, "store_bench: {}\n", result.error().message);
      return 1;
    }
    fmt::print("{:>8} {:>12.0f} {:>9.2f} {:>9.2f} {:>9.2f}\n", writers, result->per_second, result->p50_ms, result->p99_ms, result->max_ms);
  }
  return 0;
}
