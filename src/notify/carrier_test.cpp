// SPDX-License-Identifier: Apache-2.0
// The carriers against real receivers on loopback: HTTPS that fails and then does not, SMTP with STARTTLS, and threads that carry aside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <future>

#include "base/encoding.h"
#include "http/openssl.h"
#include "http/socket.h"
#include "http/test_site.h"
#include "notify/courier.h"
#include "notify/plan/permit.h"
#include "notify/plan/preview.h"
#include "notify/plan/render.h"

namespace fairlead::notify {
namespace {

using testing::HasSubstr;
using testing::Not;

const Instant kNow = *parse_time("2026-03-04T05:06:07Z");

Parcel parcel_to(Channel channel, Secrets secrets = {}) {
  return {.topic = {"lab", "operators"}, .letter_uid = "n1", .target = channel.name, .of = {.name = "operators", .space = "lab", .generation = 1}, .channel = std::move(channel), .recipient = "ops@example.com", .event = test_event("lab", std::string(32, 'a'), kNow), .secrets = std::move(secrets)};
}
std::string why(const Result<void>& result) { return result ? "delivered" : result.error().message; }

class Hook {
 public:
  explicit Hook(const http::TestSite* site, std::vector<int> answers) : answers_(std::move(answers)) {
    http::ServerOptions options;
    if (site) options.tls = site->files();
    auto made = http::Server::start(std::move(options), [this](http::Request request, std::shared_ptr<http::Exchange> exchange) {
      const std::lock_guard lock(mutex_);
      const int status = answers_[std::min(requests_.size(), answers_.size() - 1)];
      requests_.push_back(std::move(request));
      exchange->respond({.status = status, .headers = {{"Location", "https://elsewhere.example.com/"}}, .body = "a secret of the receiver"});
    });
    EXPECT_TRUE(made);
    server_ = std::move(*made);
  }
  unsigned short port() const { return server_->port(); }
  std::vector<http::Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::vector<int> answers_;
  std::vector<http::Request> requests_;
  std::unique_ptr<http::Server> server_;
};

TEST(HttpCarrier, RepeatsTheSameEventUntilItIsTaken) {
  http::TestSite site;
  Hook hook(&site, {503, 500, 204});
  const Parcel parcel = parcel_to({.name = "hook", .url = fmt::format("https://127.0.0.1:{}/hooks/T0PSECRET?x=1", hook.port()), .hmac = SecretKey{"s", "k"}}, {.hmac_key = "0123456789abcdef", .ca_pem = site.ca.certificate_pem});
  EXPECT_THAT(why(carry_by_http(parcel, kNow, Reach::AlsoLocal)), HasSubstr("answered 503"));
  EXPECT_THAT(why(carry_by_http(parcel, kNow, Reach::AlsoLocal)), Not(HasSubstr("secret")));
  EXPECT_EQ(why(carry_by_http(parcel, kNow, Reach::AlsoLocal)), "delivered");
  const auto requests = hook.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].body, requests[2].body);
  EXPECT_EQ(requests[2].method + " " + requests[2].target.path, "POST /hooks/T0PSECRET");
  const auto header = [&](const char* name) { return std::string(http::find(requests[2].headers, name)); };
  EXPECT_EQ(header("webhook-id"), parcel.event.id);
  EXPECT_EQ(header("webhook-signature"), webhook_signature("0123456789abcdef", parcel.event.id, header("webhook-timestamp"), requests[2].body));
}

