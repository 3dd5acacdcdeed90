// SPDX-License-Identifier: Apache-2.0
#include "http/client_rules.h"

#include <gmock/gmock.h>

#include "http/client_queues.h"

namespace fairlead::http {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ClientRules, AnAddressIsWrittenAsUrlsWriteIt) {
  EXPECT_EQ(where({.host = "api.example", .port = 6443}), "api.example:6443");
  EXPECT_EQ(where({.host = "2001:db8::1", .port = 6443}), "[2001:db8::1]:6443");
  EXPECT_EQ(where({.host = "machines", .unix_socket = "/run/x.sock"}), "/run/x.sock");
  EXPECT_EQ(host_header({.host = "machines", .unix_socket = "/run/x.sock"}), "machines");
}

TEST(ClientRules, ABodyHasALengthAlsoWhereItIsEmpty) {
  const ClientOptions options{.host = "h", .port = 1};
  EXPECT_EQ(*request_head(options, {.target = "/a?b=c", .headers = {{"X-A", "1"}}}), "GET /a?b=c HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\n\r\n");
  EXPECT_EQ(*request_head(options, {.method = "POST", .target = "/"}), "POST / HTTP/1.1\r\nHost: h:1\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(*request_head(options, {.method = "DELETE", .target = "/", .body = "{}"}), HasSubstr("Content-Length: 2\r\n"));
  EXPECT_THAT(*request_head(options, {.method = "DELETE", .target = "/"}), Not(HasSubstr("Content-Length")));
}

TEST(ClientRules, NothingSmugglesASecondRequest) {
  const ClientOptions options{.host = "h", .port = 1};
  for (const char* target : {"", "a", "/a b", "/a\r\nX: y", "/a\n"}) EXPECT_EQ(request_head(options, {.target = target}).error().code, Code::Invalid) << target;
  for (const char* method : {"", "GET /", "GET\r\n"}) EXPECT_EQ(request_head(options, {.method = method, .target = "/"}).error().code, Code::Invalid) << method;
  const auto secret = request_head(options, {.target = "/", .headers = {{"Authorization", "Bearer secret\r\nX: y"}}});
  EXPECT_EQ(secret.error().message, "header Authorization has a line break");
  EXPECT_EQ(request_head(options, {.target = "/", .headers = {{"X:\nY", "1"}}}).error().code, Code::Invalid);
}

TEST(ClientRules, StatusesTellWhatToDo) {
  const std::pair<unsigned, Code> rows[] = {{400, Code::Invalid},  {401, Code::Unauthorized}, {403, Code::Forbidden}, {404, Code::NotFound},    {405, Code::Unsupported},
                                            {409, Code::Conflict}, {410, Code::Invalid},      {429, Code::Exhausted}, {500, Code::Unavailable}, {501, Code::Unsupported}};
  for (const auto& [status, code] : rows) EXPECT_EQ(code_of_status(status), code) << status;
}

TEST(ClientRules, AProxyIsAskedWithItsPasswordAndNamedWithoutIt) {
  const Proxy proxy{.host = "p", .port = 3128, .authorization = "Basic c2VjcmV0"};
  EXPECT_EQ(connect_head(proxy, "h:1"), "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n");
  EXPECT_EQ(name_of(proxy), "proxy p:3128");
  EXPECT_TRUE(check_connect_answer(proxy, "h:1", "HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n"));
  EXPECT_EQ(check_connect_answer(proxy, "h:1", "HTTP/1.1 407 Who are you?\r\n\r\n").error().message, "proxy p:3128 refuses to connect to h:1: 407 Who are you?");
  EXPECT_EQ(check_connect_answer(proxy, "h:1", "SSH-2.0\r\n\r\n").error().message, "proxy p:3128 does not speak HTTP");
  EXPECT_EQ(check_connect_answer(proxy, "h:1", "HTTP/1.1\r\n\r\n").error().message, "proxy p:3128 does not speak HTTP");
  EXPECT_EQ(check_connect_answer(proxy, "h:1", "HTTP/1.1 200 \r\n\r\nearly").error().message, "proxy p:3128: the server spoke before it was spoken to");
}

TEST(ClientQueues, AFullInboxPausesReadingUntilThereIsRoom) {
  ClientQueues queues(4);
  EXPECT_TRUE(queues.arrived("12"));
  EXPECT_FALSE(queues.arrived("34"));
  const auto first = queues.take();
  EXPECT_EQ(first->message, "12");
  EXPECT_TRUE(first->read_on);
  const auto second = queues.take();
  EXPECT_EQ(second->message, "34");
  EXPECT_FALSE(second->read_on);
}

TEST(ClientQueues, WhatWasPutIsSentBeforeTheGoodbye) {
  ClientQueues queues(100);
  EXPECT_FALSE(queues.next().goodbye);
  ASSERT_TRUE(queues.put("1"));
  EXPECT_TRUE(queues.close());
  EXPECT_FALSE(queues.close());
  EXPECT_EQ(queues.put("2").error().code, Code::Unavailable);
  ASSERT_NE(queues.next().message, nullptr);
  EXPECT_EQ(*queues.next().message, "1");
  queues.sent();
  EXPECT_EQ(queues.next().message, nullptr);
  EXPECT_TRUE(queues.next().goodbye);
  EXPECT_TRUE(queues.arrived("dropped: nobody reads any more"));
}

TEST(ClientQueues, MessagesComeBeforeTheReasonOfTheEnd) {
  ClientQueues queues(100);
  queues.arrived("last words");
  EXPECT_TRUE(queues.end(Error{Code::Unavailable, "lost"}));
  EXPECT_FALSE(queues.end(Error{Code::Unavailable, "lost again"}));
  EXPECT_EQ(queues.take()->message, "last words");
  EXPECT_EQ(queues.take().error().message, "lost");
  EXPECT_TRUE(queues.ended());
  EXPECT_EQ(queues.put("1").error().code, Code::Unavailable);
  EXPECT_EQ(queues.next().message, nullptr);
}

TEST(ClientQueues, AnEndInOrderIsNoError) {
  ClientQueues peer(100), ours(100);
  peer.end(std::nullopt);
  EXPECT_EQ(peer.take()->message, std::nullopt);
  ours.close();
  ours.end(std::nullopt);
  EXPECT_EQ(ours.take().error().message, "the WebSocket was closed by us");
}

TEST(ClientQueues, APausedReadGoesOnForTheGoodbye) {
  ClientQueues queues(1);
  EXPECT_FALSE(queues.arrived("12"));
  queues.close();
  EXPECT_TRUE(queues.resume());
  EXPECT_FALSE(queues.resume());
}

}  // namespace
}  // namespace fairlead::http
