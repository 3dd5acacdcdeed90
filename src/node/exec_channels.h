// SPDX-License-Identifier: Apache-2.0
// The client's side of exec and attach: stdin, stdout, stderr, a closing status and terminal sizes, over a WebSocket with numbered channels
// (v4.channel.k8s.io, v5.channel.k8s.io) or over streams of SPDY/3.1, as kube-apiserver speaks to nodes (KEP-4006 leaves that leg as it was).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "http/server.h"
#include "kube/json.h"

namespace fairlead::node {

struct TerminalSize {
  unsigned short width = 0, height = 0;
};
// {"Width":80,"Height":24}
std::optional<TerminalSize> parse_terminal_size(std::string_view text);

// What the session asks for; the same names for exec and attach.
struct ExecChannelSet {
  bool in = false, out = true, err = true, terminal = false;
};

class ExecChannels {
 public:
  struct Listener {
    std::function<void(std::string_view bytes)> input;  // may block for a bounded time: that is the back-pressure
    std::function<void()> input_ends;
    std::function<void(TerminalSize)> resize;
    std::function<void()> gone;  // the client is; once
  };
  virtual ~ExecChannels() = default;
  // Callbacks come on a server thread, never two at once. False: the client did not open its channels in time.
  virtual bool start(Listener listener, const std::stop_token& stop) = 0;
  enum class Output { Out, Err };
  virtual void send(Output output, std::string_view bytes) = 0;
  virtual void finish(const kube::Json& status) = 0;  // ends the outputs and tells how it ended
  virtual std::size_t waiting() const = 0;            // bytes on their way to the client
  virtual bool open() const = 0;
  virtual void close() = 0;
};

// Answers the request's handshake. Invalid: it asks for neither, or for no version that is spoken here.
Result<std::shared_ptr<ExecChannels>> accept_channels(const http::Request& request, http::Exchange& exchange, const ExecChannelSet& wanted);

}  // namespace fairlead::node