TEST(HttpCarrier, TrustsNobodyElseAndFollowsNobody) {
  http::TestSite site, other;
  Hook hook(&site, {302});
  const std::string url = fmt::format("https://127.0.0.1:{}/T0PSECRET", hook.port());
  EXPECT_NE(why(carry_by_http(parcel_to({.name = "hook", .url = url}, {.ca_pem = other.ca.certificate_pem}), kNow, Reach::AlsoLocal)), "delivered");
  EXPECT_NE(why(carry_by_http(parcel_to({.name = "hook", .url = url}), kNow, Reach::AlsoLocal)), "delivered") << "the system's authorities do not know it";
  EXPECT_TRUE(hook.requests().empty());
  const std::string moved = why(carry_by_http(parcel_to({.name = "hook", .url = url}, {.ca_pem = site.ca.certificate_pem}), kNow, Reach::AlsoLocal));
  EXPECT_THAT(moved, HasSubstr("redirects are not followed"));
  EXPECT_THAT(moved, Not(HasSubstr("T0PSECRET")));
  EXPECT_THAT(why(carry_by_http(parcel_to({.name = "hook"}, {.url = "http://127.0.0.1:1/"}), kNow, Reach::AlsoLocal)), HasSubstr("insecureHTTP"));
  const std::string gone = why(carry_by_http(parcel_to({.name = "hook", .plain_http = true}, {.url = "http://127.0.0.1:1/T0PSECRET"}), kNow, Reach::AlsoLocal));
  EXPECT_THAT(gone, HasSubstr("127.0.0.1:1: "));
  EXPECT_THAT(gone, Not(HasSubstr("T0PSECRET")));
}

TEST(HttpCarrier, SnsOverPlainHttpWhereThatIsAskedFor) {
  Hook hook(nullptr, {200});
  EXPECT_EQ(why(carry_by_http(parcel_to({.name = "sns", .kind = Channel::Kind::Sns, .url = fmt::format("http://127.0.0.1:{}/", hook.port()), .plain_http = true}), kNow, Reach::AlsoLocal)), "delivered");
  EXPECT_EQ(http::find(hook.requests()[0].headers, "x-amz-sns-message-type"), "Notification");
}

// One conversation of a mail server: says its greeting, answers EHLO, offers and takes STARTTLS, then everything.
class MailServer {
 public:
  MailServer(const http::TestSite& site, bool start_tls, const char* on_rcpt = "250 ok") : start_tls_(start_tls), on_rcpt_(on_rcpt), listener_(*http::listen_tcp("127.0.0.1", 0)) {
    context_.reset(::SSL_CTX_new(::TLS_server_method()));
    const auto files = site.files();
    EXPECT_EQ(::SSL_CTX_use_certificate_file(context_.get(), files.certificate.c_str(), SSL_FILETYPE_PEM), 1);
    EXPECT_EQ(::SSL_CTX_use_PrivateKey_file(context_.get(), files.key.c_str(), SSL_FILETYPE_PEM), 1);
    thread_ = std::thread([this] { serve(); });
  }
  ~MailServer() {
    ::shutdown(listener_.fd.get(), SHUT_RDWR);
    thread_.join();
  }
  unsigned short port() const { return listener_.port; }
  std::string heard() {
    ::shutdown(listener_.fd.get(), SHUT_RDWR);
    return heard_.get_future().get();
  }

