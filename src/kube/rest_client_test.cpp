// SPDX-License-Identifier: Apache-2.0
// The REST client against a real server whose answers each test writes: what it asks, and what it makes of the answers.
#include "kube/rest_client.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "http/server.h"
#include "kube/pod_log.h"

namespace fairlead::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A server on a Unix socket and a client of it.
class World {
 public:
  explicit World(http::Handler handler) {
    char name[] = "/tmp/fairlead-rest-XXXXXX";
    folder_ = ::mkdtemp(name);
    server_ = std::move(*http::Server::start({.unix_socket = folder_ + "/s"}, [this, handler = std::move(handler)](http::Request request, std::shared_ptr<http::Exchange> exchange) {
      {
        const std::lock_guard lock(mutex_);
        seen_.push_back(request);
      }
      handler(std::move(request), std::move(exchange));
    }));
    api_ = *RestApi::make({.unix_socket = folder_ + "/s"});
  }
  ~World() {
    api_.reset();
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  RestApi& api() { return *api_; }
  const std::string& folder() const { return folder_; }
  http::Request last() {
    const std::lock_guard lock(mutex_);
    return seen_.back();
  }
  std::size_t requests() {
    const std::lock_guard lock(mutex_);
    return seen_.size();
  }
  // "GET /path?a=b&c=d", the query decoded.
  std::string last_line() {
    const auto request = last();
    std::string out = request.method + " " + request.target.path;
    char separator = '?';
    for (const auto& [name, value] : request.target.query) {
      out += separator + name + "=" + value;
      separator = '&';
    }
    return out;
  }

 private:
  std::string folder_;
  std::mutex mutex_;
  std::vector<http::Request> seen_;
  std::unique_ptr<http::Server> server_;
  std::shared_ptr<RestApi> api_;
};

http::Handler always(int status, std::string body, http::Headers headers = {}) {
  return [=](http::Request, std::shared_ptr<http::Exchange> exchange) { exchange->respond({.status = status, .headers = headers, .body = body}); };
}
std::string status_body(int code, const std::string& reason, const std::string& message) {
  return print_json(Json::object({{"kind", "Status"}, {"apiVersion", "v1"}, {"code", code}, {"reason", reason}, {"message", message}}));
}
const Resource deployments{"apps", "v1", "deployments", "Deployment", true};
const Json pod = Json::object({{"metadata", Json::object({{"name", "p 1"}, {"namespace", "n"}})}});

TEST(Path, OfEveryShape) {
  EXPECT_EQ(path_of(resources::pods, "n"), "/api/v1/namespaces/n/pods");
  EXPECT_EQ(path_of(resources::pods, ""), "/api/v1/pods");
  EXPECT_EQ(path_of(resources::nodes, "ignored", "a/b"), "/api/v1/nodes/a%2Fb");
  EXPECT_EQ(path_of(deployments, "n", "d", "scale"), "/apis/apps/v1/namespaces/n/deployments/d/scale");
}

TEST(RestApi, AsksAsKubernetesExpects) {
  World world(always(200, R"({"metadata":{"name":"x"}})"));
  ASSERT_TRUE(world.api().get(resources::pods, {"n", "p 1"}));
  EXPECT_EQ(world.last_line(), "GET /api/v1/namespaces/n/pods/p%201");
  EXPECT_EQ(http::find(world.last().headers, "accept"), "application/json");
  EXPECT_THAT(std::string(http::find(world.last().headers, "user-agent")), StartsWith("fairlead/"));

  ASSERT_TRUE(world.api().create(resources::pods, pod));
  EXPECT_EQ(world.last_line(), "POST /api/v1/namespaces/n/pods");
  EXPECT_EQ(*parse_json(world.last().body),
            Json::object({{"metadata", pod["metadata"]}, {"apiVersion", "v1"}, {"kind", "Pod"}}));
  ASSERT_TRUE(world.api().update(resources::pods, pod));
  EXPECT_EQ(world.last_line(), "PUT /api/v1/namespaces/n/pods/p%201");
  ASSERT_TRUE(world.api().update_status(resources::pods, pod));
  EXPECT_EQ(world.last_line(), "PUT /api/v1/namespaces/n/pods/p%201/status");
  ASSERT_TRUE(world.api().post(resources::pods, {"n", "p"}, "binding", Json::object()));
  EXPECT_EQ(world.last_line(), "POST /api/v1/namespaces/n/pods/p/binding");

  ASSERT_TRUE(world.api().patch(deployments, {"n", "d"}, PatchType::Merge, Json::object(), "scale"));
  EXPECT_EQ(world.last_line(), "PATCH /apis/apps/v1/namespaces/n/deployments/d/scale");
  EXPECT_EQ(http::find(world.last().headers, "content-type"), "application/merge-patch+json");
  ASSERT_TRUE(world.api().patch(deployments, {"n", "d"}, PatchType::JsonPatch, Json::array()));
  EXPECT_EQ(http::find(world.last().headers, "content-type"), "application/json-patch+json");
  ASSERT_TRUE(world.api().patch(deployments, {"n", "d"}, PatchType::Strategic, Json::object()));
  EXPECT_EQ(http::find(world.last().headers, "content-type"), "application/strategic-merge-patch+json");

  ASSERT_TRUE(world.api().remove(resources::pods, {"n", "p"}, {.grace_seconds = 0, .uid = "u", .resource_version = "7", .propagation = DeleteOptions::Propagation::Orphan}));
  EXPECT_EQ(world.last_line(), "DELETE /api/v1/namespaces/n/pods/p");
  EXPECT_EQ(world.last().body,
            R"({"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Orphan","gracePeriodSeconds":0,"preconditions":{"uid":"u","resourceVersion":"7"}})");
}

TEST(RestApi, NeverAsksForACollectionWhereAnObjectIsMeant) {
  World world(always(200, "{}"));
  EXPECT_EQ(world.api().get(resources::pods, {"n", ""}).error().code, Code::Invalid);
  EXPECT_EQ(world.api().remove(resources::pods, {"n", ""}).error().code, Code::Invalid);
  EXPECT_EQ(world.api().update(resources::pods, Json::object()).error().code, Code::Invalid);
  EXPECT_EQ(world.api().create(resources::pods, Json::object()).error().code, Code::Invalid);
  EXPECT_EQ(world.requests(), 0U);
}

TEST(RestApi, ListsWithOptionsAndNamesTheKindOfItems) {
  World world(always(200, R"({"kind":"PodList","metadata":{"resourceVersion":"12","continue":"t"},"items":[{"metadata":{"name":"a"}}]})"));
  const auto list = world.api().list(resources::pods, "n", {.label_selector = "a in (b,c)", .field_selector = "spec.nodeName=x", .limit = 5, .continue_token = "k=", .resource_version = "0"});
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(world.last_line(), "GET /api/v1/namespaces/n/pods?labelSelector=a in (b,c)&fieldSelector=spec.nodeName=x&limit=5&continue=k=&resourceVersion=0");
  EXPECT_EQ(list->resource_version, "12");
  EXPECT_EQ(list->continue_token, "t");
  ASSERT_EQ(list->items.size(), 1U);
  EXPECT_EQ(list->items[0]["kind"].string(), "Pod");
  EXPECT_EQ(list->items[0]["apiVersion"].string(), "v1");
}

struct Refusal {
  const char* name;
  int status;
  const char* reason;
  Code want;
};
class Refusals : public testing::TestWithParam<Refusal> {};
TEST_P(Refusals, BecomeOurCodesWithTheServersMessage) {
  World world(always(GetParam().status, status_body(GetParam().status, GetParam().reason, "pods \"p\" something")));
  const auto answer = world.api().create(resources::pods, pod);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error(), (Error{GetParam().want, "pods \"p\" something"}));
}
INSTANTIATE_TEST_SUITE_P(All, Refusals,
                         testing::Values(Refusal{"bad_request", 400, "BadRequest", Code::Invalid}, Refusal{"unauthorized", 401, "Unauthorized", Code::Unauthorized},
                                         Refusal{"forbidden", 403, "Forbidden", Code::Forbidden}, Refusal{"not_found", 404, "NotFound", Code::NotFound},
                                         Refusal{"method", 405, "MethodNotAllowed", Code::Unsupported}, Refusal{"exists", 409, "AlreadyExists", Code::Exists},
                                         Refusal{"conflict", 409, "Conflict", Code::Conflict}, Refusal{"expired", 410, "Expired", Code::Expired},
                                         Refusal{"media", 415, "UnsupportedMediaType", Code::Unsupported}, Refusal{"invalid", 422, "Invalid", Code::Invalid},
                                         Refusal{"too_many", 429, "TooManyRequests", Code::Exhausted}, Refusal{"internal", 500, "InternalError", Code::Unavailable},
                                         Refusal{"not_implemented", 501, "", Code::Unsupported}, Refusal{"away", 503, "ServiceUnavailable", Code::Unavailable},
                                         Refusal{"full", 507, "InsufficientStorage", Code::Exhausted}),
                         [](const auto& row) { return row.param.name; });

