// SPDX-License-Identifier: Apache-2.0
// Watches over HTTP: chunked lines from the registry's events, bookmarks, time-outs. One thread keeps the time for all of them; events are
// written by the thread that publishes them. A client that reads slowly is fed at its pace up to a bound, then cut (it resumes by its last version).
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "apiserver/negotiate.h"
#include "apiserver/registry.h"
#include "apiserver/table.h"
#include "http/server.h"

namespace fairlead::apiserver {

struct WatchPlan {
  std::shared_ptr<const Kind> kind;
  std::string space;
  WatchQuery query;
  Form form = Form::Json;  // Json, Table or Partial
  Include include = Include::Metadata;
  bool bookmarks = false;
  std::chrono::seconds timeout{1'800};
};

class WatchHub {
 public:
  struct Options {
    std::chrono::nanoseconds bookmark_every = std::chrono::seconds(60);
    std::size_t window = 1 << 20;          // bytes handed to the connection ahead of the client
    std::size_t backlog = 64 << 20;        // bytes kept for a slow client beside what it gets at the start
  };
  WatchHub(Registry& registry, const Clock& clock) : WatchHub(registry, clock, Options()) {}
  WatchHub(Registry& registry, const Clock& clock, Options options);
  ~WatchHub();  // as stop()
  // Answers the exchange: a stream, or a Status if the registry refuses. Any thread.
  void open(WatchPlan plan, std::shared_ptr<http::Exchange> exchange);
  void stop();  // ends all watches; open() answers 503 from now on
  std::size_t size() const;

 private:
  class One;
  struct Signal;
  void run(std::stop_token stop);
  void seen(Revision revision);

  Registry& registry_;
  const Clock& clock_;
  const Options options_;
  std::shared_ptr<Signal> signal_;
  // An event that some live watch got: all events below it have been handed to all watches, because events are published one after the other.
  std::atomic<Revision> seen_{0};
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<One>> watches_;
  bool stopped_ = false;
  std::vector<std::unique_ptr<Subscription>> pulse_;  // on kinds that change all the time, so that seen_ moves
  std::jthread thread_;
};

}  // namespace fairlead::apiserver
