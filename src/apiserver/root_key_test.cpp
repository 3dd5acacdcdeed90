// SPDX-License-Identifier: Apache-2.0
#include "apiserver/root_key.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "apiserver/seal.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/rng.h"

namespace fairlead::apiserver {
namespace {

using testing::HasSubstr;
using testing::Not;

// A holder in this process: it wraps under a key of its own.
struct Holder : RootKey {
  explicit Holder(std::string its_title) : title(std::move(its_title)), key(secret_bytes(32)) {}
  Result<std::string> wrap(std::string_view plain) override {
    if (away) return fail(Code::Unavailable, title + " is away");
    ++wraps;
    return base64(close_box(key, title, plain, secret_bytes(kBoxNonce)));
  }
  Result<std::string> unwrap(const std::string& wrapped) override {
    if (away) return fail(Code::Unavailable, title + " is away");
    auto box = parse_base64(wrapped);
    if (!box) return fail(Code::Invalid, "no base64");
    return open_box(key, title, *box);
  }
  std::string name() const override { return title; }
  std::string title, key;
  int wraps = 0;
  bool away = false;
};

struct RootKeyTest : testing::Test {
  RootKeyTest() {
    std::string pattern = testing::TempDir() + "root-key-XXXXXX";
    folder = ::mkdtemp(pattern.data());
    std::filesystem::create_directories(folder + "/tokens-old");
    for (const auto& [path, role] : roles) {
      plain[path] = secret_bytes(32);
      put(path, plain[path]);
    }
  }
  ~RootKeyTest() override { std::filesystem::remove_all(folder); }
  void put(const std::string& path, const std::string& bytes) { ASSERT_TRUE(write_file_durably(folder + "/" + path, bytes, 0600)); }
  std::string raw(const std::string& path) { return read_file(folder + "/" + path).value_or(""); }
  // What a start reads; empty: it is refused.
  std::map<std::string, std::string> keys(RootKey* now, RootKey* before = nullptr) {
    auto opened = KeyFolder::open(folder, now, before);
    std::map<std::string, std::string> out;
    if (!opened) return out;
    for (const auto& [path, role] : roles) {
      auto key = opened->read(path, role);
      EXPECT_TRUE(key) << path;
      out[path] = key.value_or("");
    }
    return out;
  }
  bool open_to_all(const std::string& path) { return raw(path) == plain[path]; }
  std::string why(RootKey* now, RootKey* before = nullptr) {
    auto opened = KeyFolder::open(folder, now, before);
    return opened ? "" : opened.error().message;
  }

