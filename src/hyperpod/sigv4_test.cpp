// SPDX-License-Identifier: Apache-2.0
// The signatures of the published example are those of AWS's documentation and of the aws4_testsuite that its SDKs carry.
#include "hyperpod/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/encoding.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const Instant then = *parse_time("2015-08-30T12:36:00Z");

http::Request request(const char* method, const std::string& target, http::Headers headers, std::string body = "") {
  return {.method = method, .target = *http::parse_target(target), .headers = std::move(headers), .body = std::move(body), .peer = {}};
}
http::Request with_authorization(http::Request of, const std::string& scope, const std::string& names, const std::string& signature) {
  of.headers.emplace_back("Authorization", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/" + scope + ", SignedHeaders=" + names + ", Signature=" + signature);
  return of;
}
Answer<void> check(const http::Request& of, Instant now = then, const std::string& with = secret) {
  const auto signature = read_signature(of);
  if (!signature) return std::unexpected(signature.error());
  if (auto done = check_time(*signature, now); !done) return done;
  return check_signature(*signature, of, with);
}
std::string code(const Answer<void>& answer) { return answer ? "good" : answer.error().code; }

struct Published {
  const char *name, *method, *target;
  http::Headers headers;
  const char *body, *scope, *names, *signature;
};

TEST(SigV4, PublishedSignaturesHold) {
  const char* const service = "20150830/us-east-1/service/aws4_request";
  const http::Headers plain{{"Host", "example.amazonaws.com"}, {"X-Amz-Date", "20150830T123600Z"}};
  const std::vector<Published> all{
      {"documentation: ListUsers", "GET", "/?Action=ListUsers&Version=2010-05-08", {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}, {"Host", "iam.amazonaws.com"}, {"X-Amz-Date", "20150830T123600Z"}}, "", "20150830/us-east-1/iam/aws4_request", "content-type;host;x-amz-date", "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"},
      {"get-vanilla", "GET", "/", plain, "", service, "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"post-vanilla", "POST", "/", plain, "", service, "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"get-vanilla-query-order-key-case", "GET", "/?Param2=value2&Param1=value1", plain, "", service, "host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
  };
  for (const Published& one : all) {
    const http::Request of = with_authorization(request(one.method, one.target, one.headers, one.body), one.scope, one.names, one.signature);
    const auto done = check(of);
    EXPECT_TRUE(done) << one.name << ": " << done.error().message << "\n" << canonical_request(*read_signature(of), of);
  }
}

http::Request signed_call(Instant at = then, const std::string& token = "") {
  http::Request out = request("POST", "/", {{"Host", "127.0.0.1:6444"}, {"Content-Type", "application/x-amz-json-1.1"}, {"X-Amz-Target", "SageMaker.ListClusters"}, {"User-Agent", "test"}}, R"({"MaxResults":5})");
  sign_request(out, {"AKIDEXAMPLE", secret, token}, "fairlead-1", "sagemaker", at);
  return out;
}
void set(http::Request& of, std::string_view name, const std::string& value) {
  for (auto& [key, old] : of.headers)
    if (key == name) old = value;
}

TEST(SigV4, WhatWasSignedHolds) {
  EXPECT_EQ(code(check(signed_call())), "good");
  EXPECT_EQ(code(check(signed_call(then, "a token"))), "good");
  const auto signature = *read_signature(signed_call(then, "a token"));
  EXPECT_EQ(signature.key_id, "AKIDEXAMPLE");
  EXPECT_EQ(signature.service, "sagemaker");
  EXPECT_EQ(signature.region, "fairlead-1");
  EXPECT_EQ(signature.token, "a token");
  http::Request spaced = signed_call();
  set(spaced, "Content-Type", "  application/x-amz-json-1.1 ");  // blanks at the ends are no part of a header
  EXPECT_EQ(code(check(spaced)), "good");
  http::Request more = signed_call();
  more.headers.emplace_back("X-Amzn-Trace-Id", "Root=1");  // what proxies add is not signed
  EXPECT_EQ(code(check(more)), "good");
}

TEST(SigV4, WhateverIsChangedIsFound) {
  const std::vector<std::pair<const char*, std::function<void(http::Request&)>>> changes{
      {"body", [](http::Request& of) { of.body += " "; }},
      {"method", [](http::Request& of) { of.method = "PUT"; }},
      {"path", [](http::Request& of) { of.target = *http::parse_target("/x"); }},
      {"query", [](http::Request& of) { of.target = *http::parse_target("/?a=b"); }},
      {"target", [](http::Request& of) { set(of, "X-Amz-Target", "SageMaker.DeleteCluster"); }},
      {"host", [](http::Request& of) { set(of, "Host", "other"); }},
      {"date", [](http::Request& of) { set(of, "X-Amz-Date", "20150830T123601Z"); }},
      {"a second value of a signed header", [](http::Request& of) { of.headers.emplace_back("X-Amz-Target", "SageMaker.DeleteCluster"); }},
      {"a hash of another body", [](http::Request& of) { of.headers.emplace_back("X-Amz-Content-Sha256", hex(sha256("other"))); }},
  };
  for (const auto& [what, change] : changes) {
    http::Request of = signed_call();
    change(of);
    const auto done = check(of);
    EXPECT_EQ(code(done), "InvalidSignatureException") << what;
    // Whoever guesses is not told what would have been right.
    if (!done) {
      EXPECT_THAT(done.error().message, Not(HasSubstr("AWS4-HMAC"))) << what;
    }
  }
  EXPECT_EQ(code(check(signed_call(), then, "another secret")), "InvalidSignatureException");
  EXPECT_EQ(code(check(signed_call(), then, "")), "InvalidSignatureException");
}

TEST(SigV4, HeadersThatDecideHaveToBeSigned) {
  http::Request late = signed_call();
  late.headers.emplace_back("X-Amz-Security-Token", "put in later");
  EXPECT_EQ(code(check(late)), "InvalidSignatureException");
  http::Request of = request("POST", "/", {{"Host", "h"}, {"X-Amz-Date", "20150830T123600Z"}});
  of.headers.emplace_back("Authorization", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/r/sagemaker/aws4_request, SignedHeaders=x-amz-date, Signature=00");
  EXPECT_THAT(check(of).error().message, HasSubstr("'Host'"));
  http::Request target = with_authorization(request("POST", "/", {{"Host", "h"}, {"X-Amz-Date", "20150830T123600Z"}, {"X-Amz-Target", "SageMaker.ListClusters"}}), "20150830/r/sagemaker/aws4_request", "host;x-amz-date", "00");
  EXPECT_THAT(check(target).error().message, HasSubstr("x-amz-target"));
}

TEST(SigV4, TheClockMayBeFifteenMinutesOff) {
  for (const auto off : {-15min, 0min, 15min}) EXPECT_EQ(code(check(signed_call(), then + off)), "good") << off.count();
  const auto old = check(signed_call(), then + 15min + 1s), early = check(signed_call(), then - 15min - 1s);
  EXPECT_EQ(code(old), "InvalidSignatureException");
  EXPECT_THAT(old.error().message, HasSubstr("Signature expired: 20150830T123600Z is now earlier than 20150830T123601Z"));
  EXPECT_EQ(code(early), "InvalidSignatureException");
  EXPECT_THAT(early.error().message, HasSubstr("Signature not yet current"));
}

// As `aws eks get-token` makes them: presigned, with a header beside the host.
TEST(SigV4, PresignedRequestsHoldAsLongAsTheySay) {
  const auto presigned = [](const std::string& expires) {
    http::Request of = request("GET", "/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20150830%2Ffairlead-1%2Fsts%2Faws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=" + expires + "&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Signature=none", {{"Host", "sts"}, {"x-k8s-aws-id", "demo"}});
    // Its signature is made with the same parts as that of a header's would be.
    Signature signature = *read_signature(of);
    const std::string text = "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/fairlead-1/sts/aws4_request\n" + hex(sha256(canonical_request(signature, of)));
    std::string key = "AWS4" + secret;
    for (const char* const part : {"20150830", "fairlead-1", "sts", "aws4_request"}) key = hmac_sha256(key, part);
    for (auto& [name, value] : of.target.query)
      if (name == "X-Amz-Signature") value = hex(hmac_sha256(key, text));
    return of;
  };
  EXPECT_EQ(code(check(presigned("60"))), "good");
  EXPECT_EQ(code(check(presigned("60"), then + 60s)), "good");
  EXPECT_EQ(code(check(presigned("60"), then + 61s)), "ExpiredTokenException");
  EXPECT_EQ(code(check(presigned("60"), then - 16min)), "InvalidSignatureException");
  http::Request other = presigned("60");
  set(other, "x-k8s-aws-id", "another cluster");
  EXPECT_EQ(code(check(other)), "InvalidSignatureException");
  http::Request longer = presigned("60");
  for (auto& [name, value] : longer.target.query)
    if (name == "X-Amz-Expires") value = "604800";
  EXPECT_EQ(code(check(longer)), "InvalidSignatureException");
  for (auto& [name, value] : longer.target.query)
    if (name == "X-Amz-Expires") value = "604801";
  EXPECT_EQ(code(check(longer)), "IncompleteSignatureException");
}

TEST(SigV4, NonsenseIsToldFromNothing) {
  EXPECT_EQ(code(check(request("POST", "/", {{"Host", "h"}}))), "MissingAuthenticationTokenException");
  const http::Headers headers{{"Host", "h"}, {"X-Amz-Date", "20150830T123600Z"}};
  for (const char* const authorization : {"AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256 Credential=a", "AWS4-HMAC-SHA512 Credential=a/20150830/r/s/aws4_request, SignedHeaders=host, Signature=0", "Bearer x", "AWS4-HMAC-SHA256 Credential=a/b/c, SignedHeaders=host, Signature=0",
                                          "AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, Credential=b/20150830/r/s/aws4_request, SignedHeaders=host, Signature=0", "AWS4-HMAC-SHA256 Credential=/20150830/r/s/aws4_request, SignedHeaders=host, Signature=0",
                                          "AWS4-HMAC-SHA256 Credential=a/2015083x/r/s/aws4_request, SignedHeaders=host, Signature=0", "AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, SignedHeaders=x-amz-date;host, Signature=0", "AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, SignedHeaders=host;host, Signature=0"}) {
    http::Request of = request("POST", "/", headers);
    of.headers.emplace_back("Authorization", authorization);
    EXPECT_EQ(code(check(of)), "IncompleteSignatureException") << authorization;
  }
  for (const char* const date : {"", "2015-08-30T12:36:00Z", "20150830T123600", "20151330T123600Z", "20150830T993600Z"}) {
    http::Request of = with_authorization(request("POST", "/", {{"Host", "h"}, {"X-Amz-Date", date}}), "20150830/r/s/aws4_request", "host;x-amz-date", "0");
    EXPECT_EQ(code(check(of)), "IncompleteSignatureException") << date;
  }
  EXPECT_EQ(code(check(with_authorization(request("POST", "/", headers), "20150829/r/s/aws4_request", "host;x-amz-date", "0"))), "InvalidSignatureException");
  EXPECT_EQ(code(check(with_authorization(request("GET", "/?X-Amz-Algorithm=AWS4-HMAC-SHA256", headers), "20150830/r/s/aws4_request", "host;x-amz-date", "0"))), "IncompleteSignatureException");
}

}  // namespace
}  // namespace fairlead::hyperpod
