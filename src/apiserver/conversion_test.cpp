// SPDX-License-Identifier: Apache-2.0
// Conversion by a webhook: what a CRD may say of it, what of an answer is taken, and objects in either version over the registry.
#include "apiserver/conversion.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <deque>

#include "apiserver/conversion_client.h"
#include "apiserver/registry_test_kit.h"
#include "http/test_site.h"

namespace fairlead::apiserver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- what a CRD may say
struct ConversionCase {
  const char* name;
  const char* conversion;
  const char* want;  // all complaints; empty: none
};
class Conversion : public testing::TestWithParam<ConversionCase> {};
TEST_P(Conversion, OfACrd) {
  FieldErrors errors;
  check_conversion(json(GetParam().conversion), errors);
  EXPECT_EQ(fmt::format("{}", fmt::join(errors.texts(), "\n")), GetParam().want);
}
#define CONFIG "spec.conversion.webhookClientConfig"
INSTANTIATE_TEST_SUITE_P(
    Crds, Conversion,
    testing::Values(
        ConversionCase{"none", "{strategy: None}", ""}, ConversionCase{"strategy", "{strategy: Frob}", "spec.conversion.strategy: Unsupported value: \"Frob\": supported values: \"None\", \"Webhook\""},
        ConversionCase{"url", "{strategy: Webhook, webhook: {clientConfig: {url: 'https://a:9443/convert'}, conversionReviewVersions: [v1]}}", ""},
        ConversionCase{"service", "{strategy: Webhook, webhook: {clientConfig: {service: {namespace: a, name: b, path: /convert}}, conversionReviewVersions: [v1, v1beta1]}}", ""},
        ConversionCase{"no_webhook", "{strategy: Webhook}", CONFIG ": Required value: required when strategy is set to Webhook\nspec.conversion.conversionReviewVersions: Required value"},
        ConversionCase{"both", "{strategy: Webhook, webhook: {clientConfig: {url: 'https://a', service: {namespace: a, name: b}}, conversionReviewVersions: [v1]}}", CONFIG ": Required value: exactly one of url or service is required"},
        ConversionCase{"neither", "{strategy: Webhook, webhook: {clientConfig: {}, conversionReviewVersions: [v1]}}", CONFIG ": Required value: exactly one of url or service is required"},
        ConversionCase{"http", "{strategy: Webhook, webhook: {clientConfig: {url: 'http://a/b'}, conversionReviewVersions: [v1]}}",
                       CONFIG ".url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"},
        ConversionCase{"user", "{strategy: Webhook, webhook: {clientConfig: {url: 'https://me@a/b'}, conversionReviewVersions: [v1]}}", CONFIG ".url: Invalid value: \"me\": user information is not permitted in the URL"},
        ConversionCase{"query", "{strategy: Webhook, webhook: {clientConfig: {url: 'https://a/b?c=d'}, conversionReviewVersions: [v1]}}", CONFIG ".url: Invalid value: \"c=d\": query parameters are not permitted in the URL"},
        ConversionCase{"service_parts", "{strategy: Webhook, webhook: {clientConfig: {service: {port: 0, path: 'x'}}, conversionReviewVersions: [v1]}}",
                       CONFIG ".service.name: Required value: service name is required\n" CONFIG ".service.namespace: Required value: service namespace is required\n" CONFIG
                              ".service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive\n" CONFIG ".service.path: Invalid value: \"x\": must start with a '/'\n" CONFIG
                              ".service.path: Invalid value: \"x\": segment[0] may not be empty"},
        ConversionCase{"no_versions", "{strategy: Webhook, webhook: {clientConfig: {url: 'https://a'}, conversionReviewVersions: []}}", "spec.conversion.conversionReviewVersions: Required value"},
        ConversionCase{"versions", "{strategy: Webhook, webhook: {clientConfig: {url: 'https://a'}, conversionReviewVersions: [v3]}}",
                       "spec.conversion.conversionReviewVersions: Invalid value: []string{\"v3\"}: must include at least one of v1, v1beta1"},
        ConversionCase{"old_versions", "{strategy: Webhook, webhook: {clientConfig: {url: 'https://a'}, conversionReviewVersions: [v1beta1]}}",
                       "spec.conversion.conversionReviewVersions: Forbidden: not supported by the embedded engine; reviews are asked in v1 alone"},
        ConversionCase{"config_without", "{strategy: None, webhook: {clientConfig: {url: 'https://a'}, conversionReviewVersions: [v1]}}",
                       CONFIG ": Forbidden: should not be set when strategy is not set to Webhook\nspec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook"}),
    [](const auto& row) { return row.param.name; });

