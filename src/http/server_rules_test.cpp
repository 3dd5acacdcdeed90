// SPDX-License-Identifier: Apache-2.0
#include "http/server_rules.h"

#include <gmock/gmock.h>

namespace fairlead::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const Instant then{std::chrono::seconds(784'111'777)};

TEST(ServerRules, DatesAreThoseOfHttp) { EXPECT_EQ(http_date(then), "Sun, 06 Nov 1994 08:49:37 GMT"); }

TEST(ServerRules, AHeadHasTheHandlersHeadersButNotThoseThatTheServerDecides) {
  EXPECT_EQ(answer_head(200, "OK", {{"X-A", "1"}, {"content-length", "7"}, {"CONNECTION", "close"}, {"Transfer-Encoding", "chunked"}, {"date", "today"}, {"X-B", ""}}, then),
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-A: 1\r\nX-B: \r\n");
}

TEST(ServerRules, NoValueBeginsALineOfItsOwn) {
  const std::string head = answer_head(200, "OK", {{"X-A", std::string("1\r\nX-Evil: 2\0!", 14)}, {"X-\nC", "3"}}, then);
  EXPECT_THAT(head, HasSubstr("X-A: 1  X-Evil: 2 !\r\n"));
  EXPECT_THAT(head, HasSubstr("X- C: 3\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("\nX-Evil")));
}

struct Framing {
  const char* name;
  Body body;
  std::size_t bytes;
  bool keep_alive;
  const char* want;
};
class BodyHead : public testing::TestWithParam<Framing> {};
TEST_P(BodyHead, SaysHowTheBodyEnds) { EXPECT_EQ(body_head(GetParam().body, GetParam().bytes, GetParam().keep_alive), GetParam().want); }
INSTANTIATE_TEST_SUITE_P(Rules, BodyHead,
                         testing::Values(Framing{"sized", Body::Sized, 12, true, "Content-Length: 12\r\nConnection: keep-alive\r\n\r\n"},
                                         Framing{"empty", Body::Sized, 0, false, "Content-Length: 0\r\nConnection: close\r\n\r\n"},
                                         Framing{"absent", Body::Absent, 12, true, "Connection: keep-alive\r\n\r\n"},
                                         Framing{"chunked", Body::Chunked, 0, false, "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"},
                                         Framing{"to_the_end", Body::ToTheEnd, 0, false, "Connection: close\r\n\r\n"}),
                         [](const auto& row) { return row.param.name; });

TEST(ServerRules, SomeAnswersHaveNoBody) {
  for (const int status : {100, 101, 204, 304}) EXPECT_FALSE(has_body(status)) << status;
  for (const int status : {200, 201, 301, 404, 500}) EXPECT_TRUE(has_body(status)) << status;
}

TEST(ServerRules, PartsAreSentInsteadOfABodyAndEmptyOnesAreLeftOut) {
  const auto part = [](const char* text) { return std::make_shared<const std::string>(text); };
  Response response{.body = "abc"};
  EXPECT_THAT(body_pieces(response), ElementsAre("abc"));
  EXPECT_EQ(body_bytes(response), 3u);
  response.parts = {part("12"), Buffer(), part(""), part("345")};
  EXPECT_THAT(body_pieces(response), ElementsAre("12", "345"));
  EXPECT_EQ(body_bytes(response), 5u);
}

TEST(ServerRules, ALargeAnswerMayTakeLonger) {
  EXPECT_EQ(sending_time(0), body_time);
  EXPECT_EQ(sending_time((64 << 10) - 1), body_time);
  EXPECT_EQ(sending_time(10 << 20), body_time + 160s);
}

TEST(ServerRules, RefusalsSayWhatWasTooMuch) {
  const Response header = refusal(BadRequest::HeaderTooLarge, 8_MiB), body = refusal(BadRequest::BodyTooLarge, 8_MiB), other = refusal(BadRequest::Malformed, 8_MiB);
  EXPECT_EQ(header.status, 431);
  EXPECT_EQ(header.body, "the header is larger than 65536 bytes\n");
  EXPECT_EQ(body.status, 413);
  EXPECT_EQ(body.body, "the body is larger than 8388608 bytes\n");
  EXPECT_EQ(other.status, 400);
  EXPECT_EQ(other.body, "this is not HTTP/1.1\n");
  EXPECT_EQ(find(other.headers, "content-type"), "text/plain");
}

}  // namespace
}  // namespace fairlead::http
