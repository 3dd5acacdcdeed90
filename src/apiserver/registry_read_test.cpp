// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <thread>

#include "apiserver/registry_bytes.h"
#include "apiserver/registry_test_kit.h"
#include "base/rng.h"

namespace fairlead::apiserver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using kube::EventType;

std::vector<std::string> names_of(const Result<ListPage>& page) {
  std::vector<std::string> out;
  if (!page) ADD_FAILURE() << page.error().message;
  else
    for (const Listed& object : page->objects) out.push_back(kube::name_of(*kube::parse_json(*object.value.bytes())));
  return out;
}

// "ADDED a 5"
std::string text_of(const RegistryEvent& event) {
  static constexpr std::array names{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"};
  const auto object = kube::parse_json(*event.object.bytes);
  const auto line = kube::parse_json(*event.line);
  EXPECT_EQ((*line)["type"].string(), names[static_cast<std::size_t>(event.type)]);
  EXPECT_EQ((*line)["object"], *object);
  EXPECT_TRUE(event.line->ends_with("}\n"));
  EXPECT_EQ(kube::version_of(*object), std::to_string(event.object.revision));
  return fmt::format("{} {}", names[static_cast<std::size_t>(event.type)], kube::name_of(*object));
}

struct Recorder {
  std::function<void(const RegistryEvent&)> sink() {
    return [this](const RegistryEvent& event) { seen.push_back(text_of(event)); };
  }
  std::vector<std::string> seen;
};

struct PodsWorld : World {
  PodsWorld() {
    for (const char* name : {"a", "b", "c", "d", "e"})
      must(create("pods", fmt::format("{{metadata: {{name: {}, labels: {{odd: '{}'}}}}, spec: {{nodeName: node-{}, containers: [{{name: c, image: i}}]}}}}", name, (name[0] - 'a') % 2,
                                      (name[0] - 'a') % 3)));
  }
  Result<ListPage> list(const ListQuery& query, const std::string& space = "default") const { return registry->list(*pods, space, query); }
  std::shared_ptr<const Kind> pods = kind("pods");
};

struct SelectCase {
  const char* name;
  const char* labels;
  const char* fields;
  std::vector<std::string> want;
};
class Select : public testing::TestWithParam<SelectCase> {};
TEST_P(Select, ByLabelsAndFields) {
  PodsWorld world;
  EXPECT_EQ(names_of(world.list({.label_selector = GetParam().labels, .field_selector = GetParam().fields})), GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(
    All, Select,
    testing::Values(SelectCase{"all", "", "", {"a", "b", "c", "d", "e"}}, SelectCase{"label", "odd=1", "", {"b", "d"}}, SelectCase{"label_set", "odd in (0,2)", "", {"a", "c", "e"}},
                    SelectCase{"label_absent", "!odd", "", {}}, SelectCase{"node", "", "spec.nodeName=node-0", {"a", "d"}}, SelectCase{"not_node", "", "spec.nodeName!=node-0", {"b", "c", "e"}},
                    SelectCase{"both", "odd=1", "spec.nodeName=node-0", {"d"}}, SelectCase{"name", "", "metadata.name=c", {"c"}}, SelectCase{"namespace", "", "metadata.namespace=other", {}},
                    SelectCase{"phase", "", "status.phase!=Pending", {}}, SelectCase{"absent_boolean", "", "spec.hostNetwork=false", {"a", "b", "c", "d", "e"}},
                    SelectCase{"empty_value", "", "status.podIP=", {"a", "b", "c", "d", "e"}}),
    [](const auto& row) { return row.param.name; });

TEST(RegistryList, RefusesUnknownFields) {
  PodsWorld world;
  EXPECT_EQ(world.list({.field_selector = "spec.foo=1"}).error(), (Error{Code::Invalid, "field label not supported: spec.foo"}));
  EXPECT_EQ(world.list({.label_selector = "a in b"}).error().code, Code::Invalid);
}

TEST(RegistryList, PagesAreOneSnapshot) {
  PodsWorld world;
  const auto first = world.list({.limit = 2});
  EXPECT_THAT(names_of(first), ElementsAre("a", "b"));
  EXPECT_EQ(first->remaining, 3);
  world.must(world.create("pods", "{metadata: {name: bb}, spec: {containers: [{name: c, image: i}]}}"));
  world.must(world.remove(*world.pods, {"default", "d"}, {.grace_seconds = 0}));
  const auto second = world.list({.limit = 2, .continue_token = first->continue_token});
  EXPECT_THAT(names_of(second), ElementsAre("c", "d"));
  EXPECT_EQ(second->revision, first->revision);
  const auto third = world.list({.limit = 2, .continue_token = second->continue_token});
  EXPECT_THAT(names_of(third), ElementsAre("e"));
  EXPECT_TRUE(third->continue_token.empty());
  EXPECT_EQ(world.list({.limit = 2, .continue_token = "nonsense"}).error().code, Code::Invalid);
  EXPECT_EQ(world.list({.limit = 2, .continue_token = first->continue_token, .resource_version = "5"}).error().code, Code::Invalid);
}

TEST(RegistryList, PagesWithSelectors) {
  PodsWorld world;
  std::vector<std::string> all;
  ListQuery query{.label_selector = "odd=0", .limit = 1};
  do {
    const auto page = world.list(query);
    for (const std::string& name : names_of(page)) all.push_back(name);
    query.continue_token = page->continue_token;
  } while (!query.continue_token.empty());
  EXPECT_THAT(all, ElementsAre("a", "c", "e"));
}

TEST(RegistryList, VersionsMeanWhatKubernetesSays) {
  PodsWorld world;
  const Revision then = world.registry->revision();
  world.must(world.remove(*world.pods, {"default", "a"}, {.grace_seconds = 0}));
  const std::string old = std::to_string(then);
  EXPECT_THAT(names_of(world.list({.resource_version = old, .resource_version_match = "Exact"})), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(names_of(world.list({.resource_version = old, .resource_version_match = "NotOlderThan"})), ElementsAre("b", "c", "d", "e"));
  EXPECT_THAT(names_of(world.list({.resource_version = old})), ElementsAre("b", "c", "d", "e"));
  EXPECT_THAT(names_of(world.list({.limit = 9, .resource_version = old})), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(names_of(world.list({.resource_version = "0"})), ElementsAre("b", "c", "d", "e"));
  EXPECT_EQ(world.list({.resource_version_match = "Exact"}).error().code, Code::Invalid);
  EXPECT_EQ(world.list({.resource_version = "0", .resource_version_match = "Exact"}).error().code, Code::Invalid);
  EXPECT_EQ(world.list({.resource_version = "x"}).error().code, Code::Invalid);
  const auto future = world.list({.resource_version = "999999"});
  ASSERT_FALSE(future);
  EXPECT_EQ(future.error().code, Code::Unavailable);
  EXPECT_THAT(future.error().message, HasSubstr("Too large resource version: 999999, current: "));
}

TEST(RegistryList, AnOldTokenIsExpired) {
  World world({.events = 4});
  for (int i = 0; i < 3; ++i) world.must(world.create("configmaps", fmt::format("{{metadata: {{name: m{}}}}}", i)));
  const auto first = world.registry->list(*world.kind("configmaps"), "default", {.limit = 1});
  for (int i = 0; i < 20; ++i) world.must(world.create("configmaps", fmt::format("{{metadata: {{name: x{}}}}}", i)));
  const auto second = world.registry->list(*world.kind("configmaps"), "default", {.limit = 1, .continue_token = first->continue_token});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::Expired);
  EXPECT_EQ(world.registry->watch(*world.kind("configmaps"), "", {.resource_version = "2"}, [](const RegistryEvent&) {}).error().code, Code::Expired);
}

TEST(RegistryWatch, BeginsWithWhatIsThereOrAtAVersion) {
  PodsWorld world;
  Recorder all, later, marked;
  const std::string now = std::to_string(world.registry->revision());
  const auto w1 = world.registry->watch(*world.pods, "", {.field_selector = "spec.nodeName=node-0"}, all.sink());
  const auto w2 = world.registry->watch(*world.pods, "default", {.resource_version = now}, later.sink());
  const auto w3 = world.registry->watch(*world.pods, "elsewhere", {.resource_version = now, .initial_events = true}, marked.sink());
  EXPECT_THAT(all.seen, ElementsAre("ADDED a", "ADDED d"));
  EXPECT_THAT(marked.seen, ElementsAre("BOOKMARK "));
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  world.must(world.remove(*world.pods, {"default", "b"}, {.grace_seconds = 0}));
  EXPECT_THAT(later.seen, ElementsAre("DELETED b"));
  EXPECT_EQ(world.registry->watch(*world.pods, "", {.resource_version = "99999"}, [](const RegistryEvent&) {}).error().code, Code::Unavailable);
}

TEST(RegistryWatch, LeavingASelectionIsADeletion) {
  World world;
  Recorder red;
  const auto maps = world.kind("configmaps");
  const auto watching = world.registry->watch(*maps, "", {.label_selector = "colour=red"}, red.sink());
  const kube::ObjectKey key{"default", "a"};
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  world.must(world.patch(*maps, key, "{metadata: {labels: {colour: red}}}"));
  world.must(world.patch(*maps, key, "{data: {k: v}}"));
  std::string last;
  const auto second = world.registry->watch(*maps, "", {.label_selector = "colour=red"}, [&](const RegistryEvent& event) { last = *event.object.bytes; });
  world.must(world.patch(*maps, key, "{metadata: {labels: {colour: blue}}}"));
  EXPECT_THAT(red.seen, ElementsAre("ADDED a", "MODIFIED a", "DELETED a"));
  EXPECT_THAT(last, HasSubstr("\"colour\":\"red\""));
  EXPECT_THAT(last, HasSubstr("\"resourceVersion\":\"" + std::to_string(world.registry->revision()) + "\""));
  world.must(world.remove(*maps, key));
  EXPECT_EQ(red.seen.size(), 3u);
}

TEST(RegistryWatch, WatchersShareTheBytes) {
  World world;
  std::vector<RegistryEvent> a, b;
  const auto maps = world.kind("configmaps");
  const auto w1 = world.registry->watch(*maps, "", {.resource_version = std::to_string(world.registry->revision())}, [&](const RegistryEvent& event) { a.push_back(event); });
  const auto w2 = world.registry->watch(*maps, "", {.resource_version = std::to_string(world.registry->revision())}, [&](const RegistryEvent& event) { b.push_back(event); });
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  ASSERT_EQ(a.size(), 1u);
  ASSERT_EQ(b.size(), 1u);
  EXPECT_EQ(a[0].line.get(), b[0].line.get());
  EXPECT_EQ(a[0].object.bytes.get(), b[0].object.bytes.get());
}

TEST(RegistryWatch, SecretsArrivePlain) {
  World world;
  std::string seen;
  const auto watching = world.registry->watch(*world.kind("secrets"), "", {}, [&](const RegistryEvent& event) { seen += *event.line; });
  world.must(world.create("secrets", "{metadata: {name: s}, data: {k: dg==}}"));
  world.must(world.remove(*world.kind("secrets"), {"default", "s"}));
  EXPECT_THAT(seen, HasSubstr("{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"Secret\""));
  EXPECT_THAT(seen, HasSubstr("{\"type\":\"DELETED\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"Secret\""));
}

TEST(RegistryBytes, PeekReadsWhatTheObjectSays) {
  Peek peek(R"({"metadata":{"resourceVersion":"5","name":"a","labels":{"x":"1","y\"z":"2"}},"spec":{"on":true,"n":42,"deep":{"a":"b"},"list":[1]}})");
  EXPECT_EQ(peek.field("spec.deep.a"), "b");
  EXPECT_EQ(peek.field("spec.on"), "true");
  EXPECT_EQ(peek.field("spec.n"), "42");
  EXPECT_EQ(peek.field("spec.list"), std::nullopt);
  EXPECT_EQ(peek.field("spec.absent.x"), std::nullopt);
  EXPECT_EQ(peek.field("metadata.name"), "a");
  EXPECT_EQ(peek.labels(), (std::map<std::string, std::string>{{"x", "1"}, {"y\"z", "2"}}));
  EXPECT_EQ(Peek("{").field("a"), std::nullopt);
}

// Whatever writers do meanwhile: a list and the watch from its version give the state at the end, in order, without gaps or repeats.
TEST(RegistryProperty, ListAndWatchAgreeUnderConcurrentWriters) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    World world;
    const auto maps = world.kind("configmaps");
    std::atomic<bool> go{false};
    std::vector<std::jthread> writers;
    for (std::uint64_t t = 0; t < 3; ++t) {
      writers.emplace_back([&, t] {
        Rng rng(seed * 10 + t);
        while (!go) std::this_thread::yield();
        for (int i = 0; i < 120; ++i) {
          const std::string name = fmt::format("m{}", rng.below(6));
          const auto what = rng.below(4);
          if (what == 0) (void)world.create("configmaps", fmt::format("{{metadata: {{name: {}, labels: {{colour: {}}}}}}}", name, rng.below(2) ? "red" : "blue"));
          if (what == 1) (void)world.patch(*maps, {"default", name}, fmt::format("{{metadata: {{labels: {{colour: {}}}}}}}", rng.below(2) ? "red" : "blue"));
          if (what == 2) (void)world.patch(*maps, {"default", name}, fmt::format("{{data: {{k: v{}}}}}", i));
          if (what == 3) (void)world.remove(*maps, {"default", name});
        }
      });
    }
    struct View {
      std::mutex mutex;
      std::map<std::string, std::string> objects;
      Revision last = 0;
      bool wrong = false;
    };
    std::deque<View> views;
    std::vector<std::unique_ptr<Subscription>> watching;
    go = true;
    for (int i = 0; i < 12; ++i) {
      View& view = views.emplace_back();
      const char* labels = i % 2 ? "colour=red" : "";
      const auto page = world.registry->list(*maps, "", {.label_selector = labels});
      ASSERT_TRUE(page);
      for (const Listed& object : page->objects) view.objects[kube::name_of(*kube::parse_json(*object.value.bytes()))] = *object.value.bytes();
      view.last = page->revision;
      auto subscription = world.registry->watch(*maps, "", {.label_selector = labels, .resource_version = std::to_string(page->revision)}, [&view](const RegistryEvent& event) {
        const std::scoped_lock lock(view.mutex);
        const std::string name = kube::name_of(*kube::parse_json(*event.object.bytes));
        view.wrong = view.wrong || event.object.revision <= view.last || (event.type == EventType::Added) == view.objects.contains(name);
        view.last = event.object.revision;
        if (event.type == EventType::Deleted) view.objects.erase(name);
        else view.objects[name] = *event.object.bytes;
      });
      ASSERT_TRUE(subscription);
      watching.push_back(std::move(*subscription));
    }
    writers.clear();  // joins: every write was answered, so every event was delivered
    for (std::size_t i = 0; i < views.size(); ++i) {
      const auto page = world.registry->list(*maps, "", {.label_selector = i % 2 ? "colour=red" : ""});
      std::map<std::string, std::string> want;
      for (const Listed& object : page->objects) want[kube::name_of(*kube::parse_json(*object.value.bytes()))] = *object.value.bytes();
      const std::scoped_lock lock(views[i].mutex);
      EXPECT_FALSE(views[i].wrong) << "seed " << seed << " view " << i;
      EXPECT_EQ(views[i].objects, want) << "seed " << seed << " view " << i;
    }
  }
}

}  // namespace
}  // namespace fairlead::apiserver::test
