// SPDX-License-Identifier: Apache-2.0
// Mail: the socket and the TLS around an SmtpDialogue. One message, one recipient, one deadline for all of it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstring>

#include "base/fd.h"
#include "http/openssl.h"
#include "notify/courier.h"
#include "notify/plan/permit.h"
#include "notify/plan/render.h"
#include "notify/plan/smtp.h"

namespace fairlead::notify {
namespace {

using http::Owned;
using OwnedContext = Owned<SSL_CTX, SSL_CTX_free>;
using OwnedTls = Owned<SSL, SSL_free>;
using OwnedCertificate = Owned<X509, X509_free>;

// A socket that does not block, with TLS or not, and the time by which all must be over.
class Line {
 public:
  explicit Line(std::chrono::nanoseconds limit) : deadline_(SystemClock().monotonic() + limit) {}

  Result<void> connect(const std::string& host, unsigned short port, Reach reach) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) return fail(Code::Unavailable, ::gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
    int last = ECONNREFUSED;
    Result<void> permitted;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      char digits[INET6_ADDRSTRLEN + 24] = "";
      ::getnameinfo(one->ai_addr, one->ai_addrlen, digits, sizeof digits, nullptr, 0, NI_NUMERICHOST);
      permitted = reach == Reach::AlsoLocal ? Result<void>() : may_connect(digits);
      if (!permitted) continue;
      fd_ = Fd(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!fd_) continue;
      if (::connect(fd_.get(), one->ai_addr, one->ai_addrlen) == 0) return {};
      if (errno != EINPROGRESS) {
        last = errno;
        continue;
      }
      if (auto ready = wait(POLLOUT); !ready) return ready;
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) return {};
      last = error;
    }
    if (!permitted) return permitted;
    return fail(Code::Unavailable, std::strerror(last));
  }

  Result<void> begin_tls(const std::string& host, const std::string& ca_pem) {
    context_.reset(::SSL_CTX_new(::TLS_client_method()));
    INVARIANT(context_);
    ::SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (ca_pem.empty()) {
      ::SSL_CTX_set_default_verify_paths(context_.get());
    } else {
      const auto memory = http::memory_of(ca_pem);
      int count = 0;
      while (const OwnedCertificate one{::PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)}) {
        ::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context_.get()), one.get());
        ++count;
      }
      ::ERR_clear_error();
      if (count == 0) return fail(Code::Invalid, "caSecret holds no certificate");
    }
    tls_.reset(::SSL_new(context_.get()));
    INVARIANT(tls_);
    in6_addr address;
    const bool number = ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
    const int named = number ? ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls_.get()), host.c_str()) : ::SSL_set1_host(tls_.get(), host.c_str());
    if (named != 1) return fail(Code::Invalid, "the server's name is none");
    if (!number) ::SSL_set_tlsext_host_name(tls_.get(), host.c_str());
    ::SSL_set_fd(tls_.get(), fd_.get());
    auto done = repeat([this] { return ::SSL_connect(tls_.get()); });
    if (!done) return std::unexpected(std::move(done.error()));
    return {};
  }

  Result<void> write(std::string_view bytes) {
    while (!bytes.empty()) {
      std::size_t wrote = 0;
      if (tls_) {
        auto done = repeat([&] { return ::SSL_write(tls_.get(), bytes.data(), static_cast<int>(std::min<std::size_t>(bytes.size(), 16 << 10))); });
        if (!done) return std::unexpected(std::move(done.error()));
        wrote = static_cast<std::size_t>(*done);
      } else {
        const auto n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return fail(Code::Unavailable, std::strerror(errno));
        if (n < 0) {
          if (auto ready = wait(POLLOUT); !ready) return ready;
          continue;
        }
        wrote = static_cast<std::size_t>(n);
      }
      bytes.remove_prefix(wrote);
    }
    return {};
  }

  Result<std::string> read() {
    char buffer[4096];
    if (tls_) {
      auto done = repeat([&] { return ::SSL_read(tls_.get(), buffer, sizeof buffer); });
      if (!done) return std::unexpected(std::move(done.error()));
      return std::string(buffer, static_cast<std::size_t>(*done));
    }
    for (;;) {
      const auto n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
      if (n > 0) return std::string(buffer, static_cast<std::size_t>(n));
      if (n == 0) return fail(Code::Unavailable, "the mail server ended the conversation");
      if (errno != EAGAIN && errno != EINTR) return fail(Code::Unavailable, std::strerror(errno));
      if (auto ready = wait(POLLIN); !ready) return std::unexpected(std::move(ready.error()));
    }
  }

 private:
  Result<void> wait(short what) {
    const auto left = deadline_ - SystemClock().monotonic();
    pollfd one{fd_.get(), what, 0};
    const int timeout = static_cast<int>(std::clamp<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count(), 0, 60'000));
    const int ready = timeout == 0 ? 0 : ::poll(&one, 1, timeout);
    if (ready == 0) return fail(Code::Unavailable, "no answer in time");
    return {};
  }

  template <class Call>
  Result<int> repeat(const Call& call) {
    for (;;) {
      ::ERR_clear_error();
      const int done = call();
      if (done > 0) return done;
      const int error = ::SSL_get_error(tls_.get(), done);
      if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        if (auto ready = wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT); !ready) return std::unexpected(std::move(ready.error()));
        continue;
      }
      if (const long verified = ::SSL_get_verify_result(tls_.get()); verified != X509_V_OK) return fail(Code::Invalid, fmt::format("the mail server's certificate: {}", ::X509_verify_cert_error_string(verified)));
      if (error == SSL_ERROR_ZERO_RETURN || error == SSL_ERROR_SYSCALL) return fail(Code::Unavailable, "the mail server ended the conversation");
      const char* const reason = ::ERR_reason_error_string(::ERR_peek_error());
      return fail(Code::Unavailable, fmt::format("TLS: {}", reason ? reason : "failed"));
    }
  }

  std::chrono::nanoseconds deadline_;
  Fd fd_;
  OwnedContext context_;
  OwnedTls tls_;  // freed before its context and the socket
};

