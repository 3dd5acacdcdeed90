// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/s3.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct S3 : testing::Test {
  TestSite site;
  Credentials ada;
  std::string work;
  void SetUp() override {
    char name[] = "/dev/shm/fairlead-s3-XXXXXX";
    work = ::mkdtemp(name);
    site.s3_folder = work + "/s3";
    ada = site.user("ada", {everything});
  }
  void TearDown() override { (void)remove_tree(work); }

  struct Said {
    int status = 0;
    std::string body, code;
    http::Headers headers;
    std::string text(const std::string& element) const {
      const auto begin = body.find("<" + element + ">"), end = body.find("</" + element + ">");
      return begin == body.npos || end == body.npos ? "" : body.substr(begin + element.size() + 2, end - begin - element.size() - 2);
    }
    // Keys and folders in their order, with commas.
    std::string keys() const {
      std::string out;
      for (const char* const element : {"Key", "Prefix"}) {
        const std::string open = std::string("<") + element + ">";
        for (auto at = body.find(open); at != body.npos; at = body.find(open, at + 1)) {
          const std::string value = body.substr(at + open.size(), body.find('<', at + 1) - at - open.size());
          if (element == std::string("Prefix") && body.compare(at - 16, 16, "<CommonPrefixes>") != 0) continue;
          out += (out.empty() ? "" : ",") + value;
        }
      }
      return out;
    }
  };
  Said ask(const Credentials& who, const std::string& method, const std::string& target, const std::string& body = "", http::Headers more = {}) {
    http::Request request{.method = method, .target = *http::parse_target(target), .headers = {{"Host", "127.0.0.1:6444"}}, .body = body, .peer = {.address = "127.0.0.1", .common_name = {}, .organizations = {}}};
    bool hashed = false;
    for (auto& header : more) hashed = hashed || header.first == "x-amz-content-sha256", request.headers.push_back(std::move(header));
    if (!hashed) request.headers.emplace_back("x-amz-content-sha256", hex(sha256(body)));
    sign_request(request, who, "fairlead-1", "s3", site.clock.now());
    const auto response = site.front->answer(request);
    Said out{response.status, response.body, {}, response.headers};
    if (response.status >= 400) out.code = out.text("Code");
    EXPECT_FALSE(http::find(response.headers, "x-amz-request-id").empty());
    return out;
  }
  Said ask(const std::string& method, const std::string& target, const std::string& body = "", http::Headers more = {}) { return ask(ada, method, target, body, std::move(more)); }
};

TEST_F(S3, ObjectsComeAndGo) {
  EXPECT_EQ(ask("GET", "/").keys(), "");
  EXPECT_EQ(ask("GET", "/sagemaker-x").code, "NoSuchBucket");
  EXPECT_EQ(ask("PUT", "/sagemaker-x/a", "x").code, "NoSuchBucket");
  EXPECT_EQ(ask("PUT", "/sagemaker-x").status, 200);
  EXPECT_EQ(ask("PUT", "/sagemaker-x").code, "BucketAlreadyOwnedByYou");
  EXPECT_THAT(ask("GET", "/").body, HasSubstr("<Name>sagemaker-x</Name>"));
  EXPECT_EQ(ask("HEAD", "/sagemaker-x").status, 200);
  EXPECT_THAT(ask("GET", "/sagemaker-x?location").body, HasSubstr(">fairlead-1</LocationConstraint>"));
  const auto put = ask("PUT", "/sagemaker-x/base/on%20create.sh", "#!/bin/sh\n");
  ASSERT_EQ(put.status, 200) << put.body;
  EXPECT_EQ(*read_file(work + "/s3/sagemaker-x/base/on create.sh"), "#!/bin/sh\n");
  const auto got = ask("GET", "/sagemaker-x/base/on%20create.sh");
  EXPECT_EQ(got.body, "#!/bin/sh\n");
  EXPECT_EQ(http::find(got.headers, "etag"), http::find(put.headers, "etag"));
  EXPECT_EQ(ask("HEAD", "/sagemaker-x/base/on%20create.sh").body.size(), 10u) << "the server sends its length alone";
  EXPECT_EQ(ask("GET", "/sagemaker-x/base/on%20create.sh", "", {{"Range", "bytes=2-4"}}).body, "/bi");
  EXPECT_EQ(ask("GET", "/sagemaker-x/base/on%20create.sh", "", {{"Range", "bytes=-3"}}).body, "sh\n");
  EXPECT_EQ(ask("GET", "/sagemaker-x/base/on%20create.sh", "", {{"Range", "bytes=8-"}}).body, "h\n");
  EXPECT_EQ(ask("GET", "/sagemaker-x/base/on%20create.sh", "", {{"Range", "bytes=10-"}}).status, 416);
  EXPECT_NE(http::find(ask("PUT", "/sagemaker-x/base/on%20create.sh", "other").headers, "etag"), http::find(put.headers, "etag"));
  EXPECT_EQ(ask("DELETE", "/sagemaker-x/base/on%20create.sh").status, 204);
  EXPECT_EQ(ask("DELETE", "/sagemaker-x/base/on%20create.sh").status, 204);
  EXPECT_EQ(ask("DELETE", "/sagemaker-x/none/none").status, 204);
  EXPECT_EQ(ask("GET", "/sagemaker-x/base/on%20create.sh").code, "NoSuchKey");
  EXPECT_FALSE(exists(work + "/s3/sagemaker-x/base")) << "a folder is no object";
  EXPECT_TRUE(exists(work + "/s3/sagemaker-x"));
}

