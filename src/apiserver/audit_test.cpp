// SPDX-License-Identifier: Apache-2.0
#include "apiserver/audit.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "apiserver/api_test_kit.h"
#include "base/files.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::Not;

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/fairlead-audit-XXXXXX";
    INVARIANT(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};
std::vector<Json> events(const std::string& file) {
  std::vector<Json> out;
  const auto text = read_file(file);
  if (!text) return out;
  for (const std::string& line : split(*text, '\n')) {
    if (line.empty()) continue;
    const auto json = kube::parse_json(line);
    EXPECT_TRUE(json) << line;
    if (json) out.push_back(*json);
  }
  return out;
}

TEST(Audit, RotatesBySizeAndKeepsSoMany) {
  const Folder folder;
  const std::string file = folder.path + "/audit.log";
  const auto log = AuditLog::open({.path = file, .size_limit = 100_KiB, .backups = 2});
  ASSERT_TRUE(log);
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const std::string line(1023, 'x');
  for (int i = 0; i < 450; ++i) (*log)->write(line);
  EXPECT_EQ(std::filesystem::file_size(file), 50u * 1024);
  EXPECT_EQ(std::filesystem::file_size(file + ".1"), 100u * 1024);
  EXPECT_EQ(std::filesystem::file_size(file + ".2"), 100u * 1024);
  EXPECT_FALSE(exists(file + ".3"));
}

TEST(Audit, GoesOnWithAnOldFileAndRefusesWhatIsNone) {
  const Folder folder;
  const std::string file = folder.path + "/audit.log";
  ASSERT_TRUE(write_file_atomically(file, "old\n", 0600));
  (*AuditLog::open({.path = file}))->write("new");
  EXPECT_EQ(*read_file(file), "old\nnew\n");
  EXPECT_FALSE(AuditLog::open({.path = folder.path}));
  EXPECT_FALSE(AuditLog::open({.path = "/dev/null"}));
  EXPECT_FALSE(AuditLog::open({.path = folder.path + "/none/audit.log"}));
}

TEST(Audit, TellsWhoDidWhatButNoContents) {
  const Folder folder;
  const std::string file = folder.path + "/audit.log";
  HandlerOptions options;
  options.audit = std::shared_ptr<AuditLog>(*AuditLog::open({.path = file}));
  testing_kit::Api api(std::move(options));
  const std::string secret = R"({"apiVersion":"v1","kind":"Secret","metadata":{"generateName":"s-"},"stringData":{"password":"open-sesame"}})";
  const Json made = api.json("POST", "/api/v1/namespaces/default/secrets?fieldManager=a%20b", secret);
  api.ask("GET", "/api/v1/namespaces/default/secrets/" + kube::name_of(made));
  api.ask("GET", "/api/v1/pods", "", {}, "eve-token");
  api.ask("GET", "/api/v1/pods", "", {}, "wrong");
  api.ask("GET", "/api", "", {{"Impersonate-User", "eve"}});
  api.ask("GET", "/readyz", "", {}, "");

  const std::string text = *read_file(file);
  for (const char* hidden : {"open-sesame", "b3Blbi1zZXNhbWU", "admin-token", "wrong"}) EXPECT_THAT(text, Not(HasSubstr(hidden)));
  const std::vector<Json> all = events(file);
  ASSERT_EQ(all.size(), 5u) << text;
  EXPECT_EQ(all[0]["kind"].string() + all[0]["apiVersion"].string() + all[0]["level"].string() + all[0]["stage"].string(), "Eventaudit.k8s.io/v1MetadataResponseComplete");
  EXPECT_EQ(all[0]["verb"].string(), "create");
  EXPECT_EQ(all[0]["requestURI"].string(), "/api/v1/namespaces/default/secrets?fieldManager=a%20b");
  EXPECT_EQ(all[0]["user"]["username"].string(), "admin");
  EXPECT_EQ(all[0]["objectRef"]["resource"].string(), "secrets");
  EXPECT_EQ(all[0]["objectRef"]["name"].string(), kube::name_of(made));
  EXPECT_EQ(all[0]["responseStatus"]["code"].integer(), 201);
  EXPECT_EQ(all[1]["verb"].string(), "get");
  EXPECT_EQ(all[2]["responseStatus"]["code"].integer(), 403);
  EXPECT_THAT(all[2]["responseStatus"]["message"].string(), HasSubstr("User \"eve\" cannot list resource"));
  EXPECT_EQ(all[2]["annotations"]["authorization.k8s.io/decision"].string(), "forbid");
  EXPECT_EQ(all[3]["responseStatus"]["code"].integer(), 401);
  EXPECT_EQ(all[3]["user"]["username"].string(), "");
  EXPECT_EQ(all[4]["user"]["username"].string(), "admin");
  EXPECT_EQ(all[4]["impersonatedUser"]["username"].string(), "eve");
  EXPECT_FALSE(all[4].has("objectRef"));
}

TEST(Audit, AWatchIsToldWhenItBeginsAndWhenItEnds) {
  const Folder folder;
  const std::string file = folder.path + "/audit.log";
  HandlerOptions options;
  options.audit = std::shared_ptr<AuditLog>(*AuditLog::open({.path = file}));
  testing_kit::Api api(std::move(options));
  const auto exchange = api.send("GET", "/api/v1/pods?watch=1&timeoutSeconds=600");
  ASSERT_TRUE(exchange->wait_stream());
  EXPECT_EQ(events(file).size(), 1u);
  EXPECT_EQ(events(file).at(0)["stage"].string(), "ResponseStarted");
  api.handler->drain();
  ASSERT_EQ(events(file).size(), 2u);
  EXPECT_EQ(events(file).at(1)["stage"].string(), "ResponseComplete");
}

TEST(Audit, ReadsAreLeftOutOnRequest) {
  const Folder folder;
  const std::string file = folder.path + "/audit.log";
  HandlerOptions options;
  options.audit = std::shared_ptr<AuditLog>(*AuditLog::open({.path = file, .writes_only = true}));
  testing_kit::Api api(std::move(options));
  api.ask("GET", "/api/v1/pods");
  api.ask("POST", "/api/v1/namespaces", R"({"metadata":{"name":"x"}})");
  ASSERT_EQ(events(file).size(), 1u);
  EXPECT_EQ(events(file)[0]["objectRef"]["name"].string(), "x");
  // Who got into a container is told all the same.
  api.ask("GET", "/api/v1/namespaces/default/pods/p/log");
  api.ask("GET", "/api/v1/namespaces/default/pods/p/attach");
  api.ask("GET", "/api/v1/namespaces/default/pods/p/exec?command=id");
  ASSERT_EQ(events(file).size(), 3u);
  EXPECT_EQ(events(file)[1]["objectRef"]["subresource"].string(), "attach");
  EXPECT_EQ(events(file)[2]["objectRef"]["subresource"].string(), "exec");
}

}  // namespace
}  // namespace fairlead::apiserver