std::string own_name() {
  utsname host{};
  std::string name = ::uname(&host) == 0 ? host.nodename : "";
  const bool fit = !name.empty() && name.size() < 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '.'; });
  return fit ? name : "localhost";
}

Result<void> talk(Line& line, SmtpDialogue& dialogue, const Parcel& parcel) {
  using Next = SmtpDialogue::Next;
  for (;;) {
    switch (dialogue.next()) {
      case Next::Write: {
        const std::string out = dialogue.take_to_send();
        auto wrote = line.write(out);
        // The last word is QUIT: by then the message is the server's.
        if (dialogue.next() == Next::Done) return {};
        if (!wrote) return wrote;
        break;
      }
      case Next::Read: {
        auto bytes = line.read();
        if (!bytes) return std::unexpected(std::move(bytes.error()));
        if (auto next = dialogue.receive(*bytes); !next) return std::unexpected(std::move(next.error()));
        break;
      }
      case Next::BeginTls:
        if (auto done = line.begin_tls(parcel.channel.server, parcel.secrets.ca_pem); !done) return done;
        dialogue.tls_began();
        break;
      case Next::Done: return {};
    }
  }
}

}  // namespace

Result<void> carry_by_smtp(const Parcel& parcel, Reach reach) {
  const Channel& channel = parcel.channel;
  INVARIANT(is_mail_address(parcel.recipient) && is_mail_address(channel.from));
  if (!channel.credentials.empty() && (parcel.secrets.username.empty() || parcel.secrets.password.empty())) return fail(Code::Invalid, "credentialsSecret: username or password is empty");
  const bool secure = channel.tls == Channel::Tls::Always;
  SmtpDialogue dialogue({.helo = own_name(),
                         .from = channel.from,
                         .to = parcel.recipient,
                         .message = render_mail(parcel.event, channel.from, parcel.recipient),
                         .start_tls = channel.tls == Channel::Tls::Start,
                         .secure = secure,
                         .username = parcel.secrets.username,
                         .password = parcel.secrets.password});
  const std::string at = fmt::format("{}:{}", channel.server, channel.port);
  Line line(channel.timeout);
  if (auto done = line.connect(channel.server, channel.port, reach); !done) return pass(std::move(done.error()), at);
  if (secure)
    if (auto done = line.begin_tls(channel.server, parcel.secrets.ca_pem); !done) return pass(std::move(done.error()), at);
  if (auto done = talk(line, dialogue, parcel); !done) return pass(std::move(done.error()), at);
  return {};
}

}  // namespace fairlead::notify
