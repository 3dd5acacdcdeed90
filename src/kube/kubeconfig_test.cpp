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
  EXPECT_THAT(refused(server, "exec: {args: [a]}"), HasSubstr("user \"u\": \"exec\" names no command"));
  EXPECT_THAT(refused(server, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1alpha1}"), HasSubstr("v1alpha1 is not supported"));
  EXPECT_THAT(refused(server, "exec: {command: aws, interactiveMode: Always}"), HasSubstr("needs a terminal"));
  EXPECT_THAT(refused(server, "username: a, password: b"), HasSubstr("\"username\" is not supported"));
  EXPECT_THAT(refused(server + ", insecure-skip-tls-verify: true", "token: t"), HasSubstr("insecure-skip-tls-verify"));
  EXPECT_THAT(refused(server + ", proxy-url: 'socks5://p'", "token: t"), HasSubstr("proxy-url"));
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

TEST_F(KubeconfigTest, SeveralFilesAreOneTheFirstWins) {
  std::filesystem::create_directory(folder_ + "/b");
  write("ca", "CA-a");
  write("b/ca", "CA-b");
  const std::string a = write("a", "contexts:\n- name: one\n  context: {cluster: c, user: u}\nusers:\n- name: u\n  user: {token: first}\n");
  const std::string b = write("b/config", config("server: 'https://h', certificate-authority: ca", "token: second"));
  const auto both = read_kubeconfig(a + ":" + folder_ + "/missing:" + b);
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->context, "one");
  EXPECT_EQ(both->rest.token, "first");
  EXPECT_EQ(both->rest.ca_pem, "CA-b");  // relative to the file that names it
  EXPECT_EQ(read_kubeconfig(b + ":" + a)->rest.token, "second");
}

TEST_F(KubeconfigTest, LoadsWhatIsMeant) {
  std::map<std::string, std::string> environment;
  LoadOptions options{.environment = [&](const char* name) { return environment[name]; }, .service_account = folder_ + "/sa"};
  const auto server = [&] {
    const auto loaded = load_config(options);
    return loaded ? loaded->rest.server : std::string(name(loaded.error().code));
  };
  EXPECT_EQ(server(), name(Code::NotFound));
  std::filesystem::create_directories(folder_ + "/.kube");
  write(".kube/config", config("server: 'https://home'", "token: t"));
  environment["HOME"] = folder_;
  EXPECT_EQ(server(), "https://home");

  std::filesystem::create_directory(folder_ + "/sa");
  write("sa/token", "pod-token\n");
  write("sa/ca.crt", "CA");
  write("sa/namespace", "fairlead\n");
  environment["KUBERNETES_SERVICE_HOST"] = "10.96.0.1";
  environment["KUBERNETES_SERVICE_PORT"] = "6443";
  EXPECT_EQ(server(), "https://10.96.0.1:6443");
  EXPECT_EQ(load_config(options)->space, "fairlead");
  EXPECT_EQ(load_config(options)->rest.token_file, folder_ + "/sa/token");
  environment["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  EXPECT_EQ(server(), "https://[fd00::1]:6443");

  environment["KUBECONFIG"] = write("env", config("server: 'https://env:6443'", "token: t"));
  EXPECT_EQ(server(), "https://env:6443");
  options.kubeconfig = write("flag", config("server: 'https://flag'", "token: t"));
  EXPECT_EQ(server(), "https://flag");
  environment["https_proxy"] = "http://p:3128";
  EXPECT_EQ(load_config(options)->rest.proxy, "http://p:3128");
  environment["NO_PROXY"] = "flag";
  EXPECT_EQ(load_config(options)->rest.proxy, "");
  options.kubeconfig = write("proxied", config("server: 'https://flag', proxy-url: 'http://q:1'", "token: t"));
  EXPECT_EQ(load_config(options)->rest.proxy, "http://q:1");
}

TEST_F(KubeconfigTest, TellsAPluginOfTheClusterIfItAsks) {
  const std::string exec = "exec: {command: ./bin/login, args: [a, b], apiVersion: client.authentication.k8s.io/v1, provideClusterInfo: true, env: [{name: X, value: y}], installHint: get it}";
  const auto read = parse_kubeconfig(config("server: 'https://h', extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: me}}]", exec), "/home/x/.kube");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(read->rest.exec);
  EXPECT_EQ(read->rest.exec->command, "/home/x/.kube/./bin/login");
  EXPECT_EQ(read->rest.exec->cluster["config"]["audience"].string(), "me");
  EXPECT_EQ(read->rest.exec->cluster["server"].string(), "https://h");
  EXPECT_FALSE(parse_kubeconfig(config("server: 'https://h'", "token: t, " + exec), "/")->rest.exec) << "a token said outright wins";
}

TEST(ParseServer, WhatFollowsABracketIsAPort) {
  EXPECT_EQ(parse_server("https://[::1]:8443/a/")->port, 8443);
  EXPECT_EQ(parse_server("https://[::1]:8443/a/")->prefix, "/a");
  EXPECT_FALSE(parse_server("https://[::1]x80"));
  EXPECT_FALSE(parse_server("https://host:"));
}

}  // namespace
}  // namespace fairlead::kube
