// SPDX-License-Identifier: GPL-3.0-or-later
#include "accounting.h"

#include <gmock/gmock.h>

#include "base/encoding.h"
#include "database.h"

namespace fairlead::companion {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(StoragePass, IsOneQuotedLineWhateverThePasswordHolds) {
  EXPECT_EQ(*storage_pass_line("abc"), "StoragePass=\"abc\"\n");
  EXPECT_EQ(*storage_pass_line("a b=c,#d\\e"), "StoragePass=\"a b=c,\\#d\\\\e\"\n") << "Slurm takes an unescaped # for a comment, and a backslash away";
  for (const std::string& bad : {std::string(), std::string("a\"b"), std::string("a\nStorageUser=root"), std::string("a\r"), std::string("a\0b", 3)}) EXPECT_FALSE(storage_pass_line(bad));
}

TEST(StoragePass, TheMessageNeverHoldsIt) {
  auto line = storage_pass_line("secret\"word");
  ASSERT_FALSE(line);
  EXPECT_THAT(line.error().message, Not(HasSubstr("secret")));
}

// Packed as Slurm's pack.c does: numbers with the high byte first, texts with their length and closing zero.
TEST(LastTres, IsWhatSlurmctldSaves) {
  const std::string bytes = last_tres_bytes({"gres/gpu", "cpu", "gres/gpu", "license/x"}, 0x0102030405);
  EXPECT_EQ(hex(bytes.substr(0, 14)), "26000000000102030405" "0000000a") << "protocol 22.05, time, ten kinds: one that is said twice or is known anyway counts once";
  EXPECT_EQ(hex(bytes.substr(14, 32)), "00000000000000000000000000000000" "00000001" "00000000" "00000004" "63707500");
  EXPECT_NE(bytes.find(std::string("\0\0\x03\xe9\0\0\0\x04gpu\0\0\0\0\x05gres\0", 21)), std::string::npos) << "the first of a site's own is 1001";
  EXPECT_NE(bytes.find(std::string("\0\0\x03\xea\0\0\0\x02x\0\0\0\0\x08license\0", 22)), std::string::npos);
  EXPECT_EQ(hex(bytes.substr(bytes.size() - 4)), "00000000");
}

TEST(FirstContact, TheDatabaseKnowsTheKindsOnceSlurmctldHasToldIt) {
  const std::string fresh = "cpu|\nmem|\nenergy|\nnode|\nbilling|\nfs|disk\nvmem|\npages|\n";
  EXPECT_TRUE(kinds_are_known({}, fresh));
  EXPECT_TRUE(kinds_are_known({"cpu", "FS/disk"}, fresh));
  EXPECT_FALSE(kinds_are_known({"gres/gpu"}, fresh));
  EXPECT_FALSE(kinds_are_known({"gres/gpu"}, fresh + "gres|gpu:a100\n"));
  EXPECT_TRUE(kinds_are_known({"gres/gpu", "gres/gpu:a100"}, fresh + "gres|gpu\ngres|gpu:a100\n"));
  EXPECT_FALSE(kinds_are_known({"cpu"}, ""));
}

TEST(DatabaseSettings, NobodyButSlurmByTls) {
  auto users = database_users(std::string(48, 'a'));
  ASSERT_TRUE(users);
  EXPECT_THAT(*users, HasSubstr("REQUIRE SSL"));
  EXPECT_THAT(*users, HasSubstr(" ON slurm_acct_db.* TO 'slurm'@'%'"));
  for (const char* never : {"*.*", "ALL PRIVILEGES", "GRANT OPTION", "SUPER", "FILE"}) EXPECT_THAT(*users, Not(HasSubstr(never)));
  for (const char* bad : {"", "short", "aaaaaaaaaaaaaaaaaaaa'; DROP", "aaaaaaaaaaaaaaaaaaaa\n"}) EXPECT_FALSE(database_users(bad)) << bad;
  const auto arguments = database_arguments("/d", 3307, 64);
  EXPECT_THAT(arguments, Contains("--require-secure-transport=ON"));
  EXPECT_THAT(arguments, Contains("--innodb-flush-log-at-trx-commit=1"));
  EXPECT_THAT(arguments, Contains("--innodb-buffer-pool-size=64M"));
}

TEST(TableNames, OneThatSlurmGivesNoneIsInNoStatementOfRoot) {
  auto names = table_names("acct_table\ndemo_job_table\nmy-cluster.1_step_table\n");
  ASSERT_TRUE(names);
  EXPECT_THAT(*names, ElementsAre("acct_table", "demo_job_table", "my-cluster.1_step_table"));
  for (const std::string& bad : {std::string("a`b\n"), std::string("a b"), std::string("a\\nb"), std::string("ok\na'b\n"), std::string(65, 'a'), std::string("a\0b", 3)}) EXPECT_FALSE(table_names(bad)) << bad;
  EXPECT_EQ(exchange_statement({"a"}, {"a", "b"}),
            "RENAME TABLE `slurm_acct_db`.`a` TO `fairlead_replaced`.`a`, `fairlead_restored`.`a` TO `slurm_acct_db`.`a`, `fairlead_restored`.`b` TO `slurm_acct_db`.`b`");
}

TEST(BackupNames, SayWhenAndNothingElsePasses) {
  const Instant at = *parse_time("2026-11-22T00:15:07Z");
  EXPECT_EQ(backup_name(at), "accounting-20261122T001507Z.sql.gz");
  EXPECT_EQ(backup_time(backup_name(at)), at);
  for (const char* bad : {"", "accounting-.sql.gz", "../accounting-20261122T001507Z.sql.gz", "accounting-20261322T001507Z.sql.gz", "accounting-20261122T001507Z.sql.gz.sha256", ".accounting-20261122T001507Z.sql.gz.partial",
                          "accounting-2026112 T001507Z.sql.gz"})
    EXPECT_FALSE(backup_time(bad)) << bad;
}

TEST(BackupNames, TheOldestGoAndSoDoesWhatWasLeftHalf) {
  const auto name = [](int day) { return backup_name(*parse_time("2026-11-0" + std::to_string(day) + "T00:00:00Z")); };
  const std::vector<std::string> list = {name(3), name(3) + ".sha256", name(1) + ".sha256", name(1), name(2), name(2) + ".sha256", "." + name(4) + ".partial", name(5) + ".sha256", "notes.txt", name(6)};
  EXPECT_THAT(backups_to_remove(list, 2), ElementsAre(name(1), name(1) + ".sha256", "." + name(4) + ".partial", name(5) + ".sha256")) << "what has no checksum was never whole, and is not ours to count or to remove";
  EXPECT_THAT(backups_to_remove({name(1), name(1) + ".sha256"}, 1), IsEmpty());
  EXPECT_THAT(backups_until(list, *parse_time("2026-11-02T00:00:00Z")), ElementsAre(name(1) + ".sha256", name(1), name(2), name(2) + ".sha256", "." + name(4) + ".partial", "notes.txt")) << "made by a clock that was wrong";
}

}  // namespace
}  // namespace fairlead::companion
