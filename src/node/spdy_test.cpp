// SPDX-License-Identifier: Apache-2.0
#include "node/spdy.h"

#include <gmock/gmock.h>

#include "base/encoding.h"

namespace fairlead::node {
namespace {
using testing::ElementsAre;
using testing::Pair;
using Kind = SpdyEvent::Kind;

// Reads in pieces of this size.
std::vector<SpdyEvent> read(std::string_view bytes, std::size_t piece, bool* refused = nullptr) {
  SpdyReader reader;
  std::vector<SpdyEvent> out;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    auto fine = reader.feed(bytes.substr(at, piece), [&](SpdyEvent event) { out.push_back(std::move(event)); });
    if (fine) continue;
    if (refused != nullptr) *refused = true;
    break;
  }
  return out;
}

TEST(Spdy, ReadsWhatItWritesInPiecesOfAnySize) {
  SpdyWriter writer;
  std::string bytes = writer.open(1, {{"streamtype", "error"}}, true);
  bytes += writer.open(3, {{"streamtype", "stdin"}}, false);  // packed with the memory of the first
  bytes += writer.reply(3) + SpdyWriter::data(3, "hello", false) + SpdyWriter::data(3, "", true) + SpdyWriter::ping(7) + SpdyWriter::reset(1, 5) +
           SpdyWriter::go_away(3);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{9}, bytes.size()}) {
    const auto events = read(bytes, piece);
    std::string hello;
    std::vector<std::string> story;
    for (const SpdyEvent& event : events) {
      if (event.kind == Kind::Data && !event.last) hello += event.bytes;
      if (event.kind == Kind::Open) story.push_back("open " + std::to_string(event.stream) + " " + event.headers.at(0).second);
      if (event.kind == Kind::Data && event.last) story.push_back("end " + std::to_string(event.stream));
      if (event.kind == Kind::Ping) story.push_back("ping " + std::to_string(event.stream));
      if (event.kind == Kind::Reset) story.push_back("reset " + std::to_string(event.stream));
      if (event.kind == Kind::GoAway) story.emplace_back("go away");
    }
    EXPECT_EQ(hello, "hello");
    EXPECT_THAT(story, ElementsAre("open 1 error", "open 3 stdin", "end 3", "ping 7", "reset 1", "go away")) << piece;
    EXPECT_TRUE(events.at(0).last);
    EXPECT_FALSE(events.at(1).last);
  }
}

// A frame that moby/spdystream 0.5.0 (what kube-apiserver is built with) wrote for the header streamType: error.
TEST(Spdy, ReadsWhatKubernetesWrites) {
  const auto bytes = parse_base64("gAMAAQAAACkAAAABAAAAAAAAePnjxqfCYmBgYASns5Ki1MRcaFHCmgoKaAAAAAD//w==");
  ASSERT_TRUE(bytes);
  const auto events = read(*bytes, bytes->size());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::Open);
  EXPECT_EQ(events[0].stream, 1U);
  EXPECT_THAT(events[0].headers, ElementsAre(Pair("streamtype", "error")));
}

TEST(Spdy, RefusesWhatIsNone) {
  SpdyWriter writer;
  const std::string open = writer.open(1, {{"a", "b"}}, false);
  std::string other_version = open, no_stream = open, garbled = open, huge = open;
  other_version[1] = 2;
  no_stream[11] = 0;
  for (std::size_t i = 18; i < garbled.size(); ++i) garbled[i] = static_cast<char>(0xFF);
  huge[5] = static_cast<char>(0xFF);
  for (const std::string& bytes : {other_version, no_stream, garbled, huge,
                                   std::string("\x80\x03\x00\x01\x00\x00\x00\x04"
                                               "abcd",
                                               12)}) {
    bool refused = false;
    EXPECT_TRUE(read(bytes, bytes.size(), &refused).empty());
    EXPECT_TRUE(refused) << hex(bytes);
  }
}

TEST(Spdy, HeadersThatUnpackToTooMuchAreRefused) {
  SpdyWriter writer;
  bool refused = false;
  (void)read(writer.open(1, {{"a", std::string(1 << 20, 'x')}}, false), 1 << 20, &refused);
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace fairlead::node