// ---- what of an answer is taken
const char* const asked = "[{apiVersion: g.dev/v1, kind: W, metadata: {name: a, namespace: ns, uid: u, resourceVersion: '7', labels: {x: z}}, spec: {size: 1}}, {apiVersion: g.dev/v1, kind: W, metadata: {name: b, namespace: ns, uid: v}}]";
struct AnswerCase {
  const char* name;
  const char* answer;
  const char* want;
};
class Answer : public testing::TestWithParam<AnswerCase> {};
TEST_P(Answer, IsTakenWholeOrNot) {
  const auto done = converted_objects(json(GetParam().answer), "id", "g.dev/v2", json(asked).items());
  EXPECT_EQ(done ? "" : done.error().message, GetParam().want);
}
#define REVIEW(response) "{apiVersion: apiextensions.k8s.io/v1, kind: ConversionReview, response: " response "}"
#define OBJECTS(first) REVIEW("{uid: id, result: {status: Success}, convertedObjects: [" first ", {apiVersion: g.dev/v2, kind: W, metadata: {name: b, namespace: ns, uid: v}}]}")
#define HOOK "conversion webhook for g.dev/v1, Kind=W "
INSTANTIATE_TEST_SUITE_P(
    Webhooks, Answer,
    testing::Values(
        AnswerCase{"good", OBJECTS("{apiVersion: g.dev/v2, kind: W, metadata: {name: a, namespace: ns, uid: u}, spec: {length: 1}}"), ""}, AnswerCase{"nothing", "{}", HOOK "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind="},
        AnswerCase{"no_response", "{apiVersion: apiextensions.k8s.io/v1, kind: ConversionReview}", HOOK "failed: no response provided"},
        AnswerCase{"uid", REVIEW("{uid: other, result: {status: Success}}"), HOOK "failed: expected response.uid=\"id\", got \"other\""}, AnswerCase{"says_why", REVIEW("{uid: id, result: {status: Failed, message: no luck}}"), HOOK "failed: no luck"},
        AnswerCase{"says_nothing", REVIEW("{uid: id, result: {status: Failed}}"), HOOK "failed: response.result.status was 'Failed', not 'Success'"},
        AnswerCase{"too_few", REVIEW("{uid: id, result: {status: Success}, convertedObjects: []}"), HOOK "returned 0 objects, expected 2"},
        AnswerCase{"version", OBJECTS("{apiVersion: g.dev/v1, kind: W, metadata: {name: a, namespace: ns, uid: u}}"), HOOK "returned invalid object at index 0: invalid groupVersion (expected g.dev/v2, received g.dev/v1)"},
        AnswerCase{"kind", OBJECTS("{apiVersion: g.dev/v2, kind: X, metadata: {name: a, namespace: ns, uid: u}}"), HOOK "returned invalid object at index 0: invalid kind (expected W, received X)"},
        AnswerCase{"name", OBJECTS("{apiVersion: g.dev/v2, kind: W, metadata: {name: z, namespace: ns, uid: u}}"), HOOK "returned invalid object: must have the same name: a != z"},
        AnswerCase{"space", OBJECTS("{apiVersion: g.dev/v2, kind: W, metadata: {name: a, namespace: z, uid: u}}"), HOOK "returned invalid object: must have the same namespace: ns != z"},
        AnswerCase{"other_uid", OBJECTS("{apiVersion: g.dev/v2, kind: W, metadata: {name: a, namespace: ns, uid: z}}"), HOOK "returned invalid object: must have the same UID: u != z"},
        AnswerCase{"no_metadata", OBJECTS("{apiVersion: g.dev/v2, kind: W}"), HOOK "returned invalid object: must have the same name: a != "},
        AnswerCase{"label", OBJECTS("{apiVersion: g.dev/v2, kind: W, metadata: {name: a, namespace: ns, uid: u, labels: {x: 7}}}"), HOOK "returned invalid metadata: metadata.labels[x] must be a string in converted object"}),
    [](const auto& row) { return row.param.name; });