  const std::map<std::string, std::string> roles{{"secrets.key", "secrets"}, {"ca.key", "ca"}, {"tokens.key", "tokens"}, {"tokens-old/1.pem", "tokens"}};
  std::map<std::string, std::string> plain;
  std::string folder;
  Holder tpm{"tpm"}, kms{"kms"};
};

TEST_F(RootKeyTest, WithoutOneKeysAreAsTheyAre) {
  EXPECT_EQ(keys(nullptr), plain);
  for (const auto& [path, role] : roles) EXPECT_TRUE(open_to_all(path));
  EXPECT_FALSE(exists(folder + "/root.json"));
}

TEST_F(RootKeyTest, UnderOneNothingIsReadFromTheFolderAlone) {
  EXPECT_EQ(keys(&tpm), plain);
  for (const auto& [path, key] : plain) {
    EXPECT_THAT(raw(path), Not(HasSubstr(key))) << path;
    EXPECT_THAT(raw(path), Not(HasSubstr(base64(key)))) << path;
    struct stat about {};
    ASSERT_EQ(::stat((folder + "/" + path).c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);
  }
  EXPECT_EQ(keys(&tpm), plain);
  EXPECT_EQ(tpm.wraps, 1);
  EXPECT_THAT(why(nullptr), HasSubstr("--root-key-command"));
  EXPECT_THAT(why(&kms), HasSubstr("does not fit"));
  tpm.away = true;
  EXPECT_THAT(why(&tpm), HasSubstr("tpm is away"));
  tpm.away = false;
  EXPECT_EQ(keys(&tpm), plain);
}

TEST_F(RootKeyTest, WhatIsWrittenLaterIsSealedToo) {
  auto opened = KeyFolder::open(folder, &tpm, nullptr);
  ASSERT_TRUE(opened);
  ASSERT_TRUE(opened->write("tokens.key", "tokens", "another key"));
  EXPECT_THAT(raw("tokens.key"), Not(HasSubstr("another key")));
  EXPECT_EQ(*KeyFolder::open(folder, &tpm, nullptr)->read("tokens.key", "tokens"), "another key");
}

TEST_F(RootKeyTest, TheHolderChangesAndGoes) {
  EXPECT_EQ(keys(&tpm), plain);
  const std::string sealed = raw("ca.key");
  EXPECT_EQ(keys(&kms, &tpm), plain);
  EXPECT_EQ(raw("ca.key"), sealed);  // the sealing key stays
  EXPECT_EQ(keys(&kms), plain);
  EXPECT_THAT(why(&tpm), HasSubstr("does not fit"));
  EXPECT_EQ(keys(&kms, &tpm), plain);  // said twice
  EXPECT_EQ(kms.wraps, 1);
  EXPECT_EQ(keys(nullptr, &kms), plain);
  for (const auto& [path, role] : roles) EXPECT_TRUE(open_to_all(path));
  EXPECT_FALSE(exists(folder + "/root.json"));
  EXPECT_EQ(keys(nullptr, &kms), plain);  // said twice
  EXPECT_EQ(keys(nullptr), plain);
}

TEST_F(RootKeyTest, ADeathBetweenAnyTwoFilesIsTakenUp) {
  std::vector<std::string> order;
  for (const auto& [path, role] : roles) order.push_back(path);
  // What each file is when it is sealed.
  ASSERT_EQ(keys(&tpm), plain);
  std::map<std::string, std::string> sealed;
  for (const std::string& path : order) sealed[path] = raw(path);
  for (unsigned done = 0; done < 1u << order.size(); ++done) {
    const auto half = [&] {
      for (std::size_t i = 0; i < order.size(); ++i) put(order[i], (done & 1u << i) != 0 ? sealed[order[i]] : plain[order[i]]);
    };
    const std::string root = raw("root.json");
    half();
    EXPECT_EQ(keys(&tpm), plain) << done;  // while they were sealed
    for (const std::string& path : order) EXPECT_FALSE(open_to_all(path)) << path;
    half();
    EXPECT_EQ(keys(&kms, &tpm), plain) << done;  // and before the holder changed
    EXPECT_EQ(keys(&tpm, &kms), plain) << done;
    half();
    EXPECT_EQ(keys(nullptr, &tpm), plain) << done;  // while they were opened
    for (const std::string& path : order) EXPECT_TRUE(open_to_all(path)) << path;
    put("root.json", root);
  }
}

TEST_F(RootKeyTest, WhatIsDamagedOrExchangedIsRefused) {
  ASSERT_EQ(keys(&tpm), plain);
  const std::string ca = raw("ca.key");
  put("secrets.key", ca);  // one for another
  EXPECT_THAT(why(&tpm), HasSubstr("was changed"));
  put("secrets.key", ca.substr(0, ca.size() - 9));
  EXPECT_THAT(why(&tpm), HasSubstr("secrets.key"));
  put("secrets.key", "fairlead sealed key 1\n?");
  EXPECT_THAT(why(&tpm), HasSubstr("damaged"));
  const std::string root = raw("root.json");
  for (const std::string bad : {"", "{}", "[1]", R"({"version": 2, "wrapped": "x"})", R"({"version": 1, "wrapped": 7})"}) {
    put("root.json", bad);
    EXPECT_THAT(why(&tpm), HasSubstr("root.json is damaged")) << bad;
  }
  std::filesystem::remove(folder + "/root.json");
  auto opened = KeyFolder::open(folder, nullptr, nullptr);
  ASSERT_TRUE(opened);
  EXPECT_THAT(opened->read("ca.key", "ca").error().message, HasSubstr("there is no root.json"));
}

TEST_F(RootKeyTest, WhatADeathInAWriteLeftIsNoKeyAndDoesNotStay) {
  for (const char* const left : {".tmp-1-1", "tokens-old/.tmp-1-2"}) put(left, plain["ca.key"]);
  EXPECT_EQ(keys(&tpm), plain);
  EXPECT_FALSE(exists(folder + "/.tmp-1-1") || exists(folder + "/tokens-old/.tmp-1-2"));
}

TEST_F(RootKeyTest, AHolderIsBelievedWhenWhatIsSealedOpens) {
  ASSERT_EQ(keys(&tpm), plain);
  // One with a single place for a key: whatever line it is given, it gives back that.
  struct Slot : Holder {
    using Holder::Holder;
    Result<std::string> wrap(std::string_view plain_key) override { return kept = plain_key, "1"; }
    Result<std::string> unwrap(const std::string&) override { return kept.empty() ? secret_bytes(32) : kept; }
    std::string kept;
  } slot{"slot"};
  put("ca.key", plain["ca.key"]);  // one is open still
  EXPECT_THAT(why(&slot), HasSubstr("does not fit"));
  EXPECT_TRUE(open_to_all("ca.key"));
  EXPECT_EQ(keys(&slot, &tpm), plain);  // asked, found wrong, and given the key by the one before
  EXPECT_EQ(keys(&slot), plain);
}

TEST_F(RootKeyTest, ALostRootIsNotCoveredByAnother) {
  ASSERT_EQ(keys(&tpm), plain);
  const std::string root = raw("root.json");
  put("ca.key", plain["ca.key"]);
  std::filesystem::remove(folder + "/root.json");
  EXPECT_THAT(why(&tpm), HasSubstr("there is no root.json"));
  EXPECT_FALSE(exists(folder + "/root.json"));
  EXPECT_TRUE(open_to_all("ca.key"));
  put("root.json", root);
  EXPECT_EQ(keys(&tpm), plain);
}

TEST_F(RootKeyTest, AHolderThatGivesSomethingElseBackGetsNothing) {
  struct Wrong : Holder {
    using Holder::Holder;
    Result<std::string> unwrap(const std::string&) override { return secret_bytes(32); }
  } wrong{"wrong"};
  EXPECT_THAT(why(&wrong), HasSubstr("another key"));
  struct Open : Holder {
    using Holder::Holder;
    Result<std::string> wrap(std::string_view plain) override { return base64(plain); }
    Result<std::string> unwrap(const std::string& wrapped) override { return *parse_base64(wrapped); }
  } open{"open"};
  EXPECT_THAT(why(&open), HasSubstr("wraps nothing"));
  EXPECT_EQ(keys(nullptr), plain);
  EXPECT_FALSE(exists(folder + "/root.json"));
}

struct ProgramTest : RootKeyTest {
  std::string program(const std::string& body, mode_t mode = 0755) {
    const std::string file = folder + "/holder.sh";
    EXPECT_TRUE(write_file_durably(file, "#!/bin/sh\n" + body, mode));
    return file;
  }
  std::string refusal(const std::string& body) {
    auto holder = program_root_key(program(body));
    if (!holder) return holder.error().message;
    return why(holder->get());
  }
};

TEST_F(ProgramTest, AProgramHoldsIt) {
  // The key in a file beside it: what a KMS does, without the KMS.
  put("kek", "word");
  auto holder = program_root_key(program("cd '" + folder + "'\ncase $1 in\nwrap) openssl enc -aes-256-cbc -pbkdf2 -pass file:kek -a -A ;;\nunwrap) openssl enc -d -aes-256-cbc -pbkdf2 -pass file:kek -a -A ;;\nesac\n"));
  ASSERT_TRUE(holder) << holder.error().message;
  EXPECT_EQ(keys(holder->get()), plain);
  EXPECT_EQ(keys(holder->get()), plain);
  put("kek", "another");
  EXPECT_THAT(why(holder->get()), HasSubstr("unwrap"));
}

TEST_F(ProgramTest, OneThatFailsSaysWhyAndNothingIsChanged) {
  EXPECT_THAT(refusal("echo 'the TPM is locked' >&2\nexit 3\n"), testing::AllOf(HasSubstr("status 3"), HasSubstr("the TPM is locked")));
  EXPECT_THAT(refusal("exit 0\n"), HasSubstr("prints nothing"));
  EXPECT_THAT(refusal("printf 'two\\nlines'\n"), HasSubstr("one line"));
  EXPECT_THAT(refusal("case $1 in wrap) echo ok ;; *) echo no key ;; esac\n"), HasSubstr("no key of 32 bytes"));
  EXPECT_THAT(refusal("head -c 100000 /dev/zero | tr '\\0' x\n"), HasSubstr("64 KiB"));
  EXPECT_THAT(refusal("kill -9 $$\n"), HasSubstr("signal 9"));
  EXPECT_EQ(keys(nullptr), plain);
}

TEST_F(ProgramTest, NotOneThatOthersMayChange) {
  EXPECT_THAT(program_root_key("holder").error().message, HasSubstr("full path"));
  EXPECT_EQ(program_root_key(folder + "/none").error().code, Code::NotFound);
  EXPECT_THAT(program_root_key(folder).error().message, HasSubstr("not a program"));
  EXPECT_THAT(program_root_key(program("exit 0\n", 0600)).error().message, HasSubstr("not a program"));
  EXPECT_EQ(program_root_key(program("exit 0\n", 0777)).error().code, Code::Forbidden);
  EXPECT_EQ(program_root_key(program("exit 0\n", 0775)).error().code, Code::Forbidden);
  const std::string good = program("exit 0\n");
  EXPECT_TRUE(program_root_key(good));
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(program_root_key(good).error().message, HasSubstr("could be exchanged by others"));
  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
}

}  // namespace
}  // namespace fairlead::apiserver
