// SPDX-License-Identifier: Apache-2.0
#include "http/proxy.h"

#include <gmock/gmock.h>

#include "base/encoding.h"

namespace fairlead::http {
namespace {

using testing::HasSubstr;

TEST(Proxy, IsReadFromUrls) {
  const auto plain = parse_proxy("http://proxy.example:3128/");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->host, "proxy.example");
  EXPECT_EQ(plain->port, 3128);
  EXPECT_EQ(plain->authorization, "");
  EXPECT_EQ(parse_proxy("proxy")->port, 80);
  EXPECT_EQ(parse_proxy("http://[fd00::1]:8080")->host, "fd00::1");
  EXPECT_EQ(parse_proxy("http://[fd00::1]:8080")->port, 8080);
  EXPECT_EQ(parse_proxy("http://me:p%40ss@h:1")->authorization, "Basic " + base64("me:p@ss"));
  EXPECT_EQ(parse_proxy("http://me:p%4@h:1")->authorization, "Basic " + base64("me:p%4"));
  EXPECT_EQ(parse_proxy("socks5://h:1").error().code, Code::Unsupported);
  EXPECT_EQ(parse_proxy("https://h:1").error().code, Code::Unsupported);
  for (const char* const bad : {"http://", "http://h:0", "http://h:x", "http://h:99999", "http://a b:1"}) EXPECT_EQ(parse_proxy(bad).error().code, Code::Invalid) << bad;
  EXPECT_THAT(parse_proxy("http://me:secret@h:x").error().message, testing::Not(HasSubstr("secret")));
}

TEST(Proxy, IsChosenAsGoDoes) {
  struct Row {
    const char* none;
    const char* host;
    unsigned short port;
    bool through;
  };
  const Row rows[] = {
      {"", "k8s.example", 443, true},
      {"", "localhost", 443, false},
      {"", "127.3.2.1", 6443, false},
      {"", "::1", 6443, false},
      {"*", "k8s.example", 443, false},
      {"example", "k8s.example", 443, false},
      {"example", "anexample", 443, true},
      {".example", "k8s.example", 443, false},
      {".k8s.example", "k8s.example", 443, true},
      {"*.example", "k8s.example", 443, false},
      {"K8S.Example", "k8s.EXAMPLE", 443, false},
      {"k8s.example:6443", "k8s.example", 443, true},
      {"k8s.example:443", "k8s.example", 443, false},
      {"10.0.0.0/8, 192.168.1.1", "10.9.8.7", 443, false},
      {"10.0.0.0/8, 192.168.1.1", "192.168.1.1", 443, false},
      {"10.0.0.0/8, 192.168.1.1", "11.9.8.7", 443, true},
      {"fd00::/8", "fd12::3", 443, false},
      {"10.0.0.0/99,10.0.0.0/-1,10.0.0.0/x", "10.0.0.1", 443, true},
  };
  for (const Row& row : rows) {
    const std::string chosen = choose_proxy({.http = "", .https = "http://p:1", .none = row.none}, true, row.host, row.port);
    EXPECT_EQ(chosen, row.through ? "http://p:1" : "") << row.none << " " << row.host;
  }
  EXPECT_EQ(choose_proxy({.http = "http://q:2", .https = "http://p:1", .none = ""}, false, "h", 80), "http://q:2");
}

}  // namespace
}  // namespace fairlead::http