TEST(RestApi, AnAnswerThatIsNoStatusIsShown) {
  World world(always(502, "<html>bad gateway</html>\n"));
  EXPECT_EQ(world.api().get(resources::pods, {"n", "p"}).error(), (Error{Code::Unavailable, "the server answered 502: <html>bad gateway</html>"}));
}

TEST(RestApi, RepeatsReadsThatArePutOffAndNoWriteThatMayHaveBegun) {
  std::atomic<int> calls{0};
  World world([&](http::Request, std::shared_ptr<http::Exchange> exchange) {
    if (++calls < 3) return exchange->respond({.status = 503, .headers = {{"Retry-After", "0"}}, .body = status_body(503, "ServiceUnavailable", "later")});
    exchange->respond({.body = "{}"});
  });
  EXPECT_TRUE(world.api().get(resources::pods, {"n", "p"}));
  EXPECT_EQ(calls, 3);
  calls = 0;
  EXPECT_EQ(world.api().create(resources::pods, pod).error().code, Code::Unavailable);
  EXPECT_EQ(calls, 1);
}

TEST(RestApi, DoesNotWaitForeverWhenPutOff) {
  World world(always(503, "", {{"Retry-After", "3600"}}));
  EXPECT_EQ(world.api().get(resources::pods, {"n", "p"}).error().code, Code::Unavailable);
  EXPECT_EQ(world.requests(), 1U);
}

