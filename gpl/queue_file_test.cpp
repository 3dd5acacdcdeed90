// SPDX-License-Identifier: GPL-3.0-or-later
#include "durable/queue_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace fairlead::companion {
namespace {

using durable::QueuedMessage;
struct Free {
  void operator()(void* what) const { std::free(what); }
};

struct Read {
  std::vector<std::string> texts;
  std::vector<std::uint64_t> serials;
  std::size_t end = 0;
  std::uint64_t last = 0;
};
const unsigned char* bytes_of(const std::string& text) { return reinterpret_cast<const unsigned char*>(text.data()); }
Read read(const std::string& file) {
  Read out;
  std::size_t count = 0;
  const std::unique_ptr<QueuedMessage, Free> list(durable::queued_messages(bytes_of(file), file.size(), &count, &out.end, &out.last));
  for (std::size_t i = 0; i < count; ++i) {
    const QueuedMessage& message = list.get()[i];
    out.texts.emplace_back(reinterpret_cast<const char*>(message.bytes), message.size);
    out.serials.push_back(message.serial);
    EXPECT_EQ(file.substr(message.at + sizeof(durable::QueueRecord), message.size), out.texts.back());
  }
  return out;
}
std::string record(std::uint16_t kind, std::uint64_t serial, const std::string& text = "", std::uint16_t protocol = 9728) {
  const durable::QueueRecord head = durable::queue_record(kind, protocol, serial, text.data(), static_cast<std::uint32_t>(text.size()));
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + text;
}
std::string message(std::uint64_t serial, const std::string& text) { return record(durable::kMessage, serial, text); }
std::string taken(std::uint64_t serial) { return record(durable::kTaken, serial); }
using Texts = std::vector<std::string>;

TEST(QueueFile, WhatNobodyHasTakenIsThereInOrder) {
  EXPECT_EQ(read("").texts, Texts{});
  EXPECT_EQ(read(message(1, "one") + message(2, "") + message(5, "five")).texts, (Texts{"one", "", "five"}));
  const Read some = read(message(1, "one") + message(2, "two") + taken(1) + message(3, "three"));
  EXPECT_EQ(some.texts, (Texts{"two", "three"}));
  EXPECT_EQ(some.serials, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(some.last, 3u);
  // All are taken: the next serial goes on all the same.
  const Read none = read(message(1, "one") + message(2, "two") + taken(7));
  EXPECT_EQ(none.texts, Texts{});
  EXPECT_EQ(none.last, 7u);
}

TEST(QueueFile, OfMessagesThatAreTheSameTheFirstStays) {
  const auto left = [](const std::vector<std::pair<std::string, std::uint16_t>>& texts) {
    std::vector<QueuedMessage> list;
    for (std::size_t i = 0; i < texts.size(); ++i) list.push_back({.serial = i + 1, .at = 0, .bytes = bytes_of(texts[i].first), .size = static_cast<std::uint32_t>(texts[i].first.size()), .protocol = texts[i].second});
    list.resize(durable::drop_repeated(list.data(), list.size()));
    std::vector<std::uint64_t> out;
    for (const QueuedMessage& one : list) out.push_back(one.serial);
    return out;
  };
  using Serials = std::vector<std::uint64_t>;
  EXPECT_EQ(left({}), Serials{});
  EXPECT_EQ(left({{"a", 1}}), Serials{1});
  EXPECT_EQ(left({{"end of 7", 1}, {"end of 8", 1}, {"start of 9", 1}, {"end of 7", 1}, {"end of 8", 1}, {"end of 9", 1}, {"end of 7", 1}}), (Serials{1, 2, 3, 6}));
  EXPECT_EQ(left({{"a", 1}, {"a", 2}, {"", 1}, {"", 1}, {"a", 2}, {"ab", 1}}), (Serials{1, 2, 3, 6})) << "of another Slurm it is another one";
  // Many restarts of a slurmctld with many jobs, beside what is new each time.
  std::vector<std::pair<std::string, std::uint16_t>> many;
  for (int start = 0; start < 20; ++start) {
    for (int job = 0; job < 1000; ++job) many.push_back({"end of " + std::to_string(job), 1});
    many.push_back({"step " + std::to_string(start), 1});
  }
  EXPECT_EQ(left(many).size(), 1020u);
}

TEST(QueueFile, ATornRecordAndWhatIsBehindItAreNotThere) {
  const std::string first = message(1, "one"), second = message(2, "two"), third = message(3, "three"), file = first + second + third;
  for (std::size_t size = 0; size <= file.size(); ++size) {
    const Read got = read(file.substr(0, size));
    const std::size_t whole = size < first.size() ? 0 : size < first.size() + second.size() ? 1 : size < file.size() ? 2 : 3;
    EXPECT_EQ(got.texts.size(), whole) << size;
    EXPECT_EQ(got.end, whole == 0 ? 0 : whole == 1 ? first.size() : whole == 2 ? first.size() + second.size() : file.size());
  }
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    EXPECT_EQ(read(damaged).texts.size(), at < first.size() ? 0u : at < first.size() + second.size() ? 1u : 2u) << at;
  }
  // A record of the past, behind one that was written over the beginning of a longer file.
  EXPECT_EQ(read(message(8, "new") + second).texts, Texts{"new"});
}

TEST(QueueFile, SlurmsOwnFileIsReadAsItIsWritten) {
  // As slurmctld 22.05 writes it: a length, the packed text VER9728 and the mark, and the same for each message.
  const std::string mark = "\x19\x32\xad\xde", version = std::string("\x0c\0\0\0", 4) + std::string("\0\0\0\x08VER9728\0", 12) + mark;
  const std::string file = version + std::string("\x03\0\0\0", 4) + "one" + mark + std::string("\x05\0\0\0", 4) + "three" + mark;
  const auto texts = [](const std::string& of) {
    std::size_t count = 0;
    const std::unique_ptr<QueuedMessage, Free> list(durable::slurms_messages(bytes_of(of), of.size(), &count));
    Texts out;
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(list.get()[i].protocol, 9728);
      EXPECT_EQ(list.get()[i].serial, i + 1);
      out.emplace_back(reinterpret_cast<const char*>(list.get()[i].bytes), list.get()[i].size);
    }
    return out;
  };
  EXPECT_EQ(texts(file), (Texts{"one", "three"}));
  EXPECT_EQ(texts(file.substr(0, file.size() - 1)), Texts{"one"});
  EXPECT_EQ(texts(""), Texts{});
  EXPECT_EQ(texts(file.substr(version.size())), Texts{});

  std::size_t count = 0, size = 0;
  const std::unique_ptr<QueuedMessage, Free> list(durable::slurms_messages(bytes_of(file), file.size(), &count));
  const std::unique_ptr<unsigned char, Free> written(durable::slurms_file(list.get(), count, 9728, &size));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(written.get()), size), file);
}

}  // namespace
}  // namespace fairlead::companion