TEST(AnswerOfAWebhook, ChangesLabelsAndAnnotationsAndNothingElseOfMetadata) {
  const auto done = converted_objects(json(OBJECTS("{apiVersion: g.dev/v2, kind: W, metadata: {name: a, namespace: ns, uid: u, resourceVersion: '9', annotations: {kept: z}, finalizers: [mine]}}")), "id", "g.dev/v2", json(asked).items());
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ((*done)[0]["metadata"], json("{name: a, namespace: ns, uid: u, resourceVersion: '7', annotations: {kept: z}}"));
}

// ---- objects in either version: v1 has size and old, v2 has length and new; v2 is stored. What has no peer goes into an annotation.
class Renaming final : public Converter {
 public:
  Result<std::vector<Json>> convert(const ConversionHook& hook, const std::string& to, const std::vector<Json>& objects) const override {
    ++calls;
    EXPECT_EQ(hook.url, "https://hook.test/convert");
    if (away) return fail(Code::Internal, conversion_title(objects.front()) + " failed: nobody is there");
    std::vector<Json> out;
    for (const Json& one : objects) {
      Json next = one;
      const bool forward = to.ends_with("v2");
      Json& spec = next.child("spec");
      if (const Json* value = one["spec"].find(forward ? "size" : "length")) {
        spec.erase(forward ? "size" : "length");
        spec.set(forward ? "length" : "size", *value);
      }
      out.push_back(std::move(next.set("apiVersion", to)));
    }
    return out;
  }
  mutable std::atomic<int> calls = 0;
  std::atomic<bool> away = false;
};

constexpr std::string_view crd = R"(
metadata: {name: widgets.g.dev}
spec:
  group: g.dev
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  conversion: {strategy: Webhook, webhook: {clientConfig: {url: "https://hook.test/convert"}, conversionReviewVersions: [v1]}}
  versions:
  - {name: v2, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {length: {type: integer}, new: {type: string, default: fresh}}}, status: {type: object, properties: {phase: {type: string}}}}}}}
  - {name: v1, served: true, storage: false, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [size], properties: {size: {type: integer, maximum: 9}}}, status: {type: object, properties: {phase: {type: string}}}}}}}
)";

struct Versions : testing::Test {
  std::shared_ptr<Renaming> webhook = std::make_shared<Renaming>();
  World world{{}, nullptr, webhook};
  std::shared_ptr<const Kind> v1, v2;
  void SetUp() override {
    world.must(world.create(*world.kind("customresourcedefinitions", "apiextensions.k8s.io"), json(crd), ""));
    v1 = world.kind("widgets", "g.dev", "v1");
    v2 = world.kind("widgets", "g.dev", "v2");
    ASSERT_TRUE(v1 && v2);
  }
  Json in(const Kind& kind, const std::string& name = "a") { return world.get(kind, {"default", name}); }
  Result<Written> make(const Kind& kind, std::string_view spec, const std::string& name = "a") {
    return world.create(kind, json(fmt::format("{{metadata: {{name: {}}}, spec: {}}}", name, spec)), "default");
  }
};