TEST(RestApi, ReadsATokenFileAgainWhenItChanges) {
  World world(always(200, "{}"));
  const std::string file = world.folder() + "/token";
  std::ofstream(file) << "first\n";
  const auto api = *RestApi::make({.unix_socket = world.folder() + "/s", .token_file = file});
  ASSERT_TRUE(api->get(resources::pods, {"n", "p"}));
  EXPECT_EQ(http::find(world.last().headers, "authorization"), "Bearer first");
  std::ofstream(file) << "second-token\n";
  ASSERT_TRUE(api->get(resources::pods, {"n", "p"}));
  EXPECT_EQ(http::find(world.last().headers, "authorization"), "Bearer second-token");
  std::filesystem::remove(file);
  ASSERT_TRUE(api->get(resources::pods, {"n", "p"})) << "whoever renews it may take it away for a moment";
  EXPECT_EQ(http::find(world.last().headers, "authorization"), "Bearer second-token");
  EXPECT_FALSE((*RestApi::make({.unix_socket = world.folder() + "/s", .token_file = file}))->get(resources::pods, {"n", "p"})) << "there never was one";
}

class BadServer : public testing::TestWithParam<const char*> {};
TEST_P(BadServer, IsRefused) { EXPECT_EQ(RestApi::make({.server = GetParam()}).error().code, Code::Invalid); }
INSTANTIATE_TEST_SUITE_P(All, BadServer, testing::Values("", "host:6443", "ftp://host", "https://", "https://h:0", "https://h:99999", "https://h:x", "https://u@h", "https://[::1"));

