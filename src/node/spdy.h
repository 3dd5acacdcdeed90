// SPDX-License-Identifier: Apache-2.0
// SPDY/3.1 frames, as far as a kube-apiserver speaks them to a kubelet (exec, attach): it opens streams, both sides send data on them.
// Source: SPDY Protocol, draft 3.1 (chromium.org/spdy). No flow control: the Kubernetes side neither sends nor honours WINDOW_UPDATE
// (moby/spdystream), the session bounds what it holds by itself. No I/O here.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fairlead::node {

struct SpdyEvent {
  enum class Kind { Open, Data, Reset, Ping, GoAway } kind = Kind::Data;
  std::uint32_t stream = 0;                                  // of Ping: its number
  std::vector<std::pair<std::string, std::string>> headers;  // of Open; names in lower case
  std::string bytes;                                         // of Data: a piece, not always a whole frame
  bool last = false;                                         // the peer sends nothing more on this stream
};

// What comes from the peer. A frame may come in any pieces. Control frames are at most 64 KiB, a header block at most 64 KiB unpacked.
class SpdyReader {
 public:
  SpdyReader();
  ~SpdyReader();
  // Invalid: not SPDY/3; the connection is to be cut.
  Result<void> feed(std::string_view bytes, const std::function<void(SpdyEvent)>& each);

 private:
  struct Inflater;
  Result<void> control(std::string_view frame, const std::function<void(SpdyEvent)>& each);
  Result<std::vector<std::pair<std::string, std::string>>> headers(std::string_view packed);
  std::unique_ptr<Inflater> inflater_;
  std::string pending_;            // an unfinished head or control frame
  std::uint32_t data_stream_ = 0;  // of the data frame that is being read
  std::uint32_t data_left_ = 0;
  bool data_last_ = false;
};

// Frames to send. One per connection: headers are packed with the memory of earlier ones.
class SpdyWriter {
 public:
  SpdyWriter();
  ~SpdyWriter();
  std::string open(std::uint32_t stream, const std::vector<std::pair<std::string, std::string>>& headers, bool last);  // SYN_STREAM; for tests
  std::string reply(std::uint32_t stream);                                                                             // SYN_REPLY without headers
  static std::string data(std::uint32_t stream, std::string_view bytes, bool last);                                    // at most 16 MiB - 1
  static std::string reset(std::uint32_t stream, std::uint32_t status);
  static std::string ping(std::uint32_t number);
  static std::string go_away(std::uint32_t last_stream);

 private:
  struct Deflater;
  std::string pack(const std::vector<std::pair<std::string, std::string>>& headers);
  std::unique_ptr<Deflater> deflater_;
};

}  // namespace fairlead::node
