// SPDX-License-Identifier: Apache-2.0
#include "node/exec_channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/encoding.h"
#include "base/log.h"
#include "node/spdy.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;

constexpr auto streams_timeout = 30s;  // as the kubelet's streamCreationTimeout

// Channels: 0 in, 1 out, 2 err, 3 status, 4 size; v5 adds 255: close a channel.
class WebSocketChannels final : public ExecChannels {
 public:
  WebSocketChannels(std::shared_ptr<http::WebSocket> socket, bool v5) : socket_(std::move(socket)), v5_(v5) {}
  bool start(Listener listener, const std::stop_token&) override {
    auto held = std::make_shared<Listener>(std::move(listener));
    socket_->start(
        [held, v5 = v5_](const std::string& message) {
          if (message.empty()) return;
          const auto channel = static_cast<unsigned char>(message[0]);
          const std::string_view rest = std::string_view(message).substr(1);
          if (channel == 0)
            held->input(rest);
          else if (channel == 4) {
            if (auto size = parse_terminal_size(rest)) held->resize(*size);
          } else if (channel == 255 && v5 && !rest.empty() && rest[0] == 0)
            held->input_ends();
        },
        [held] { held->gone(); });
    return true;
  }
  void send(Output output, std::string_view bytes) override {
    std::string message(1, output == Output::Out ? 1 : 2);
    message += bytes;
    socket_->send(std::move(message));
  }
  void finish(const Json& status) override { socket_->send("\x03" + kube::print_json(status)); }
  std::size_t waiting() const override { return socket_->waiting(); }
  bool open() const override { return socket_->open(); }
  void close() override { socket_->close(); }

 private:
  const std::shared_ptr<http::WebSocket> socket_;
  const bool v5_;
};

// The client opens one stream for each channel and names it in the header streamType.
class SpdyChannels final : public ExecChannels {
 public:
  SpdyChannels(std::shared_ptr<http::WebSocket> socket, const ExecChannelSet& wanted) : shared_(std::make_shared<Shared>()) {
    shared_->socket = std::move(socket);
    shared_->wanted = {{"error", 0}};
    if (wanted.in) shared_->wanted["stdin"] = 0;
    if (wanted.out) shared_->wanted["stdout"] = 0;
    if (wanted.err && !wanted.terminal) shared_->wanted["stderr"] = 0;
    if (wanted.terminal) shared_->wanted["resize"] = 0;
  }
  ~SpdyChannels() override { shared_->socket->close(); }

  bool start(Listener listener, const std::stop_token& stop) override {
    shared_->listener = std::move(listener);
    shared_->socket->start(
        [shared = std::weak_ptr(shared_)](const std::string& bytes) {
          if (const auto held = shared.lock()) held->receive(bytes);
        },
        [shared = std::weak_ptr(shared_)] {
          const auto held = shared.lock();
          if (!held) return;
          {
            const std::lock_guard lock(held->mutex);
            held->gone = true;
            held->changed.notify_all();
          }
          held->listener.gone();
        });
    std::unique_lock lock(shared_->mutex);
    const bool all = shared_->changed.wait_for(lock, stop, streams_timeout, [&] { return shared_->gone || shared_->complete(); });
    return all && !shared_->gone;
  }
  void send(Output output, std::string_view bytes) override {
    const std::uint32_t stream = shared_->stream_of(output == Output::Out ? "stdout" : "stderr");
    if (stream != 0) shared_->socket->send(SpdyWriter::data(stream, bytes, false));
  }
  void finish(const Json& status) override {
    for (const char* name : {"stdout", "stderr"})
      if (const std::uint32_t stream = shared_->stream_of(name); stream != 0) shared_->socket->send(SpdyWriter::data(stream, {}, true));
    if (const std::uint32_t stream = shared_->stream_of("error"); stream != 0)
      shared_->socket->send(SpdyWriter::data(stream, kube::print_json(status), true));
  }
  std::size_t waiting() const override { return shared_->socket->waiting(); }
  bool open() const override { return shared_->socket->open(); }
  void close() override {
    shared_->socket->send(SpdyWriter::go_away(shared_->last_stream()));
    shared_->socket->close();
  }

 private:
  struct Shared {
    std::shared_ptr<http::WebSocket> socket;
    Listener listener;
    std::mutex mutex;
    std::condition_variable_any changed;
    std::map<std::string, std::uint32_t> wanted;  // under mutex; name -> stream, 0: not open yet
    std::uint32_t last = 0;                       // under mutex
    bool gone = false;                            // under mutex
    // The rest belongs to the thread that receives.
    SpdyReader reader;
    SpdyWriter writer;
    std::string sizes;  // JSON values of the resize stream, in any pieces