TEST(RestApi, TakesServersWithPrefixAndRefusesTokensWithoutTls) {
  EXPECT_TRUE(RestApi::make({.server = "https://[::1]:6443/k8s/clusters/c1/"}));
  EXPECT_EQ(RestApi::make({.server = "http://host", .token = "secret"}).error().code, Code::Invalid);
}

std::string event_line(const char* type, const Json& object) { return print_json(Json::object({{"type", type}, {"object", object}})) + "\n"; }

TEST(RestWatch, ReadsEventsHoweverTheyAreCut) {
  std::promise<std::shared_ptr<http::Stream>> opened;
  World world([&](http::Request, std::shared_ptr<http::Exchange> exchange) { opened.set_value(exchange->stream(200, {})); });
  auto watch = world.api().watch(resources::pods, "n", {.label_selector = "a=b", .resource_version = "5"});
  ASSERT_TRUE(watch) << watch.error().message;
  EXPECT_EQ(world.last_line(), "GET /api/v1/namespaces/n/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion=5&labelSelector=a=b");
  auto stream = opened.get_future().get();
  EXPECT_EQ((*watch)->next(1ms)->has_value(), false);
  std::string text = event_line("ADDED", pod) + "\n" + event_line("NEWTYPE", pod) + event_line("MODIFIED", pod) + event_line("BOOKMARK", pod) + event_line("DELETED", pod);
  const std::size_t half = text.size() / 3;
  stream->write(std::make_shared<const std::string>(text.substr(0, half)));
  EXPECT_EQ((**(*watch)->next(20s)).type, EventType::Added);
  stream->write(std::make_shared<const std::string>(text.substr(half)));
  EXPECT_EQ((**(*watch)->next(20s)).type, EventType::Modified);
  EXPECT_EQ((**(*watch)->next(20s)).type, EventType::Bookmark);
  const auto last = (*watch)->next(20s);
  EXPECT_EQ((**last).type, EventType::Deleted);
  EXPECT_EQ((**last).object, pod);
  stream->write(std::make_shared<const std::string>(event_line("ERROR", *parse_json(status_body(410, "Expired", "too old")))));
  EXPECT_EQ((*watch)->next(20s).error(), (Error{Code::Expired, "too old"}));
  stream.reset();
  EXPECT_EQ((*watch)->next(20s).error().code, Code::Unavailable);
}

TEST(RestWatch, ARefusalIsRefusedAtOnce) {
  World world(always(410, status_body(410, "Expired", "too old")));
  EXPECT_EQ(world.api().watch(resources::pods, "", {.resource_version = "1"}).error(), (Error{Code::Expired, "too old"}));
}

TEST(RestWatch, CloseEndsABlockedNext) {
  World world([](http::Request, std::shared_ptr<http::Exchange> exchange) {
    static std::shared_ptr<http::Stream> keep;
    keep = exchange->stream(200, {});
  });
  auto watch = world.api().watch(resources::pods, "", {});
  ASSERT_TRUE(watch);
  std::thread closer([&] { (*watch)->close(); });
  EXPECT_EQ((*watch)->next(20s).error().code, Code::Unavailable);
  closer.join();
}

// Plays a container: says what it was started with, echoes its input back on stdout when that ends, then exits with `code`.
http::Handler container(std::string protocol, int code) {
  return [=](http::Request request, std::shared_ptr<http::Exchange> exchange) {
    auto socket = exchange->accept_websocket(protocol);
    if (!socket) return exchange->respond({.status = 400});
    std::string command;
    for (const auto& [name, value] : request.target.query) command += name == "command" ? value + ";" : "";
    auto finish = [code, keep = *socket] {
      Json status = Json::object({{"status", code == 0 ? "Success" : "Failure"}});
      if (code != 0) {
        status.set("reason", "NonZeroExitCode");
        status.set("details", Json::object({{"causes", Json::array({Json::object({{"reason", "ExitCode"}, {"message", std::to_string(code)}})})}}));
      }
      keep->send("\x03" + print_json(status));
      keep->close();
    };
    (*socket)->send("\x02" + command);
    const bool has_input = http::find(request.target.query, "stdin") == "true";
    (*socket)->start(
        [finish, keep = *socket](std::string message) {
          if (message == std::string({'\xff', '\0'})) return finish();
          message[0] = 1;
          keep->send(message);
        },
        [] {});
    if (!has_input) finish();
  };
}

