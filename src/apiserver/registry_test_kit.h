// SPDX-License-Identifier: Apache-2.0
// For the tests of the registry and its controllers: a registry over memory with a clock that stands still, and its verbs as plain calls.
#pragma once
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "apiserver/local_api.h"
#include "apiserver/registry.h"
#include "apiserver/registry_bytes.h"
#include "kube/json.h"

namespace fairlead::apiserver::test {

using kube::Json;

inline Json json(std::string_view text) {
  auto documents = kube::parse_yaml(text);
  if (!documents) ADD_FAILURE() << documents.error().message << "\n" << text;
  return documents && !documents->empty() ? std::move(documents->front()) : Json();
}

class Waiter {
 public:
  Reply reply() {
    return [this](Result<Written> result) {
      const std::scoped_lock lock(mutex_);
      EXPECT_FALSE(result_.has_value()) << "answered twice";
      result_ = std::move(result);
      changed_.notify_all();
    };
  }
  Result<Written> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return result_.has_value(); });
    return std::move(*result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<Written>> result_;
};

struct World {
  explicit World(HistoryLimits limits = {}, std::unique_ptr<Store> given = nullptr, std::shared_ptr<const Converter> converter = nullptr)
      : store(given ? std::move(given) : make_memory_store(limits, common_parts)) {
    auto opened = Registry::open(*store, clock, {.secret_key = std::string(32, 'k'), .service_ranges = {"10.79.0.0/16", "fd00:79::/112"}, .converter = std::move(converter)});
    if (!opened) ADD_FAILURE() << opened.error().message;
    registry = std::move(*opened);
    api = make_local_api(*registry);
  }

  std::shared_ptr<const Kind> kind(const std::string& plural, const std::string& group = "", const std::string& version = "v1") const {
    auto found = registry->kinds()->find(group, version, plural);
    if (!found) ADD_FAILURE() << "not served: " << plural;
    return found;
  }
  Result<Written> create(const std::string& plural, std::string_view yaml, const std::string& space = "default", WriteContext context = {}) {
    return create(*kind(plural), json(yaml), space, std::move(context));
  }
  Result<Written> create(const Kind& of, Json body, const std::string& space, WriteContext context = {}) {
    Waiter waiter;
    registry->create(context, of, of.resource.namespaced ? space : "", std::move(body), waiter.reply());
    return waiter.wait();
  }
  Result<Written> update(const Kind& of, const Json& body, const std::string& subresource = "", WriteContext context = {}) {
    Waiter waiter;
    registry->update(context, of, kube::key_of(body), subresource, body, waiter.reply());
    return waiter.wait();
  }
  Result<Written> patch(const Kind& of, const kube::ObjectKey& key, std::string_view yaml, kube::PatchType type = kube::PatchType::Merge, const std::string& subresource = "",
                        WriteContext context = {}) {
    Waiter waiter;
    registry->patch(context, of, key, subresource, type, json(yaml), waiter.reply());
    return waiter.wait();
  }
  Result<Written> remove(const Kind& of, const kube::ObjectKey& key, const kube::DeleteOptions& options = {}, WriteContext context = {}) {
    Waiter waiter;
    registry->remove(context, of, key, options, waiter.reply());
    return waiter.wait();
  }
  Result<Written> post(const Kind& of, const kube::ObjectKey& key, const std::string& subresource, std::string_view yaml) {
    Waiter waiter;
    registry->post({}, of, key, subresource, json(yaml), waiter.reply());
    return waiter.wait();
  }
  Json get(const Kind& of, const kube::ObjectKey& key) const {
    const auto object = registry->get(of, key);
    return object ? *kube::parse_json(*object->bytes) : Json();
  }
  void must(const Result<Written>& done) const {
    if (!done) ADD_FAILURE() << done.error().message;
  }

  ManualClock clock{*parse_time("2026-01-01T00:00:00Z")};
  std::unique_ptr<Store> store;
  std::unique_ptr<Registry> registry;
  std::unique_ptr<kube::KubeApi> api;
};

inline Json object_of(const Result<Written>& done) { return done ? *kube::parse_json(*done->object.bytes) : Json(); }
inline std::string message_of(const Result<Written>& done) { return done ? "" : done.error().message; }

constexpr std::string_view small_pod = R"(
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: main, image: "nginx:1.25"}]}
)";

}  // namespace fairlead::apiserver::test
