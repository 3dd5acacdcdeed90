// SPDX-License-Identifier: Apache-2.0
#include "apiserver/local_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "apiserver/registry_bytes.h"
#include "kube/many.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

// A watcher that falls this far behind starts again from the last version that it saw.
constexpr std::size_t queue_limit = 100'000;

// The object without managedFields; parts that go with these are not even joined.
std::string plain_part(const Value& value) {
  const Value::Held& held = *value.held();
  // What is taken out of an object's own bytes leaves brackets in balance.
  const std::string_view managed = managed_fields_of(held.own);
  const auto start = managed.empty() ? 0 : static_cast<std::size_t>(managed.data() - held.own.data());
  const bool inside = std::all_of(held.inserts.begin(), held.inserts.end(), [&](const Value::Insert& insert) { return insert.at > start && insert.at < start + managed.size(); });
  return inside ? without_managed_fields(std::string_view(held.own)) : without_managed_fields(held.join());
}

// The controllers' caches hold what the store holds. Whoever gets one has parsed it before.
Json decode(const void* held) {
  const auto* const stored = static_cast<const Value::Held*>(held);
  const Value value(std::shared_ptr<const Value::Held>(std::shared_ptr<void>(), stored));  // the caller holds it
  auto object = kube::parse_json(plain_part(value));
  INVARIANT(object);
  return std::move(*object);
}

// Events wait here as bytes and are parsed by the reader, who takes all that are there.
class Queue {
 public:
  struct Item {
    kube::EventType type;
    Value value;
  };
  void push(const RegistryEvent& event) {
    {
      const std::scoped_lock lock(mutex_);
      if (closed_ || overflowed_ || failure_) return;
      const bool reader_knows = !events_.empty();
      if (event.failure) {
        failure_ = event.failure;
      } else if (events_.size() >= queue_limit) {
        overflowed_ = true;
      } else {
        events_.push_back({event.type, event.value ? event.value : Value(*event.object.bytes)});
      }
      if (reader_knows) return;
    }
    changed_.notify_one();
  }
  // Into an empty list; it stays so if nothing comes within `limit`.
  Result<void> take(std::chrono::milliseconds limit, std::deque<Item>& into) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return closed_ || overflowed_ || failure_ || !events_.empty(); });
    if (closed_) return fail(Code::Unavailable, "the watch was closed");
    if (events_.empty() && failure_) return std::unexpected(*failure_);
    if (events_.empty() && overflowed_) return fail(Code::Unavailable, "the watch fell behind");
    into.swap(events_);
    return {};
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  bool closed() const { return closed_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> events_;
  std::atomic<bool> closed_ = false;  // written under mutex_
  bool overflowed_ = false;
  std::optional<Error> failure_;
};

class LocalWatch final : public kube::Watch {
 public:
  LocalWatch(std::shared_ptr<Queue> queue, std::unique_ptr<Subscription> subscription) : queue_(std::move(queue)), subscription_(std::move(subscription)) {}
  Result<std::optional<kube::WatchEvent>> next(std::chrono::milliseconds limit) override {
    if (taken_.empty() || queue_->closed()) {
      taken_.clear();
      if (auto took = queue_->take(limit, taken_); !took) return std::unexpected(std::move(took.error()));
    }
    if (taken_.empty()) return std::optional<kube::WatchEvent>();
    const Queue::Item item = std::move(taken_.front());
    taken_.pop_front();
    auto object = kube::parse_json(plain_part(item.value));
    if (!object) return std::unexpected(std::move(object.error()));
    return std::optional<kube::WatchEvent>({item.type, std::move(*object), kube::AtRest(item.value.held(), decode)});
  }
  void close() override { queue_->close(); }

 private:
  std::shared_ptr<Queue> queue_;
  std::deque<Queue::Item> taken_;  // the reader's
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

// The same of many writes that are under way at once.
class Answers {
 public:
  explicit Answers(std::size_t count) : results_(count), left_(count) {}
  Reply reply(std::size_t i) {
    return [this, i](Result<Written> result) {
      const std::scoped_lock lock(mutex_);
      if (!result) results_[i] = std::unexpected(std::move(result.error()));
      if (--left_ == 0) answered_.notify_all();
    };
  }
  std::vector<Result<void>> wait() {
    std::unique_lock lock(mutex_);
    answered_.wait(lock, [&] { return left_ == 0; });
    return std::move(results_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable answered_;
  std::vector<Result<void>> results_;
  std::size_t left_;
};

class LocalApi final : public kube::KubeApi, public kube::ManyWrites {
 public:
  LocalApi(Registry& registry, ExecPort exec, std::string user, ReviewPort review) : registry_(registry), exec_(std::move(exec)), user_(std::move(user)), review_(std::move(review)) {}

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
    out.at_rest.reserve(page->objects.size());
    for (const Listed& object : page->objects) {
      auto parsed = kube::parse_json(plain_part(object.value));
      if (!parsed) return std::unexpected(std::move(parsed.error()));
      out.items.push_back(std::move(*parsed));
      out.at_rest.emplace_back(object.value.held(), decode);
    }
    return out;
  }

  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override {
    const auto kind = find(resource);
    if (!kind) return not_served(resource);
    auto queue = std::make_shared<Queue>();
    auto subscription = registry_.watch(*kind, space, {.label_selector = options.label_selector, .field_selector = options.field_selector, .resource_version = options.resource_version, .lines = false},
                                        [queue](const RegistryEvent& event) { queue->push(event); });
    if (!subscription) return std::unexpected(std::move(subscription.error()));
    return std::unique_ptr<kube::Watch>(std::make_unique<LocalWatch>(std::move(queue), std::move(*subscription)));
  }

  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    const auto kind = find(resource);
    if (!kind && review_) return review_(resource, object);
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
    if (subresource != "binding") return answer.object();
    const auto bound = answer.wait();  // is answered with a Status, as over HTTP: nobody reads the pod
    if (!bound) return std::unexpected(bound.error());
    return Json::object({{"kind", "Status"}, {"apiVersion", "v1"}, {"metadata", Json::object()}, {"status", "Success"}, {"code", 201}});
  }

  std::vector<Result<void>> create_all(const kube::Resource& resource, std::vector<Json> objects) override {
    const auto kind = find(resource);
    if (!kind) return std::vector<Result<void>>(objects.size(), Result<void>(not_served(resource)));
    Answers answers(objects.size());
    for (std::size_t i = 0; i < objects.size(); ++i) {
      const std::string space = kube::space_of(objects[i]);
      registry_.create(context(), *kind, space, std::move(objects[i]), answers.reply(i));
    }
    return answers.wait();
  }
  std::vector<Result<void>> post_all(const kube::Resource& resource, const std::string& subresource, std::vector<kube::Posting> postings) override {
    const auto kind = find(resource);
    if (!kind) return std::vector<Result<void>>(postings.size(), Result<void>(not_served(resource)));
    Answers answers(postings.size());
    for (std::size_t i = 0; i < postings.size(); ++i) registry_.post(context(), *kind, postings[i].key, subresource, std::move(postings[i].body), answers.reply(i));
    return answers.wait();
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
  WriteContext context() const { return {.user = user_, .validation = FieldValidation::Strict, .field_manager = "fairlead-server"}; }
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
  const std::string user_;
  const ReviewPort review_;
};

}  // namespace

std::unique_ptr<kube::KubeApi> make_local_api(Registry& registry, ExecPort exec, const std::string& user, ReviewPort review) { return std::make_unique<LocalApi>(registry, std::move(exec), user, std::move(review)); }

}  // namespace fairlead::apiserver
