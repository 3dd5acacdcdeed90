// SPDX-License-Identifier: Apache-2.0
#include "apiserver/local_api.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "apiserver/registry_bytes.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

// A watcher that falls this far behind starts again from the last version that it saw.
constexpr std::size_t queue_limit = 100'000;

// Events wait here as bytes and are parsed by the reader.
class Queue {
 public:
  void push(const RegistryEvent& event) {
    const std::scoped_lock lock(mutex_);
    if (closed_ || overflowed_) return;
    if (events_.size() >= queue_limit) {
      overflowed_ = true;
    } else {
      events_.push_back({event.type, event.object.bytes});
    }
    changed_.notify_one();
  }
  struct Item {
    kube::EventType type;
    http::Buffer bytes;
  };
  Result<std::optional<Item>> take(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return closed_ || overflowed_ || !events_.empty(); });
    if (closed_) return fail(Code::Unavailable, "the watch was closed");
    if (!events_.empty()) {
      std::optional<Item> item(std::move(events_.front()));
      events_.pop_front();
      return item;
    }
    if (overflowed_) return fail(Code::Unavailable, "the watch fell behind");
    return std::optional<Item>();
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> events_;
  bool closed_ = false, overflowed_ = false;
};

class LocalWatch final : public kube::Watch {
 public:
  LocalWatch(std::shared_ptr<Queue> queue, std::unique_ptr<Subscription> subscription) : queue_(std::move(queue)), subscription_(std::move(subscription)) {}
  Result<std::optional<kube::WatchEvent>> next(std::chrono::milliseconds limit) override {
    auto item = queue_->take(limit);
    if (!item) return std::unexpected(std::move(item.error()));
    if (!*item) return std::optional<kube::WatchEvent>();
    auto object = kube::parse_json(without_managed_fields(*(*item)->bytes));
    if (!object) return std::unexpected(std::move(object.error()));
    return std::optional<kube::WatchEvent>({(*item)->type, std::move(*object)});
  }
  void close() override { queue_->close(); }

 private:
  std::shared_ptr<Queue> queue_;
  std::unique_ptr<Subscription> subscription_;
};

// Turns a write's reply into an answer to wait for.
class Answer {
 public:
  Reply reply() {
    return [this](Result<Written> result) {
      const std::scoped_lock lock(mutex_);
      result_ = std::move(result);
      answered_.notify_all();
    };
  }
  Result<Written> wait() {
    std::unique_lock lock(mutex_);
    answered_.wait(lock, [&] { return result_.has_value(); });
    return std::move(*result_);
  }
  Result<Json> object() {
    auto written = wait();
    if (!written) return std::unexpected(std::move(written.error()));
    return kube::parse_json(without_managed_fields(*written->object.bytes));
  }

 private:
  std::mutex mutex_;
  std::condition_variable answered_;
  std::optional<Result<Written>> result_;
};

class LocalApi final : public kube::KubeApi {
 public:
  LocalApi(Registry& registry, ExecPort exec) : registry_(registry), exec_(std::move(exec)) {}

  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    auto object = registry_.get(*kind, key);
    if (!object) return std::unexpected(std::move(object.error()));
    return kube::parse_json(without_managed_fields(*object->bytes));
  }

  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    auto page = registry_.list(*kind, space,
                               {.label_selector = options.label_selector, .field_selector = options.field_selector, .limit = options.limit, .continue_token = options.continue_token,
                                .resource_version = options.resource_version, .resource_version_match = {}});
    if (!page) return std::unexpected(std::move(page.error()));
    kube::List out{.items = {}, .resource_version = std::to_string(page->revision), .continue_token = page->continue_token};
    out.items.reserve(page->objects.size());
    for (const Object& object : page->objects) {
      auto parsed = kube::parse_json(without_managed_fields(*object.bytes));
      if (!parsed) return std::unexpected(std::move(parsed.error()));
      out.items.push_back(std::move(*parsed));
    }
    return out;
  }

  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    auto queue = std::make_shared<Queue>();
    auto subscription = registry_.watch(*kind, space, {.label_selector = options.label_selector, .field_selector = options.field_selector, .resource_version = options.resource_version},
                                        [queue](const RegistryEvent& event) { queue->push(event); });
    if (!subscription) return std::unexpected(std::move(subscription.error()));
    return std::unique_ptr<kube::Watch>(std::make_unique<LocalWatch>(std::move(queue), std::move(*subscription)));
  }

  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    Answer answer;
    registry_.create(context(), *kind, kube::space_of(object), object, answer.reply());
    return answer.object();
  }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return put(resource, object, ""); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return put(resource, object, "status"); }

  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    Answer answer;
    registry_.patch(context(), *kind, key, subresource, type, patch, answer.reply());
    return answer.object();
  }

  Result<Json> post(const kube::Resource& resource, const kube::ObjectKey& key, const std::string& subresource, const Json& body) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    Answer answer;
    registry_.post(context(), *kind, key, subresource, body, answer.reply());
    return answer.object();
  }

  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    Answer answer;
    registry_.remove(context(), *kind, key, options, answer.reply());
    auto done = answer.wait();
    if (!done) return std::unexpected(std::move(done.error()));
    return {};
  }

  Result<kube::ExecResult> exec(const kube::ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input,
                                std::chrono::milliseconds limit) override {
    if (!exec_) return fail(Code::Unsupported, "exec is not available here");
    const auto object = get(kube::resources::pods, pod);
    if (!object) return std::unexpected(object.error());
    return exec_(*object, container, command, input, limit);
  }

 private:
  static WriteContext context() { return {.user = "system:fairlead", .validation = FieldValidation::Strict, .field_manager = "fairlead-server"}; }
  static std::unexpected<Error> not_served(const kube::Resource& resource) {
    return fail(Code::NotFound, fmt::format("the server could not find the requested resource ({} in {})", resource.plural, resource.api_version()));
  }
  std::shared_ptr<const Kind> find(const kube::Resource& resource) const { return registry_.kinds()->find(resource.group, resource.version, resource.plural); }
  Result<Json> put(const kube::Resource& resource, const Json& object, const std::string& subresource) {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    Answer answer;
    registry_.update(context(), *kind, kube::key_of(object), subresource, object, answer.reply());
    return answer.object();
  }

  Registry& registry_;
  ExecPort exec_;
};

}  // namespace

std::unique_ptr<kube::KubeApi> make_local_api(Registry& registry, ExecPort exec) { return std::make_unique<LocalApi>(registry, std::move(exec)); }

}  // namespace fairlead::apiserver