 private:
  void serve() {
    pollfd ready{listener_.fd.get(), POLLIN, 0};
    ::poll(&ready, 1, 20'000);
    const Fd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string all;
    if (fd) talk(fd.get(), all);
    heard_.set_value(all);
  }
  void talk(int fd, std::string& all) {
    http::Owned<SSL, SSL_free> tls;
    const auto say = [&](std::string_view text) { tls ? void(::SSL_write(tls.get(), text.data(), static_cast<int>(text.size()))) : void(::send(fd, text.data(), text.size(), MSG_NOSIGNAL)); };
    std::string in;
    bool data = false;
    say("220 mx.example.com ESMTP\r\n");
    for (;;) {
      const auto end = in.find("\r\n");
      if (end == std::string::npos) {
        char buffer[4096];
        const auto n = tls ? ::SSL_read(tls.get(), buffer, sizeof buffer) : static_cast<int>(::recv(fd, buffer, sizeof buffer, 0));
        if (n <= 0) return;
        in.append(buffer, static_cast<std::size_t>(n));
        continue;
      }
      const std::string line = in.substr(0, end);
      in.erase(0, end + 2);
      all += (tls ? "tls " : "") + line + "\n";
      if (data) {
        if (line == ".") data = false, say("250 stored\r\n");
      } else if (line.starts_with("EHLO")) {
        say(tls ? "250-mx\r\n250 AUTH PLAIN LOGIN\r\n" : start_tls_ ? "250-mx\r\n250 STARTTLS\r\n" : "250 mx\r\n");
      } else if (line == "STARTTLS") {
        say("220 go\r\n");
        tls.reset(::SSL_new(context_.get()));
        ::SSL_set_fd(tls.get(), fd);
        if (::SSL_accept(tls.get()) != 1) return;
      } else if (line.starts_with("AUTH PLAIN")) {
        say(line == "AUTH PLAIN " + base64(std::string("\0ops\0pa.ss", 10)) ? "235 in\r\n" : "535 no\r\n");
      } else if (line.starts_with("RCPT")) {
        say(std::string(on_rcpt_) + "\r\n");
      } else if (line == "DATA") {
        data = true;
        say("354 go\r\n");
      } else if (line == "QUIT") {
        say("221 bye\r\n");
        return;
      } else {
        say("250 ok\r\n");
      }
    }
  }
  const bool start_tls_;
  const char* const on_rcpt_;
  http::Listening listener_;
  http::Owned<SSL_CTX, SSL_CTX_free> context_;
  std::promise<std::string> heard_;
  std::thread thread_;
};

class MailCarrier : public testing::Test {
 protected:
  MailCarrier() { ::signal(SIGPIPE, SIG_IGN); }  // as fairlead-server does
  Channel channel(unsigned short port, Channel::Tls tls) const { return {.name = "mail", .kind = Channel::Kind::Email, .server = "127.0.0.1", .from = "fairlead@example.com", .port = port, .tls = tls, .to = {"ops@example.com"}}; }
  http::TestSite site_;
};

TEST_F(MailCarrier, GoesByStartTlsWithAPassword) {
  MailServer server(site_, true);
  Channel channel = this->channel(server.port(), Channel::Tls::Start);
  channel.credentials = "mail";
  EXPECT_EQ(why(carry_by_smtp(parcel_to(channel, {.ca_pem = site_.ca.certificate_pem, .username = "ops", .password = "pa.ss"}), Reach::AlsoLocal)), "delivered");
  const std::string heard = server.heard();
  EXPECT_THAT(heard, HasSubstr("\ntls RCPT TO:<ops@example.com>\n"));
  EXPECT_THAT(heard, HasSubstr("\ntls X-Fairlead-Event-Id: evt-aaaa"));
  EXPECT_THAT(heard, Not(HasSubstr("\nAUTH")));
}

TEST_F(MailCarrier, IsNotSentInTheClearNorToStrangers) {
  {
    MailServer server(site_, false);
    EXPECT_THAT(why(carry_by_smtp(parcel_to(channel(server.port(), Channel::Tls::Start), {.ca_pem = site_.ca.certificate_pem}), Reach::AlsoLocal)), HasSubstr("no STARTTLS"));
    EXPECT_THAT(server.heard(), Not(HasSubstr("MAIL")));
  }
  MailServer server(site_, true);
  const http::TestSite other;
  EXPECT_THAT(why(carry_by_smtp(parcel_to(channel(server.port(), Channel::Tls::Start), {.ca_pem = other.ca.certificate_pem}), Reach::AlsoLocal)), HasSubstr("certificate"));
  EXPECT_THAT(server.heard(), Not(HasSubstr("MAIL")));
}

TEST_F(MailCarrier, ARefusalIsToldWithItsStatus) {
  MailServer server(site_, false, "450 later ops@example.com");
  const auto done = carry_by_smtp(parcel_to(channel(server.port(), Channel::Tls::None)), Reach::AlsoLocal);
  EXPECT_THAT(why(done), HasSubstr("refuses the recipient (status 450)"));
  EXPECT_EQ(done.error().code, Code::Unavailable);
}

TEST(Permit, LeavesOutThisMachineAndItsLinks) {
  for (const char* address : {"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "febf::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
                              "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "", "localhost", "127.1", "0x7f.1"})
    EXPECT_THAT(why(may_connect(address)), HasSubstr("loopback or link-local")) << address;
  for (const char* address : {"192.0.2.1", "10.0.0.1", "169.253.255.255", "169.255.0.1", "126.255.255.255", "128.0.0.1", "223.255.255.255", "2001:db8::1", "fd00::1", "fec0::1", "::ffff:192.0.2.1", "64:ff9b::c000:201", "2002:c000:201::1", "fe00::1"})
    EXPECT_TRUE(may_connect(address)) << address;
}

TEST(HttpCarrier, DoesNotReachThisMachineUnlessTheSiteWants) {
  Hook hook(nullptr, {200});
  // By name as by number: what counts is the address that is connected to.
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1"}) {
    const Parcel parcel = parcel_to({.name = "hook", .url = fmt::format("http://{}:{}/", host, hook.port()), .plain_http = true});
    EXPECT_THAT(why(carry_by_http(parcel, kNow, Reach::World)), testing::AnyOf(HasSubstr("loopback or link-local"), HasSubstr("not found"))) << host;
  }
  EXPECT_TRUE(hook.requests().empty());
  EXPECT_EQ(why(carry_by_http(parcel_to({.name = "hook", .url = fmt::format("http://localhost:{}/", hook.port()), .plain_http = true}), kNow, Reach::AlsoLocal)), "delivered");
}

TEST_F(MailCarrier, DoesNotReachThisMachineUnlessTheSiteWants) {
  MailServer server(site_, true);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    Channel channel = this->channel(server.port(), Channel::Tls::Start);
    channel.server = host;
    EXPECT_THAT(why(carry_by_smtp(parcel_to(channel, {.ca_pem = site_.ca.certificate_pem}), Reach::World)), HasSubstr("loopback or link-local"));
  }
  EXPECT_EQ(server.heard(), "");
}

struct SlowCarrier final : Carrier {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  Result<void> carry(const Parcel& parcel) override {
    if (parcel.target.starts_with("dead")) gone.wait();
    return {};
  }
};

TEST(ThreadCourier, ADeadTargetHoldsUpNoOther) {
  auto carrier = std::make_unique<SlowCarrier>();
  SlowCarrier& slow = *carrier;
  std::mutex mutex;
  std::condition_variable changed;
  int told = 0;
  ThreadCourier courier(std::move(carrier), [&](const kube::ObjectKey&) {
    const std::lock_guard lock(mutex);
    ++told;
    changed.notify_all();
  });
  const auto wait_for = [&](int count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [&] { return told >= count; });
  };
  const kube::ObjectKey topic{"lab", "operators"};
  Parcel dead = parcel_to({.name = "dead"}), alive = parcel_to({.name = "alive"});
  ASSERT_TRUE(courier.send(dead));
  EXPECT_FALSE(courier.send(dead)) << "one at a time";
  ASSERT_TRUE(courier.send(alive));
  ASSERT_TRUE(wait_for(1));
  EXPECT_EQ(courier.take(topic).size(), 1u);
  EXPECT_EQ(courier.busy(topic), std::set<std::string>{"dead"});
  ASSERT_TRUE(courier.send(alive)) << "it is free again";
  ASSERT_TRUE(wait_for(2));
  slow.go.set_value();
  ASSERT_TRUE(wait_for(3));
  EXPECT_EQ(courier.take(topic).size(), 2u);
  EXPECT_TRUE(courier.busy(topic).empty());
}