TEST_F(S3, ListsByFoldersAndPages) {
  ASSERT_EQ(ask("PUT", "/bucket").status, 200);
  for (const char* key : {"a/1", "a/2", "a-b", "b/c/d", "z"}) ASSERT_EQ(ask("PUT", std::string("/bucket/") + key, "x").status, 200);
  EXPECT_EQ(ask("GET", "/bucket?list-type=2").keys(), "a-b,a/1,a/2,b/c/d,z");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&prefix=a%2F").keys(), "a/1,a/2");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&prefix=a").keys(), "a-b,a/1,a/2");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&prefix=b%2Fc%2Fd").keys(), "b/c/d");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&delimiter=%2F").keys(), "a-b,z,a/,b/");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&delimiter=%2F&prefix=b%2F").keys(), "b/c/");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&start-after=a%2F1").keys(), "a/2,b/c/d,z");
  EXPECT_EQ(ask("GET", "/bucket?marker=b%2Fc%2Fd").keys(), "z");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&max-keys=x").code, "InvalidArgument");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&continuation-token=%25").code, "InvalidArgument");
  for (const char* how : {"", "&delimiter=%2F"}) {
    std::string all, token;
    for (int page = 0; page < 10; ++page) {
      const auto said = ask("GET", fmt::format("/bucket?list-type=2&max-keys=1{}{}", how, token.empty() ? "" : "&continuation-token=" + http::escape(token)));
      ASSERT_EQ(said.status, 200);
      EXPECT_EQ(said.text("KeyCount"), "1");
      all += said.keys() + " ";
      token = said.text("NextContinuationToken");
      EXPECT_EQ(said.text("IsTruncated"), token.empty() ? "false" : "true");
      if (token.empty()) break;
    }
    EXPECT_EQ(all, *how == '\0' ? "a-b a/1 a/2 b/c/d z " : "a-b a/ b/ z ");
  }
  ASSERT_EQ(ask("PUT", "/bucket/a%20%26%20b", "x").status, 200);
  EXPECT_THAT(ask("GET", "/bucket?list-type=2&encoding-type=url").body, AllOf(HasSubstr("<Key>a%20%26%20b</Key>"), HasSubstr("<Key>a/1</Key>")));
  EXPECT_THAT(ask("GET", "/bucket?list-type=2").body, HasSubstr("<Key>a &amp; b</Key>"));
}