TEST(RestExec, RunsToTheExitCodeWithInputAndBothOutputs) {
  World world(container("v5.channel.k8s.io", 7));
  const std::string input(100'000, 'i');
  const auto result = world.api().exec({"n", "p"}, "main", {"sh", "-c", "a b\nc"}, input, 20s);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->err, "sh;-c;a b\nc;");
  EXPECT_TRUE(result->out == input);
  EXPECT_THAT(world.last_line(), HasSubstr("&container=main&stdin=true&stdout=true&stderr=true"));
}

TEST(RestExec, WithoutInputAlsoOnV4) {
  World world(container("v4.channel.k8s.io", 0));
  const auto result = world.api().exec({"n", "p"}, "", {"true"}, "", 20s);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_EQ(world.api().exec({"n", "p"}, "", {"cat"}, "input", 20s).error().code, Code::Unsupported);
}

// A caller must not take the beginning for the whole.
TEST(RestExec, MoreOutputThanIsKeptIsAnError) {
  World world(container("v5.channel.k8s.io", 0));
  const auto whole = world.api().exec({"n", "p"}, "", {"cat"}, std::string(1 << 20, 'i'), 20s);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->out.size(), 1u << 20);
  const auto more = world.api().exec({"n", "p"}, "", {"cat"}, std::string((1 << 20) + 1, 'i'), 20s);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error(), (Error{Code::Unsupported, "exec in n/p: the command wrote more than 1048576 bytes"}));
}

TEST(RestExec, GivesUpInTime) {
  World world([](http::Request, std::shared_ptr<http::Exchange> exchange) {
    auto socket = *exchange->accept_websocket("v5.channel.k8s.io");
    socket->start([keep = socket](std::string) {}, [] {});
  });
  const auto result = world.api().exec({"n", "p"}, "", {"sleep"}, "", 20ms);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), (Error{Code::Unavailable, "exec in n/p: not finished within 20 ms"}));
}

TEST(RestExec, ARefusalKeepsItsCodeAndMessage) {
  World world(always(404, status_body(404, "NotFound", "pods \"p\" not found")));
  EXPECT_EQ(world.api().exec({"n", "p"}, "", {"true"}, "", 20s).error(), (Error{Code::NotFound, "exec in n/p: pods \"p\" not found"}));
}

TEST(RestRaw, TextTablesAndLogs) {
  World world(always(200, "line 1\nline 2\n"));
  EXPECT_EQ(*world.api().get_raw("/api/v1/pods?limit=5", "application/json;as=Table"), "line 1\nline 2\n");
  EXPECT_EQ(http::find(world.last().headers, "accept"), "application/json;as=Table");
  const auto log = world.api().open_log({"n", "p"}, {.container = "c", .follow = true, .tail_lines = 3});
  ASSERT_TRUE(log);
  EXPECT_EQ(world.last_line(), "GET /api/v1/namespaces/n/pods/p/log?container=c&follow=true&tailLines=3");
  EXPECT_EQ(**(*log)->read(20s), "line 1\nline 2\n");
  EXPECT_EQ(**(*log)->read(20s), "");
}