TEST(ThreadCourier, OneNamespaceDoesNotHoldAllHands) {
  auto carrier = std::make_unique<SlowCarrier>();
  SlowCarrier& slow = *carrier;
  std::mutex mutex;
  std::condition_variable changed;
  std::multiset<std::string> told;
  ThreadCourier courier(std::move(carrier), [&](const kube::ObjectKey& topic) {
    const std::lock_guard lock(mutex);
    told.insert(topic.space);
    changed.notify_all();
  });
  const auto wait_for = [&](const char* space, std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [&] { return told.count(space) >= count; });
  };
  const auto send = [&](const char* space, const std::string& target) {
    Parcel parcel = parcel_to({.name = target});
    parcel.topic.space = space;
    return courier.send(std::move(parcel));
  };
  for (std::size_t i = 0; i < ThreadCourier::kHandsOfSpace; ++i) ASSERT_TRUE(send("tarpit", "dead" + std::to_string(i)));
  EXPECT_FALSE(send("tarpit", "one more")) << "its share is taken";
  ASSERT_TRUE(send("lab", "alive"));
  ASSERT_TRUE(wait_for("lab", 1));
  slow.go.set_value();
  ASSERT_TRUE(wait_for("tarpit", ThreadCourier::kHandsOfSpace));
  EXPECT_TRUE(send("tarpit", "one more")) << "and free again";
}

}  // namespace
}  // namespace fairlead::notify
