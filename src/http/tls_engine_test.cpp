// SPDX-License-Identifier: Apache-2.0
#include "http/tls_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>

#include "base/rng.h"
#include "http/test_site.h"
#include "http/tls.h"

namespace fairlead::http {
namespace {

namespace asio = boost::asio;
using Want = TlsEngine::Want;

// A server's and a client's end of one line.
class TlsEngineTest : public testing::Test {
 protected:
  TlsEngineTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);  // blocking: the engine must not care
    server_fd_ = Fd(ends[0]);
    client_fd_ = Fd(ends[1]);
  }
  // Both take turns until neither wants anything or one fails.
  static std::pair<TlsEngine::Step, TlsEngine::Step> take_turns(const std::function<TlsEngine::Step()>& left, const std::function<TlsEngine::Step()>& right) {
    TlsEngine::Step a{.want = Want::Read, .error = {}}, b{.want = Want::Read, .error = {}};
    for (int turn = 0; turn < 100 && (a.want != Want::Nothing || b.want != Want::Nothing); ++turn) {
      if (a.want != Want::Nothing) a = left();
      if (b.want != Want::Nothing) b = right();
      if (a.error || b.error) break;
    }
    return {a, b};
  }
  void shake_hands() {
    const auto [a, b] = take_turns([&] { return server_.handshake(server_fd_.get(), asio::ssl::stream_base::server); },
                                   [&] { return client_.handshake(client_fd_.get(), asio::ssl::stream_base::client); });
    ASSERT_FALSE(a.error) << a.error.message();
    ASSERT_FALSE(b.error) << b.error.message();
    ASSERT_TRUE(a.want == Want::Nothing && b.want == Want::Nothing);
  }
  TlsEngine::Step read(std::string& into, std::size_t most = 64 << 10) {
    std::string piece(most, '\0');
    auto step = client_.read(client_fd_.get(), piece.data(), piece.size());
    into.append(piece, 0, step.bytes);
    return step;
  }

  TestSite site_;
  asio::ssl::context server_context_ = std::move(*make_server_tls(site_.files()));
  std::shared_ptr<asio::ssl::context> client_context_ = *make_client_tls(site_.options(0));
  TlsEngine server_{server_context_.native_handle()}, client_{client_context_->native_handle()};
  Fd server_fd_, client_fd_;
};

TEST_F(TlsEngineTest, BytesArriveWhateverTheSocketTakesAtATime) {
  shake_hands();
  Rng rng(1);
  std::string text(3 << 20, '\0'), got;
  for (char& c : text) c = static_cast<char>(rng.below(256));
  std::size_t sent = 0;
  bool was_full = false;
  while (got.size() < text.size()) {
    if (sent < text.size()) {
      const auto step = server_.write(server_fd_.get(), text.data() + sent, std::min<std::size_t>(text.size() - sent, 16 << 10));
      ASSERT_FALSE(step.error) << step.error.message();
      was_full = was_full || step.want == Want::Write;
      sent += step.bytes;
      if (step.want == Want::Nothing) continue;
    }
    const auto step = read(got, 1 + rng.below(50'000));
    ASSERT_FALSE(step.error) << step.error.message();
  }
  EXPECT_TRUE(was_full);
  EXPECT_EQ(got, text);
  EXPECT_EQ(read(got).want, Want::Read);
}

TEST_F(TlsEngineTest, AGoodbyeIsAnEnd) {
  shake_hands();
  std::string got;
  const auto [a, b] = take_turns([&] { return server_.shutdown(server_fd_.get()); },
                                 [&] {
                                   const auto step = read(got);
                                   return step.error == asio::error::eof ? client_.shutdown(client_fd_.get()) : step;
                                 });
  EXPECT_FALSE(a.error) << a.error.message();
  EXPECT_FALSE(b.error) << b.error.message();
  EXPECT_EQ(read(got).error, asio::error::eof);
}

TEST_F(TlsEngineTest, AnEndWithoutGoodbyeIsACut) {
  shake_hands();
  server_fd_.reset();
  std::string got;
  EXPECT_EQ(read(got).error, asio::ssl::error::stream_truncated);
}

TEST_F(TlsEngineTest, AWriteToAPeerThatIsGoneFailsAndKillsNobody) {
  shake_hands();
  client_fd_.reset();
  TlsEngine::Step step;
  for (int i = 0; i < 10 && !step.error; ++i) step = server_.write(server_fd_.get(), "x", 1);
  EXPECT_EQ(step.error.value(), EPIPE);
}

TEST_F(TlsEngineTest, AClosedSocketIsNotSomebodyElses) {
  shake_hands();
  EXPECT_EQ(server_.write(-1, "x", 1).error.value(), EBADF);
}

TEST_F(TlsEngineTest, NoiseIsRefused) {
  ASSERT_EQ(::send(client_fd_.get(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  const auto step = server_.handshake(server_fd_.get(), asio::ssl::stream_base::server);
  EXPECT_TRUE(step.error);
  EXPECT_EQ(step.want, Want::Nothing);
}

}  // namespace
}  // namespace fairlead::http
