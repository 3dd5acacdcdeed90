// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/smtp.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"

namespace fairlead::notify {
namespace {

constexpr std::size_t kLineLimit = 2048, kLinesLimit = 100;

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> out;
  for (auto& word : split(upper(line), ' '))
    if (!word.empty()) out.push_back(std::move(word));
  return out;
}

}  // namespace

std::string dot_stuffed(std::string_view message) {
  std::string out;
  bool line_begins = true;
  for (const char c : message) {
    if (line_begins && c == '.') out += '.';
    out += c;
    line_begins = c == '\n';
  }
  if (!line_begins) out += "\r\n";
  return out + ".\r\n";
}

SmtpDialogue::Next SmtpDialogue::say(std::string line, Wait wait) {
  out_ = std::move(line) + "\r\n";
  wait_ = wait;
  return next_ = Next::Write;
}

std::string SmtpDialogue::take_to_send() {
  next_ = wait_ == Wait::Over ? Next::Done : Next::Read;
  return std::exchange(out_, {});
}

void SmtpDialogue::tls_began() {
  secure_ = true;
  say("EHLO " + job_.helo, Wait::Ehlo);
}

Result<SmtpDialogue::Next> SmtpDialogue::receive(std::string_view bytes) {
  in_ += bytes;
  for (;;) {
    const std::size_t end = in_.find('\n');
    if (end == std::string::npos) {
      if (in_.size() > kLineLimit) return fail(Code::Unavailable, "the mail server sends a line without end");
      return next_ = Next::Read;
    }
    if (end > kLineLimit) return fail(Code::Unavailable, "the mail server sends a line without end");
    std::string line = in_.substr(0, end);
    in_.erase(0, end + 1);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const bool digits = line.size() >= 3 && std::all_of(line.begin(), line.begin() + 3, [](unsigned char c) { return std::isdigit(c); });
    if (!digits || line[0] < '2' || line[0] > '5' || (line.size() > 3 && line[3] != ' ' && line[3] != '-')) return fail(Code::Unavailable, "what answers is not a mail server");
    const int code = std::stoi(line.substr(0, 3));
    if (!reply_.lines.empty() && reply_.code != code) return fail(Code::Unavailable, "what answers is not a mail server");
    reply_.code = code;
    reply_.lines.push_back(line.size() > 4 ? line.substr(4) : "");
    if (reply_.lines.size() > kLinesLimit) return fail(Code::Unavailable, "the mail server sends a reply without end");
    if (line.size() > 3 && line[3] == '-') continue;
    const Reply whole = std::exchange(reply_, {});
    // Nothing was asked that could have an answer yet; before TLS this is how somebody in between slips answers in.
    if (!in_.empty()) return fail(Code::Unavailable, "the mail server answers before it is asked");
    return on_reply(whole);
  }
}

Result<SmtpDialogue::Next> SmtpDialogue::on_reply(const Reply& reply) {
  const auto refused = [&](const char* what) { return fail(reply.code >= 500 ? Code::Invalid : Code::Unavailable, fmt::format("the mail server refuses {} (status {})", what, reply.code)); };
  const int kind = reply.code / 100;
  switch (wait_) {
    case Wait::Greeting:
      if (kind != 2) return refused("to talk");
      return say("EHLO " + job_.helo, Wait::Ehlo);
    case Wait::Ehlo:
      if (kind != 2) return refused("EHLO");
      return after_ehlo(reply);
    case Wait::StartTls:
      if (reply.code != 220) return refused("STARTTLS");
      return next_ = Next::BeginTls;
    case Wait::AuthUser:
      if (reply.code != 334) return refused("the user name");
      return say(base64(job_.username), Wait::AuthPassword);
    case Wait::AuthPassword:
      if (reply.code != 334) return refused("the user name");
      return say(base64(job_.password), Wait::Auth);
    case Wait::Auth:
      if (reply.code != 235) return refused("user and password");
      return say(fmt::format("MAIL FROM:<{}>", job_.from), Wait::From);
    case Wait::From:
      if (kind != 2) return refused("the sender");
      return say(fmt::format("RCPT TO:<{}>", job_.to), Wait::To);
    case Wait::To:
      if (kind != 2) return refused("the recipient");
      return say("DATA", Wait::Data);
    case Wait::Data:
      if (reply.code != 354) return refused("DATA");
      out_ = dot_stuffed(job_.message);
      wait_ = Wait::Stored;
      return next_ = Next::Write;
    case Wait::Stored:
      if (kind != 2) return refused("the message");
      // Delivered: what becomes of QUIT does not matter.
      return say("QUIT", Wait::Over);
    case Wait::Over: return next_ = Next::Done;
  }
  return next_ = Next::Done;
}

Result<SmtpDialogue::Next> SmtpDialogue::after_ehlo(const Reply& reply) {
  bool tls = false, plain = false, login = false;
  for (std::size_t i = 1; i < reply.lines.size(); ++i) {
    const auto words = words_of(reply.lines[i]);
    if (words.empty()) continue;
    tls = tls || words[0] == "STARTTLS";
    if (words[0] != "AUTH") continue;
    plain = plain || std::find(words.begin(), words.end(), "PLAIN") != words.end();
    login = login || std::find(words.begin(), words.end(), "LOGIN") != words.end();
  }
  if (!secure_ && job_.start_tls) {
    if (!tls) return fail(Code::Invalid, "the mail server offers no STARTTLS; nothing is sent in the clear");
    return say("STARTTLS", Wait::StartTls);
  }
  if (!job_.username.empty()) {
    if (!secure_) return fail(Code::Invalid, "a password is never sent without TLS");
    if (plain) return say("AUTH PLAIN " + base64(std::string(1, '\0') + job_.username + std::string(1, '\0') + job_.password), Wait::Auth);
    if (login) return say("AUTH LOGIN", Wait::AuthUser);
    return fail(Code::Invalid, "the mail server offers neither AUTH PLAIN nor AUTH LOGIN");
  }
  return say(fmt::format("MAIL FROM:<{}>", job_.from), Wait::From);
}

}  // namespace fairlead::notify