    bool complete() const {
      return std::none_of(wanted.begin(), wanted.end(), [](const auto& item) { return item.second == 0; });
    }
    std::uint32_t stream_of(const std::string& name) {
      const std::lock_guard lock(mutex);
      const auto it = wanted.find(name);
      return it == wanted.end() ? 0 : it->second;
    }
    std::uint32_t last_stream() {
      const std::lock_guard lock(mutex);
      return last;
    }
    void receive(const std::string& bytes) {
      auto fine = reader.feed(bytes, [this](const SpdyEvent& event) { handle(event); });
      if (fine) return;
      log_warn("an exec connection was cut", {{"reason", fine.error().message}});
      socket->close();
    }
    void handle(const SpdyEvent& event) {
      switch (event.kind) {
        case SpdyEvent::Kind::Open:
          return opened(event);
        case SpdyEvent::Kind::Ping:
          if (event.stream % 2 == 1) socket->send(SpdyWriter::ping(event.stream));  // even ones would answer ours
          return;
        case SpdyEvent::Kind::GoAway:
          return;
        case SpdyEvent::Kind::Reset:
        case SpdyEvent::Kind::Data:
          break;
      }
      if (event.stream == 0) return;
      if (event.stream == stream_of("stdin")) {
        if (!event.bytes.empty()) listener.input(event.bytes);
        if (event.last) listener.input_ends();
      } else if (event.stream == stream_of("resize")) {
        resize(event.bytes);
      }
    }
    void opened(const SpdyEvent& event) {
      std::string type;
      for (const auto& [name, value] : event.headers)
        if (name == "streamtype") type = value;
      const std::unique_lock lock(mutex);
      const auto it = wanted.find(type);
      if (it == wanted.end() || it->second != 0) {
        socket->send(SpdyWriter::reset(event.stream, 3));  // REFUSED_STREAM
        return;
      }
      it->second = last = event.stream;
      socket->send(writer.reply(event.stream));
      changed.notify_all();
    }
    // {"Width":80,"Height":24} one after the other, without anything between them that is not white space.
    void resize(std::string_view bytes) {
      sizes += bytes;
      for (std::size_t close = 0; (close = sizes.find('}')) != std::string::npos; sizes.erase(0, close + 1))
        if (auto size = parse_terminal_size(trim(std::string_view(sizes).substr(0, close + 1)))) listener.resize(*size);
      if (sizes.size() > 4096) sizes.clear();
    }
  };
  const std::shared_ptr<Shared> shared_;
};

bool offers(const http::Headers& headers, std::string_view name, std::string_view protocol) {
  for (const auto& [key, value] : headers) {
    if (key.size() != name.size() ||
        !std::equal(key.begin(), key.end(), name.begin(), [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); }))
      continue;
    for (const std::string& one : split(value, ','))
      if (trim(one) == protocol) return true;
  }
  return false;
}

}  // namespace

std::optional<TerminalSize> parse_terminal_size(std::string_view text) {
  auto json = kube::parse_json(text);
  if (!json) return std::nullopt;
  const auto width = (*json)["Width"].integer(-1), height = (*json)["Height"].integer(-1);
  if (width < 1 || height < 1 || width > 65535 || height > 65535) return std::nullopt;
  return TerminalSize{.width = static_cast<unsigned short>(width), .height = static_cast<unsigned short>(height)};
}

Result<std::shared_ptr<ExecChannels>> accept_channels(const http::Request& request, http::Exchange& exchange, const ExecChannelSet& wanted) {
  constexpr const char *v4 = "v4.channel.k8s.io", *v5 = "v5.channel.k8s.io";
  const std::string_view upgrade = http::find(request.headers, "Upgrade");
  if (upgrade.starts_with("SPDY/") || upgrade.starts_with("spdy/")) {
    if (!offers(request.headers, "X-Stream-Protocol-Version", v4)) return fail(Code::Invalid, fmt::format("exec and attach speak {} over SPDY", v4));
    auto socket = exchange.accept_upgrade("SPDY/3.1", {{"X-Stream-Protocol-Version", v4}});
    if (!socket) return std::unexpected(std::move(socket.error()));
    return std::shared_ptr<ExecChannels>(std::make_shared<SpdyChannels>(std::move(*socket), wanted));
  }
  for (const char* protocol : {v5, v4}) {
    if (!offers(request.headers, "Sec-WebSocket-Protocol", protocol)) continue;
    auto socket = exchange.accept_websocket(protocol);
    if (!socket) return std::unexpected(std::move(socket.error()));
    return std::shared_ptr<ExecChannels>(std::make_shared<WebSocketChannels>(std::move(*socket), protocol == v5));
  }
  return fail(Code::Invalid, fmt::format("exec and attach speak {} and {} over WebSocket and {} over SPDY/3.1", v5, v4, v4));
}

}  // namespace fairlead::node
