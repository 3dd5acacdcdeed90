// SPDX-License-Identifier: Apache-2.0
#include "slurm/keys.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"

namespace fairlead::slurm {
namespace {

using namespace std::chrono_literals;

TEST(Keys, MungeKeysAreLongAndDiffer) {
  auto a = make_keys(Keys::Munge, "c"), b = make_keys(Keys::Munge, "c");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->at("munge.key").size(), 1024U);
  EXPECT_NE(a->at("munge.key"), b->at("munge.key"));
}

// The judge of an SSH key is OpenSSH: it must read the private half and derive exactly the public half from it.
TEST(Keys, OpenSshReadsEveryPrivateKeyAndDerivesThePublicOne) {
  char folder[] = "/tmp/fairlead-keys-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  std::map<std::string, std::string> all;
  for (const Keys keys : {Keys::HostKeys, Keys::ClientKey}) {
    auto made = make_keys(keys, "fairlead-demo");
    ASSERT_TRUE(made) << made.error().message;
    all.insert(made->begin(), made->end());
  }
  EXPECT_EQ(all.size(), 8U);
  for (const auto& [name, content] : all) {
    if (name.ends_with(".pub")) continue;
    const std::string path = std::string(folder) + "/" + name;
    ASSERT_TRUE(write_file_atomically(path, content, 0600));
    auto derived = run_checked({.argv = {"ssh-keygen", "-y", "-f", path}}, 10s);
    ASSERT_TRUE(derived) << name << ": " << derived.error().message;
    const auto want = split(all.at(name + ".pub"), ' '), have = split(trim(*derived), ' ');  // type, blob, comment
    ASSERT_GE(have.size(), 2U) << name;
    EXPECT_EQ(have[0], want[0]) << name;
    EXPECT_EQ(have[1], want[1]) << name;
  }
  ASSERT_TRUE(remove_tree(folder));
}

}  // namespace
}  // namespace fairlead::slurm
