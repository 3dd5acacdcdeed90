// SPDX-License-Identifier: Apache-2.0
#include "kube/kubeconfig.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/encoding.h"

namespace fairlead::kube {
namespace {

using testing::HasSubstr;

class KubeconfigTest : public testing::Test {
 protected:
  KubeconfigTest() {
    char name[] = "/tmp/fairlead-kubeconfig-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~KubeconfigTest() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

std::string config(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: one\n"
         "contexts:\n- name: one\n  context: {cluster: c, user: u}\n- name: two\n  context: {cluster: c, user: u, namespace: team}\n- name: lost\n  context: {cluster: gone, user: u}\n"
         "clusters:\n- name: c\n  cluster: {" +
         cluster + "}\nusers:\n- name: u\n  user: {" + user + "}\n";
}

TEST_F(KubeconfigTest, ReadsDataFilesAndContexts) {
  write("ca.crt", "CA");
  write("key", "KEY");
  const auto path = write("config", config("server: 'https://h:6443', certificate-authority: ca.crt, tls-server-name: s",
                                           "client-certificate-data: " + base64("CERT") + ", client-key: key, tokenFile: token"));
  const auto one = read_kubeconfig(path);
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->rest.server, "https://h:6443");
  EXPECT_EQ(one->rest.server_name, "s");
  EXPECT_EQ(one->rest.ca_pem, "CA");
  EXPECT_EQ(one->rest.certificate_pem, "CERT");
  EXPECT_EQ(one->rest.key_pem, "KEY");
  EXPECT_EQ(one->rest.token_file, folder_ + "/token");
  EXPECT_EQ(one->space, "default");
  EXPECT_EQ(read_kubeconfig(path, "two")->space, "team");
  EXPECT_EQ(read_kubeconfig(path, "three").error().code, Code::NotFound);
  EXPECT_EQ(read_kubeconfig(path, "lost").error().code, Code::NotFound);
  EXPECT_EQ(read_kubeconfig(folder_ + "/none").error().code, Code::NotFound);
}

TEST_F(KubeconfigTest, RefusesWhatItCannotDoByName) {
  const auto refused = [&](const std::string& cluster, const std::string& user) {
    const auto out = parse_kubeconfig(config(cluster, user), folder_);
    return out ? std::string("accepted") : out.error().message;
  };
  const std::string server = "server: 'https://h'";
  EXPECT_THAT(refused(server, "exec: {command: aws}"), HasSubstr("user \"u\": \"exec\" is not supported"));
  EXPECT_THAT(refused(server, "username: a, password: b"), HasSubstr("\"username\" is not supported"));
  EXPECT_THAT(refused(server + ", insecure-skip-tls-verify: true", "token: t"), HasSubstr("insecure-skip-tls-verify"));
  EXPECT_THAT(refused(server + ", proxy-url: 'http://p'", "token: t"), HasSubstr("proxy-url"));
  EXPECT_THAT(refused("x: y", "token: t"), HasSubstr("no server"));
  EXPECT_THAT(refused(server, "client-certificate-data: " + base64("C")), HasSubstr("needed together"));
  EXPECT_THAT(refused(server + ", certificate-authority-data: '***'", "token: t"), HasSubstr("certificate-authority-data"));
  EXPECT_EQ(parse_kubeconfig("[]", folder_).error().code, Code::Invalid);
  EXPECT_EQ(parse_kubeconfig("a: [", folder_).error().code, Code::Invalid);
  const auto insecure = parse_kubeconfig(config(server + ", insecure-skip-tls-verify: true", "token: t"), folder_, "", InsecureServer::Allow);
  ASSERT_TRUE(insecure);
  EXPECT_TRUE(insecure->rest.trust_any_server);
}

TEST_F(KubeconfigTest, WritesWhatItReads) {
  const std::string path = folder_ + "/out";
  const RestConfig rest{.server = "https://127.0.0.1:6443", .ca_pem = "CA\n", .certificate_pem = "CERT\n", .key_pem = "KEY\n", .token = "12345"};
  ASSERT_TRUE(write_kubeconfig(path, rest, "demo", "team"));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  const auto back = read_kubeconfig(path);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->context, "demo");
  EXPECT_EQ(back->space, "team");
  EXPECT_EQ(back->rest.server, rest.server);
  EXPECT_EQ(back->rest.ca_pem, rest.ca_pem);
  EXPECT_EQ(back->rest.certificate_pem, rest.certificate_pem);
  EXPECT_EQ(back->rest.key_pem, rest.key_pem);
  EXPECT_EQ(back->rest.token, rest.token);  // stays a string though it looks like a number
}

}  // namespace
}  // namespace fairlead::kube
