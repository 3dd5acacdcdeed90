// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <thread>

#include "http/test_site.h"
#include "http/tls.h"
#include "http/wire.h"

namespace fairlead::http {
namespace {

namespace asio = boost::asio;
using Socket = asio::basic_stream_socket<asio::generic::stream_protocol, asio::io_context::executor_type>;

// A stream whose peer reads when it is told to, over a line that takes few bytes at a time.
class TlsStreamTest : public testing::Test {
 protected:
  TlsStreamTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const int little = 4608;
    ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    socket_.assign(asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
    socket_.non_blocking(true);
    peer_fd_ = Fd(ends[1]);
    std::thread client([this] {
      while (peer_.handshake(peer_fd_.get(), asio::ssl::stream_base::client).want != TlsEngine::Want::Nothing) wait_for_bytes();
    });
    boost::system::error_code error = asio::error::would_block;
    stream_.async_handshake(asio::ssl::stream_base::server, [&error](boost::system::error_code result) { error = result; });
    context_.run();
    context_.restart();
    client.join();
    EXPECT_FALSE(error) << error.message();
  }
  void wait_for_bytes() {
    pollfd readable{peer_fd_.get(), POLLIN, 0};
    ::poll(&readable, 1, 10'000);
  }
  std::string read_all(std::size_t size) {
    std::string got, piece(64 << 10, 0);
    while (got.size() < size) {
      const auto step = peer_.read(peer_fd_.get(), piece.data(), piece.size());
      if (step.error) return got + " error: " + step.error.message();
      got.append(piece, 0, step.bytes);
      if (step.want != TlsEngine::Want::Nothing) wait_for_bytes();
    }
    return got;
  }

  TestSite site_;
  asio::ssl::context server_context_ = std::move(*make_server_tls(site_.files()));
  std::shared_ptr<asio::ssl::context> client_context_ = *make_client_tls(site_.options(0));
  asio::io_context context_;
  Socket socket_{context_};
  TlsStream<Socket> stream_{socket_, server_context_};
  TlsEngine peer_{client_context_->native_handle()};
  Fd peer_fd_;
};

// The record that write_now begins holds more pieces than async_write, which takes it up, hands over at a time.
TEST_F(TlsStreamTest, ARecordThatWasBegunIsTakenUpWithFewerPiecesAtHand) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "piece " + std::to_string(i) + ";";
  for (const std::size_t piece : {5, 50, 700}) {
    std::vector<asio::const_buffer> buffers;
    for (std::size_t at = 0; at < text.size(); at += piece) buffers.push_back(asio::buffer(text.data() + at, std::min(piece, text.size() - at)));
    boost::system::error_code error;
    std::size_t sent = stream_.write_now(buffers, error);
    ASSERT_FALSE(error) << error.message();
    ASSERT_LT(sent, text.size());
    const std::string all = text;
    std::string got;
    std::thread client([&] { got = read_all(all.size()); });
    while (!buffers.empty() && sent >= buffers.front().size()) {
      sent -= buffers.front().size();
      buffers.erase(buffers.begin());
    }
    buffers.front() += sent;
    asio::async_write(stream_, buffers, [&error](boost::system::error_code result, std::size_t) { error = result; });
    context_.run();
    context_.restart();
    if (error) ::shutdown(socket_.native_handle(), SHUT_WR);  // else the peer waits
    client.join();
    EXPECT_FALSE(error) << error.message();
    EXPECT_EQ(got, all) << "pieces of " << piece;
  }
}

}  // namespace
}  // namespace fairlead::http