TEST_F(Versions, AnObjectIsStoredInTheStoredVersionWhicheverItWasWrittenIn) {
  const auto made = make(*v1, "{size: 3}");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(object_of(made)["apiVersion"].string(), "g.dev/v1");
  EXPECT_EQ(object_of(made)["spec"], json("{size: 3}"));
  EXPECT_EQ(in(*v2)["spec"], json("{length: 3, new: fresh}"));
  webhook->away = true;
  EXPECT_EQ(in(*v2)["spec"]["length"].integer(), 3) << "nobody converts the stored version";
  const auto refused = world.registry->get(*v1, {"default", "a"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Internal);
  EXPECT_EQ(refused.error().message, "conversion webhook for g.dev/v2, Kind=Widget failed: nobody is there");
}

TEST_F(Versions, EachVersionIsCheckedByItsOwnSchema) {
  EXPECT_THAT(message_of(make(*v1, "{size: 12}")), HasSubstr("spec.size: Invalid value: 12"));
  EXPECT_THAT(message_of(make(*v1, "{}")), HasSubstr("spec.size: Required value"));
  EXPECT_TRUE(make(*v2, "{length: 12}"));
}

TEST_F(Versions, AListIsConvertedInOneCall) {
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(make(*v2, "{length: 1}", name));
  const int before = webhook->calls;
  const auto page = world.registry->list(*v1, "default", {});
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(webhook->calls - before, 1);
  ASSERT_EQ(page->objects.size(), 3u);
  for (const Listed& one : page->objects) EXPECT_THAT(*one.value.bytes(), testing::AllOf(HasSubstr("\"apiVersion\":\"g.dev/v1\""), HasSubstr("\"size\":1")));
  webhook->away = true;
  EXPECT_TRUE(world.registry->list(*v2, "default", {}));
  EXPECT_FALSE(world.registry->list(*v1, "default", {}));
}

TEST_F(Versions, UpdatesPatchesAndStatusesWorkInEither) {
  ASSERT_TRUE(make(*v2, "{length: 1, new: x}"));
  Json object = in(*v1);
  object.child("spec").set("size", 4);
  ASSERT_TRUE(world.update(*v1, object));
  EXPECT_EQ(in(*v2)["spec"]["length"].integer(), 4);
  const auto patched = world.patch(*v1, {"default", "a"}, "{spec: {size: 5}}");
  ASSERT_TRUE(patched) << patched.error().message;
  EXPECT_EQ(object_of(patched)["spec"]["size"].integer(), 5);
  EXPECT_EQ(object_of(patched)["apiVersion"].string(), "g.dev/v1");
  ASSERT_TRUE(world.patch(*v1, {"default", "a"}, "{status: {phase: Up}}", kube::PatchType::Merge, "status"));
  EXPECT_EQ(in(*v2)["status"]["phase"].string(), "Up");
  EXPECT_EQ(in(*v2)["spec"]["length"].integer(), 5);
  const std::string version = kube::version_of(in(*v2));
  ASSERT_TRUE(world.patch(*v1, {"default", "a"}, "{spec: {size: 5}}"));
  EXPECT_EQ(kube::version_of(in(*v2)), version) << "nothing changed";
  webhook->away = true;
  EXPECT_FALSE(world.patch(*v1, {"default", "a"}, "{spec: {size: 6}}"));
  EXPECT_TRUE(world.patch(*v2, {"default", "a"}, "{spec: {length: 6}}"));
}

TEST_F(Versions, ApplyMakesAndChangesInEither) {
  const auto apply = [&](const Kind& kind, std::string_view spec, const char* manager, bool force = false) {
    Waiter waiter;
    world.registry->apply({.field_manager = manager, .force = force}, kind, {"default", "a"}, "", json(fmt::format("{{apiVersion: {}, kind: Widget, metadata: {{name: a}}, spec: {}}}", kind.resource.api_version(), spec)), waiter.reply());
    return waiter.wait();
  };
  const auto made = apply(*v1, "{size: 2}", "one");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(made->created);
  EXPECT_EQ(object_of(made)["spec"]["size"].integer(), 2);
  ASSERT_TRUE(apply(*v1, "{size: 3}", "one"));
  EXPECT_EQ(in(*v2)["spec"]["length"].integer(), 3);
  EXPECT_THAT(message_of(apply(*v1, "{size: 4}", "two")), HasSubstr("conflict with \"one\""));
  ASSERT_TRUE(apply(*v1, "{size: 4}", "two", true));
  EXPECT_EQ(in(*v2)["spec"]["length"].integer(), 4);
}

TEST_F(Versions, DeletesWorkInEither) {
  ASSERT_TRUE(make(*v2, "{length: 1}", "a"));
  ASSERT_TRUE(make(*v1, "{size: 1}", "b"));
  EXPECT_TRUE(world.remove(*v1, {"default", "a"}));
  EXPECT_TRUE(world.remove(*v2, {"default", "b"}));
  EXPECT_TRUE(in(*v2, "a").is_null() && in(*v2, "b").is_null());
}

TEST_F(Versions, ADryRunShowsTheVersionAskedForAndWritesNothing) {
  Waiter waiter;
  world.registry->create({.dry_run = true}, *v1, "default", json("{metadata: {name: a}, spec: {size: 3}}"), waiter.reply());
  const auto done = waiter.wait();
  EXPECT_EQ(object_of(done)["spec"]["size"].integer(), 3);
  EXPECT_TRUE(in(*v2).is_null());
}

// Events as they come, for a test that waits.
struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> texts;
  void take(const RegistryEvent& event) {
    const std::lock_guard lock(mutex);
    if (event.failure) texts.push_back("failed: " + event.failure->message);
    else if (event.type != kube::EventType::Bookmark) {
      const Json object = *kube::parse_json(*event.object.bytes);
      const char* const names[] = {"+", "~", "-"};
      texts.push_back(fmt::format("{}{} {} {}", names[static_cast<int>(event.type)], kube::name_of(object), object["apiVersion"].string(), object["spec"]["size"].integer()));
    }
    changed.notify_all();
  }
  std::vector<std::string> first(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, 20s, [&] { return texts.size() >= count; });
    return {texts.begin(), texts.end()};
  }
};

