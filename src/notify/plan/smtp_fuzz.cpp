// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/smtp.h"

// A mail server that says anything, in pieces of any size: the conversation ends, and the password never goes out before TLS.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  using notify::SmtpDialogue;
  if (size < 2) return 0;
  SmtpDialogue dialogue({.from = "a@example.com", .to = "b@example.com", .message = "Subject: x\r\n\r\n.\r\n", .start_tls = (data[0] & 1) != 0, .secure = (data[0] & 2) != 0, .username = "user", .password = "hidden"});
  bool secure = (data[0] & 2) != 0;
  const std::size_t piece = 1 + (data[0] >> 2);
  for (std::size_t at = 1; at < size; at += piece) {
    auto next = dialogue.receive({reinterpret_cast<const char*>(data + at), std::min(piece, size - at)});
    if (!next) {
      INVARIANT(next.error().message.find("hidden") == std::string::npos);
      return 0;
    }
    if (*next == SmtpDialogue::Next::BeginTls) {
      secure = true;
      dialogue.tls_began();
    }
    if (dialogue.next() == SmtpDialogue::Next::Write) {
      const std::string out = dialogue.take_to_send();
      INVARIANT(out.ends_with("\r\n"));
      INVARIANT(secure || (out.find("aGlkZGVu") == std::string::npos && !out.starts_with("AUTH")));
    }
    if (dialogue.next() == SmtpDialogue::Next::Done) return 0;
  }
  return 0;
}
