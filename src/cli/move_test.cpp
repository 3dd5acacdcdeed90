// SPDX-License-Identifier: Apache-2.0
// The archive of a cluster that moves, and the objects in it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/move_archive.h"
#include "cli/move_objects.h"

namespace fairlead::cli {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

struct Folder {
  std::string path;
  Folder() {
    std::string pattern = testing::TempDir() + "/move-XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { (void)remove_tree(path); }
};

ArchiveHeader header() {
  return {.id = "20261122T001500Z-7", .cluster = "demo", .space = "lab", .time = "2026-11-22T00:15:00Z", .code_sum = std::string(64, 'e'), .set = "20261122T001500Z", .slurm = "slurm 22.05.8", .salt = std::string(32, 's'), .n = 1 << 14};
}

Result<std::string> whole(const std::string& path, const std::string& passphrase) {
  auto reader = ArchiveReader::open(path);
  if (!reader) return std::unexpected(std::move(reader.error()));
  if (auto open = reader->unlock(passphrase); !open) return std::unexpected(std::move(open.error()));
  std::string out;
  while (true) {
    auto some = reader->read(300'000);
    if (!some) return some;
    if (some->empty()) return out;
    out += *some;
  }
}

TEST(Archive, GivesBackWhatWasWrittenToWhoHasThePassphrase) {
  Folder folder;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, (std::size_t{2} << 20) + 5}) {
    const std::string path = folder.path + "/" + std::to_string(size);
    const std::string bytes(size, 'x');
    {
      auto writer = ArchiveWriter::create(path, header(), "correct horse");
      ASSERT_TRUE(writer) << writer.error().message;
      ASSERT_TRUE(writer->write(bytes.substr(0, size / 3)));
      EXPECT_FALSE(exists(path)) << "it is none before it is whole";
      ASSERT_TRUE(writer->write(bytes.substr(size / 3)));
      ASSERT_TRUE(writer->finish());
    }
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_FALSE(exists(path + ".partial"));
    EXPECT_EQ(ArchiveReader::open(path)->header(), header());
    EXPECT_EQ(whole(path, "correct horse").value_or("none"), bytes);
    EXPECT_EQ(whole(path, "correct Horse").error().code, Code::Forbidden);
    EXPECT_EQ(ArchiveWriter::create(path, header(), "correct horse").error().code, Code::Exists);
  }
}

TEST(Archive, OneThatWasChangedAnywhereOrCutOffIsRefused) {
  Folder folder;
  const std::string path = folder.path + "/a", other = folder.path + "/b", text = std::string((1 << 20) + 100, 'q');
  {
    auto writer = ArchiveWriter::create(path, header(), "correct horse");
    ASSERT_TRUE(writer && writer->write(text) && writer->finish());
  }
  const std::string bytes = *read_file(path);
  EXPECT_EQ(bytes.find("qqqq"), bytes.npos);
  const std::size_t head = print_archive_header(header()).size();
  std::vector<std::pair<std::string, std::string>> bad = {
      {"cut in the middle", bytes.substr(0, bytes.size() / 2)}, {"without the last record", bytes.substr(0, head + 5 + (1 << 20) + 16)}, {"without its end", bytes.substr(0, bytes.size() - 1)}, {"longer", bytes + "x"},
      {"without the first record", bytes.substr(0, head) + bytes.substr(head + 5 + (1 << 20) + 16)}};
  for (const std::size_t at : {head, head + 1, head + 4, head + 5, head + 5000, bytes.size() - 1, bytes.size() - 120}) {
    std::string one = bytes;
    one[at] = static_cast<char>(one[at] ^ 1);
    bad.emplace_back(fmt::format("changed at {}", at), std::move(one));
  }
  std::string code = bytes;  // the header is not secret, and cannot be changed all the same
  code[code.find("eeee")] = 'f';
  bad.emplace_back("another code", code);
  for (const auto& [what, one] : bad) {
    ASSERT_TRUE(write_file_atomically(other, one, 0600));
    EXPECT_FALSE(whole(other, "correct horse").has_value()) << what;
  }
}

TEST(Archive, WhatIsNotFinishedLeavesNothing) {
  Folder folder;
  {
    auto writer = ArchiveWriter::create(folder.path + "/a", header(), "correct horse");
    ASSERT_TRUE(writer && writer->write("x"));
  }
  EXPECT_THAT(*list_dir(folder.path), testing::IsEmpty());
}

TEST(Archive, HeadersThatAreNoneAreRefused) {
  const std::string good = print_archive_header(header());
  std::size_t size = 0;
  ASSERT_TRUE(parse_archive_header(good + "more", size));
  EXPECT_EQ(size, good.size());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text : {std::string(), std::string("fairlead-export 1\n"), good.substr(0, good.size() - 1), with("export 1", "export 2"), with("16384", "16385"), with("16384", "1"), with("16384", "1073741824"), with("\"demo\"", "\"--help\""),
                                  with("\"demo\"", "\"../x\""), with("eeee", "zzzz"), with("{", "[")})
    EXPECT_EQ(parse_archive_header(text, size).error().code, Code::Invalid) << text;
  EXPECT_THAT(parse_archive_header(with("export 1", "export 2"), size).error().message, HasSubstr("later version"));
}

Json yaml(const std::string& text) { return kube::parse_yaml(text)->front(); }

TEST(MovedObjects, AreThoseThatAClusterNames) {
  EXPECT_THAT(references_of(yaml(R"(
spec:
  volumeSources:
  - {name: jail, persistentVolumeClaim: {claimName: jail-pvc}}
  secrets: {sshdKeysName: host-keys}
  slurmNodes:
    login: {sshdConfigMapRefName: sshd}
    accounting: {externalDB: {passwordSecretKeyRef: {name: db, key: password}}}
    controller: {imagePullSecrets: [{name: pull}], customEnv: [{name: A, valueFrom: {configMapKeyRef: {name: env, key: a}}}], volumes: {extra: [{secret: {secretName: tls}}, {configMap: {name: files}}]}}
)")),
              ElementsAre(Pair("ConfigMap", "env"), Pair("ConfigMap", "files"), Pair("ConfigMap", "sshd"), Pair("PersistentVolumeClaim", "jail-pvc"), Pair("Secret", "db"), Pair("Secret", "host-keys"), Pair("Secret", "pull"), Pair("Secret", "tls")));
}

TEST(MovedObjects, KeepWhatAUserWroteAlone) {
  const Json claim = portable(yaml(R"(
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: a, namespace: lab, uid: u, resourceVersion: "4", finalizers: [x], ownerReferences: [{uid: v}], labels: {team: x}, annotations: {mine: y, pv.kubernetes.io/bind-completed: "yes", fairlead.dev/import: z}}
spec: {accessModes: [ReadWriteMany], volumeName: pv-1, storageClassName: nfs}
status: {phase: Bound}
)"));
  EXPECT_EQ(claim, yaml("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, labels: {team: x}, annotations: {mine: y}}, spec: {accessModes: [ReadWriteMany], storageClassName: nfs}}"));
  EXPECT_TRUE(says_the_same(claim, yaml("{kind: PersistentVolumeClaim, spec: {storageClassName: other}}")));
  EXPECT_FALSE(says_the_same(yaml("{kind: Secret, data: {a: eA==}}"), yaml("{kind: Secret, data: {a: eQ==}}")));
  EXPECT_TRUE(says_the_same(yaml("{kind: Secret, data: {a: eA==}}"), yaml("{kind: Secret, data: {a: eA==}, metadata: {uid: x}}")));
}

}  // namespace
}  // namespace fairlead::cli