TEST_F(Versions, AWatchSeesOneVersionInOrder) {
  ASSERT_TRUE(make(*v2, "{length: 1}"));
  Seen seen;
  auto watch = world.registry->watch(*v1, "default", {}, [&](const RegistryEvent& event) { seen.take(event); });
  ASSERT_TRUE(watch) << watch.error().message;
  for (int i = 2; i < 5; ++i) ASSERT_TRUE(world.patch(*v2, {"default", "a"}, fmt::format("{{spec: {{length: {}}}}}", i)));
  ASSERT_TRUE(make(*v1, "{size: 7}", "b"));
  ASSERT_TRUE(world.remove(*v2, {"default", "a"}));
  EXPECT_THAT(seen.first(6), ElementsAre("+a g.dev/v1 1", "~a g.dev/v1 2", "~a g.dev/v1 3", "~a g.dev/v1 4", "+b g.dev/v1 7", "-a g.dev/v1 4"));
}

TEST_F(Versions, AWatchThatCannotBeConvertedEndsWithTheReasonAndLosesNothing) {
  Seen seen, stored;
  auto watch = world.registry->watch(*v1, "default", {}, [&](const RegistryEvent& event) { seen.take(event); });
  auto other = world.registry->watch(*v2, "default", {}, [&](const RegistryEvent& event) { stored.take(event); });
  webhook->away = true;
  ASSERT_TRUE(make(*v2, "{length: 1}"));
  EXPECT_THAT(seen.first(1), ElementsAre("failed: conversion webhook for g.dev/v2, Kind=Widget failed: nobody is there"));
  webhook->away = false;
  ASSERT_TRUE(make(*v2, "{length: 2}", "b"));
  EXPECT_EQ(stored.first(2).size(), 2u);
  EXPECT_EQ(seen.first(1).size(), 1u) << "it is over";
  webhook->away = true;
  EXPECT_FALSE(world.registry->watch(*v1, "default", {}, [](const RegistryEvent&) {}));
}

TEST_F(Versions, AChangedStoredVersionLeavesWhatIsStoredReadable) {
  ASSERT_TRUE(make(*v2, "{length: 1}"));
  const auto crds = world.kind("customresourcedefinitions", "apiextensions.k8s.io");
  Json changed = world.get(*crds, {"", "widgets.g.dev"});
  changed.child("spec").child("versions").items()[0].set("storage", false);
  changed.child("spec").child("versions").items()[1].set("storage", true);
  world.must(world.update(*crds, changed));
  v1 = world.kind("widgets", "g.dev", "v1");
  EXPECT_TRUE(v1->storage && v1->converts) << "an older object may lie there";
  EXPECT_EQ(in(*v1)["spec"]["size"].integer(), 1);
  ASSERT_TRUE(world.patch(*v1, {"default", "a"}, "{spec: {size: 2}}"));
  webhook->away = true;
  EXPECT_EQ(in(*v1)["spec"]["size"].integer(), 2) << "written anew, it is stored in the new version";
}

TEST_F(Versions, OneOfEachKindIsTheStoredOne) {
  for (const auto& kind : one_of_each(*world.registry->kinds()))
    EXPECT_TRUE(kind->resource.group != "g.dev" || kind->resource.version == "v2");
}

