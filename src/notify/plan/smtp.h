// SPDX-License-Identifier: Apache-2.0
// The client's side of one SMTP conversation (RFC 5321, 3207, 4954) without its socket: bytes in, what to do next out. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::notify {

struct SmtpJob {
  std::string helo = "localhost";     // our name
  std::string from, to;               // is_mail_address
  std::string message;                // with CRLF lines; dots are stuffed here
  bool start_tls = true;              // begin in the clear and refuse to go on without TLS
  bool secure = false;                // TLS from the start
  std::string username, password;     // empty: no AUTH. Never sent before TLS.
};

class SmtpDialogue {
 public:
  explicit SmtpDialogue(SmtpJob job) : job_(std::move(job)), secure_(job_.secure) {}

  enum class Next { Read, Write, BeginTls, Done };  // Write: to_send(), then ask again; BeginTls: shake hands, then tls_began()
  // Bytes from the server. Unavailable: it refuses for now or the conversation broke; Invalid: it refuses for good. Messages quote the server's status, never our credentials.
  Result<Next> receive(std::string_view bytes);
  Next next() const { return next_; }
  std::string take_to_send();
  void tls_began();

 private:
  enum class Wait { Greeting, Ehlo, StartTls, Auth, AuthUser, AuthPassword, From, To, Data, Stored, Over };
  struct Reply {
    int code = 0;
    std::vector<std::string> lines;
  };
  Result<Next> on_reply(const Reply& reply);
  Result<Next> after_ehlo(const Reply& reply);
  Next say(std::string line, Wait wait);

  SmtpJob job_;
  bool secure_;
  Wait wait_ = Wait::Greeting;
  Next next_ = Next::Read;
  std::string in_, out_;
  Reply reply_;
};

// RFC 5321 section 4.5.2: the text with its dots doubled at line beginnings and the final line of one dot.
std::string dot_stuffed(std::string_view message);

}  // namespace fairlead::notify