TEST(RestApi, LogsAreAskedForWithTheirTimesAndHandedOn) {
  World world(always(200, "2026-01-01T00:00:00Z a\n"));
  std::string text;
  const auto take = [&](std::string_view piece) { return text += piece, true; };
  const Json of = Json::object({{"metadata", Json::object({{"name", "p"}, {"namespace", "n"}})}});
  const PodLog log = pod_log_of(std::shared_ptr<RestApi>(&world.api(), [](RestApi*) {}));
  ASSERT_TRUE(log(of, {.container = "c", .previous = true, .since = {}}, 20s, take));
  EXPECT_EQ(text, "2026-01-01T00:00:00Z a\n");
  EXPECT_EQ(world.last_line(), "GET /api/v1/namespaces/n/pods/p/log?container=c&previous=true&timestamps=true");
  ASSERT_TRUE(log(of, {.container = "c", .previous = false, .since = SystemClock{}.now() - 1h}, 20s, take));
  EXPECT_THAT(world.last_line(), testing::MatchesRegex("GET .*/log\\?container=c&timestamps=true&sinceSeconds=37[0-9][0-9]"));  // with room for clocks that differ
  // A kubelet that cannot be reached, and one that cannot give this log.
  for (const auto& [said, code] : std::initializer_list<std::pair<const char*, Code>>{{"Get \"https://10.0.0.9:10250/containerLogs/n/p/c\": dial tcp 10.0.0.9:10250: connect: no route to host", Code::Unavailable}, {"failed to open log file", Code::Internal}}) {
    World failing(always(500, status_body(500, "InternalError", said)));
    EXPECT_EQ(pod_log_of(std::shared_ptr<RestApi>(&failing.api(), [](RestApi*) {}))(of, {.container = "c", .previous = false, .since = {}}, 20s, take).error().code, code) << said;
  }
}

// Answers 401 until the bearer token is `good`.
http::Handler only_with(const std::string& good) {
  return [=](http::Request request, std::shared_ptr<http::Exchange> exchange) {
    if (http::find(request.headers, "authorization") == "Bearer " + good) return exchange->respond({.body = R"({"metadata":{"name":"x"}})"});
    exchange->respond({.status = 401, .body = status_body(401, "Unauthorized", "who are you")});
  };
}

TEST(RestApi, APluginIsAskedOnceAndAgainWhenRefused) {
  World world(only_with("token-2"));
  const std::string counter = world.folder() + "/count", script = world.folder() + "/plugin";
  std::ofstream(script) << "#!/bin/sh\necho x >> " << counter << "\nn=$(wc -l < " << counter
                        << ")\ncase \"$KUBERNETES_EXEC_INFO\" in *client.authentication.k8s.io/v1*) ;; *) exit 3;; esac\n"
                        << R"(echo "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"token-$n\"}}")" << "\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const auto asked = [&] {
    std::ifstream in(counter);
    return std::count(std::istreambuf_iterator<char>(in), {}, 'x');
  };
  const auto api = *RestApi::make({.unix_socket = world.folder() + "/s", .exec = ExecPlugin{.command = script}});
  EXPECT_EQ(asked(), 0);
  EXPECT_TRUE(api->get(resources::nodes, {"", "x"})) << "refused once, asked again, accepted";
  EXPECT_EQ(asked(), 2);
  EXPECT_TRUE(api->get(resources::nodes, {"", "x"}));
  EXPECT_EQ(asked(), 2) << "kept";

  std::ofstream(script) << "#!/bin/sh\necho no session >&2\nexit 7\n";
  const auto broken = *RestApi::make({.unix_socket = world.folder() + "/s", .exec = ExecPlugin{.command = script, .install_hint = "log in first"}});
  const auto failed = broken->get(resources::nodes, {"", "x"});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::Unauthorized);
  EXPECT_THAT(failed.error().message, testing::AllOf(HasSubstr("exit status 7"), HasSubstr("no session"), HasSubstr("log in first")));
}

TEST(RestApi, AnExpiringCredentialIsRenewedBeforeItEnds) {
  World world(always(200, R"({"metadata":{"name":"x"}})"));
  const std::string counter = world.folder() + "/count", script = world.folder() + "/plugin";
  std::ofstream(script) << "#!/bin/sh\necho x >> " << counter << "\n"
                        << R"(echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2001-01-01T00:00:00Z"}}')" << "\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const auto api = *RestApi::make({.unix_socket = world.folder() + "/s", .exec = ExecPlugin{.command = script}});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(api->get(resources::nodes, {"", "x"}));
  EXPECT_EQ(std::filesystem::file_size(counter), 4U) << "what is over is asked for each time";
}