TEST(VersionsWithoutAWebhook, AreStoredUnderTheStoredName) {
  World world;
  std::string text(crd);
  text.replace(text.find("conversion: {strategy: Webhook"), text.find("]}}\n") + 3 - text.find("conversion: {strategy: Webhook"), "conversion: {strategy: None}");
  world.must(world.create(*world.kind("customresourcedefinitions", "apiextensions.k8s.io"), json(text), ""));
  const auto v1 = world.kind("widgets", "g.dev", "v1");
  const auto made = world.create(*v1, json("{metadata: {name: a}, spec: {size: 3}}"), "default");
  EXPECT_EQ(object_of(made)["apiVersion"].string(), "g.dev/v1");
  EXPECT_THAT(*world.store->get("/g.dev/widgets/default/a")->value.bytes(), HasSubstr("g.dev/v2"));
}

// ---- by HTTPS
struct Hook : testing::Test {
  http::TestSite site;
  std::string answer;
  int status = 200;
  std::unique_ptr<http::Server> server;
  std::string asked_path;
  void SetUp() override {
    http::ServerOptions options;
    options.tls = site.files();
    options.tls->client_ca = "";
    auto started = http::Server::start(options, [this](http::Request request, std::shared_ptr<http::Exchange> exchange) {
      const auto review = kube::parse_json(request.body);
      asked_path = request.target.path;
      std::string body = answer;
      if (body.empty() && review) {
        Json objects = Json::array();
        for (Json one : (*review)["request"]["objects"].items()) objects.push(std::move(one.set("apiVersion", (*review)["request"]["desiredAPIVersion"])));
        body = kube::print_json(Json::object({{"apiVersion", "apiextensions.k8s.io/v1"}, {"kind", "ConversionReview"}, {"response", Json::object({{"uid", (*review)["request"]["uid"]}, {"result", Json::object({{"status", "Success"}})}, {"convertedObjects", std::move(objects)}})}}));
      }
      exchange->respond({.status = status, .headers = {{"Content-Type", "application/json"}}, .body = std::move(body)});
    });
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }
  Result<std::vector<Json>> ask(const ConversionHook& hook, EndpointFinder find = nullptr) const { return make_webhook_converter(std::move(find), [] { return std::string("some-id"); })->convert(hook, "g.dev/v2", json(asked).items()); }
  ConversionHook url() const { return {.url = fmt::format("https://localhost:{}/convert", server->port()), .ca_pem = site.ca.certificate_pem}; }
};

TEST_F(Hook, IsAskedByItsUrl) {
  const auto done = ask(url());
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ((*done)[0]["apiVersion"].string(), "g.dev/v2");
  EXPECT_EQ((*done)[0]["spec"]["size"].integer(), 1);
  EXPECT_EQ(asked_path, "/convert");
}
TEST_F(Hook, OfAServiceMustHaveItsName) {
  ConversionHook hook{.space = "default", .name = "converter", .path = "/c", .ca_pem = site.ca.certificate_pem};
  const auto at = [&](const std::string&, const std::string&, unsigned short) -> Result<Endpoint> { return Endpoint{"127.0.0.1", server->port()}; };
  const auto done = ask(hook, at);
  ASSERT_FALSE(done) << "its certificate is for localhost";
  EXPECT_THAT(done.error().message, HasSubstr("conversion webhook for g.dev/v1, Kind=W failed: Post \"https://converter.default.svc:443/c\""));
  const auto nowhere = ask(hook, [](const std::string&, const std::string& name, unsigned short) -> Result<Endpoint> { return fail(Code::Unavailable, fmt::format("no endpoints available for service \"{}\"", name)); });
  EXPECT_EQ(nowhere.error().message, "conversion webhook for g.dev/v1, Kind=W failed: no endpoints available for service \"converter\"");
}
TEST_F(Hook, OfAnotherAuthorityIsNotBelieved) {
  ConversionHook hook = url();
  hook.ca_pem = http::make_ca("stranger", SystemClock{}.now())->certificate_pem;
  EXPECT_FALSE(ask(hook));
}
TEST_F(Hook, WithAnswersThatAreNoneIsRefused) {
  answer = "hello";
  EXPECT_THAT(ask(url()).error().message, HasSubstr("is no JSON"));
  status = 503;
  EXPECT_THAT(ask(url()).error().message, HasSubstr("answered with status 503"));
}

}  // namespace
}  // namespace fairlead::apiserver::test