TEST_F(S3, ABodyMayComeInChunks) {
  ASSERT_EQ(ask("PUT", "/bucket").status, 200);
  const std::string body = "a\r\n0123456789\r\n3;x=y\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
  const http::Headers chunked{{"Content-Encoding", "aws-chunked"}, {"x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}, {"x-amz-decoded-content-length", "13"}};
  ASSERT_EQ(ask("PUT", "/bucket/a", body, chunked).status, 200);
  EXPECT_EQ(*read_file(work + "/s3/bucket/a"), "0123456789abc");
  EXPECT_EQ(ask("PUT", "/bucket/a", body.substr(0, 20), chunked).code, "IncompleteBody");
  EXPECT_EQ(ask("PUT", "/bucket/a", "a\r\n0123456789\r\n0\r\n\r\n", chunked).code, "IncompleteBody");
  for (const char* bad : {"", "\r\n", "x\r\n", "5\r\nabc\r\n0\r\n\r\n", "fffffffff\r\nabc", "3\r\nabcX\r\n0\r\n"}) EXPECT_FALSE(read_chunked(bad)) << bad;
  EXPECT_EQ(*read_file(work + "/s3/bucket/a"), "0123456789abc");
}

TEST_F(S3, NothingLeadsOutOfABucket) {
  ASSERT_EQ(ask("PUT", "/bucket").status, 200);
  ASSERT_TRUE(write_file_atomically(work + "/secret", "of this machine", 0644));
  ASSERT_EQ(::symlink("../../secret", (work + "/s3/bucket/link").c_str()), 0);
  ASSERT_EQ(::symlink("../..", (work + "/s3/bucket/out").c_str()), 0);
  EXPECT_EQ(ask("GET", "/bucket/link").code, "AccessDenied");
  EXPECT_EQ(ask("GET", "/bucket/out/secret").code, "AccessDenied");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2").keys(), "");
  EXPECT_EQ(ask("PUT", "/bucket/out/x", "x").status, 409);
  EXPECT_FALSE(exists(work + "/x"));
  for (const char* key : {"/bucket/%2E%2E/x", "/bucket/a//b", "/bucket/a/./b", "/bucket/a/"}) EXPECT_EQ(ask("PUT", key, "x").code, "InvalidArgument") << key;
  for (const char* bucket : {"/%2E%2E", "/Ab", "/ab", "/-abc", "/a..b"}) EXPECT_EQ(ask("PUT", bucket).code, "InvalidBucketName") << bucket;
  EXPECT_EQ(ask("PUT", "/bucket/.fairlead-upload-1", "x").code, "InvalidArgument");
  ASSERT_EQ(ask("PUT", "/bucket/file", "x").status, 200);
  EXPECT_EQ(ask("PUT", "/bucket/file/below", "x").status, 409);
  ASSERT_EQ(ask("PUT", "/bucket/folder/x", "x").status, 200);
  EXPECT_EQ(ask("PUT", "/bucket/folder", "x").status, 409);
  EXPECT_EQ(ask("DELETE", "/bucket/folder").status, 204);
  EXPECT_EQ(*read_file(work + "/s3/bucket/folder/x"), "x") << "a folder is no object";
}

TEST_F(S3, IsForThoseWhoMay) {
  ASSERT_EQ(ask("PUT", "/bucket").status, 200);
  ASSERT_EQ(ask("PUT", "/bucket/base/a", "x").status, 200);
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/base/*"}, {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::bucket", "Condition": {"StringLike": {"s3:prefix": "base/*"}}}]})"});
  EXPECT_EQ(ask(bob, "GET", "/bucket/base/a").body, "x");
  EXPECT_EQ(ask(bob, "GET", "/bucket?list-type=2&prefix=base%2F").keys(), "base/a");
  for (const auto& [method, target] : std::vector<std::pair<std::string, std::string>>{{"GET", "/"}, {"GET", "/bucket"}, {"GET", "/bucket?list-type=2&prefix="}, {"PUT", "/bucket/base/a"}, {"DELETE", "/bucket/base/a"}, {"GET", "/bucket/other"}, {"PUT", "/bucket-2"}, {"GET", "/bucket?location"}}) {
    const auto said = ask(bob, method, target, method == "PUT" ? "y" : "");
    EXPECT_EQ(said.status, 403) << method << " " << target;
    EXPECT_EQ(said.code, "AccessDenied");
  }
  EXPECT_EQ(*read_file(work + "/s3/bucket/base/a"), "x");
  Credentials wrong = ada;
  wrong.secret += "x";
  EXPECT_EQ(ask(wrong, "GET", "/bucket/base/a").code, "SignatureDoesNotMatch");
  EXPECT_EQ(ask({"AKIAAAAAAAAAAAAAAAAA", "x", ""}, "GET", "/").code, "InvalidAccessKeyId");
  // A body that is another than the signed one.
  EXPECT_EQ(ask("PUT", "/bucket/base/a", "y", {{"x-amz-content-sha256", hex(sha256("z"))}}).code, "SignatureDoesNotMatch");
  EXPECT_EQ(site.audit.front()["eventSource"].string(), "s3.amazonaws.com");
  EXPECT_EQ(site.audit.front()["eventName"].string(), "CreateBucket");
}

TEST_F(S3, WhatIsNotServedSaysSo) {
  ASSERT_EQ(ask("PUT", "/bucket").status, 200);
  for (const auto& [method, target] : std::vector<std::pair<std::string, std::string>>{{"GET", "/bucket?acl"}, {"PUT", "/bucket?policy"}, {"POST", "/bucket/a?uploads"}, {"POST", "/bucket?delete"}, {"DELETE", "/bucket"}, {"GET", "/bucket/a?versionId=1"}}) {
    const auto said = ask(method, target);
    EXPECT_EQ(said.status, 501) << method << " " << target;
    EXPECT_EQ(said.code, "NotImplemented");
  }
  EXPECT_EQ(ask("PUT", "/bucket/b", "", {{"x-amz-copy-source", "/bucket/a"}}).code, "NotImplemented");
  EXPECT_TRUE(exists(work + "/s3/bucket"));
}

}  // namespace
}  // namespace fairlead::hyperpod