TEST(RestApi, ARenewedTokenFileIsReadAgain) {
  World world(only_with("new"));
  const std::string file = world.folder() + "/token";
  std::ofstream(file) << "old\n";
  const auto api = *RestApi::make({.unix_socket = world.folder() + "/s", .token_file = file});
  EXPECT_EQ(api->get(resources::nodes, {"", "x"}).error().code, Code::Unauthorized);
  std::ofstream(file + ".next") << "new\n";
  std::filesystem::rename(file + ".next", file);
  EXPECT_TRUE(api->get(resources::nodes, {"", "x"}));
}

TEST(RestApi, A429IsNotBegunSoWritesAreRepeated) {
  std::atomic<int> calls{0};
  World world([&](http::Request, std::shared_ptr<http::Exchange> exchange) {
    if (++calls == 1) return exchange->respond({.status = 429, .headers = {{"Retry-After", "0"}}, .body = status_body(429, "TooManyRequests", "slow down")});
    exchange->respond({.status = 201, .body = R"({"metadata":{"name":"x"}})"});
  });
  EXPECT_TRUE(world.api().create(resources::pods, pod));
  EXPECT_EQ(calls, 2);
}

TEST(RestApi, AnEvictionThatABudgetRefusesIsAnAnswer) {
  World world(always(429, R"({"kind":"Status","code":429,"reason":"TooManyRequests","message":"Cannot evict","details":{"causes":[{"reason":"DisruptionBudget"}]}})", {{"Retry-After", "0"}}));
  EXPECT_EQ(world.api().post(resources::pods, {"n", "p"}, "eviction", Json::object()).error().code, Code::Exhausted);
  EXPECT_EQ(world.requests(), 1U);
}

TEST(RestApi, AppliesInItsOwnName) {
  World world(always(200, R"({"metadata":{"name":"x"}})"));
  Json object = pod;
  object.child("metadata").set("managedFields", Json::array());
  ASSERT_TRUE(world.api().apply(resources::pods, object, {.force = true, .dry_run = true}));
  EXPECT_EQ(world.last_line(), "PATCH /api/v1/namespaces/n/pods/p%201?fieldManager=fairlead&force=true&dryRun=All");
  EXPECT_EQ(http::find(world.last().headers, "content-type"), "application/apply-patch+yaml");
  EXPECT_EQ(*parse_json(world.last().body), Json::object({{"metadata", pod["metadata"]}, {"apiVersion", "v1"}, {"kind", "Pod"}}));
  EXPECT_EQ(world.api().patch(resources::pods, {"n", "p"}, PatchType::Apply, object).error().code, Code::Invalid);
}

TEST(ExecCredential, IsCheckedBeforeItIsUsed) {
  const std::string v1 = "client.authentication.k8s.io/v1";
  const auto said = [&](const std::string& text) {
    const auto out = parse_exec_credential(text, v1);
    return out ? "ok:" + out->token + out->certificate_pem : out.error().message;
  };
  const std::string head = R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":)";
  EXPECT_EQ(said(head + R"({"token":"t"}})"), "ok:t");
  EXPECT_EQ(said(head + R"({"clientCertificateData":"C","clientKeyData":"K"}})"), "ok:C");
  EXPECT_EQ(said("secret-token"), "what it printed is not JSON");
  EXPECT_THAT(said("{}"), HasSubstr("no ExecCredential"));
  EXPECT_THAT(said(head + "{}}"), HasSubstr("neither"));
  EXPECT_THAT(said(head + R"({"clientCertificateData":"C"}})"), HasSubstr("together"));
  EXPECT_THAT(said(head + R"({"token":"a\nb"}})"), HasSubstr("line break"));
  EXPECT_THAT(said(head + R"({"token":"a","expirationTimestamp":"soon"}})"), HasSubstr("expirationTimestamp"));
  EXPECT_THAT(said(R"({"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"t"}})"), HasSubstr("v1beta1"));
}

}  // namespace
}  // namespace fairlead::kube
