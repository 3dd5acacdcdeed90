// SPDX-License-Identifier: Apache-2.0
// Where a server is, read from text: apart from what connects, so that files which name servers are parsed (and fuzzed) without that.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kube/rest_client.h"

namespace fairlead::kube {

Result<ServerUrl> parse_server(const std::string& text) {
  const auto bad = [&](std::string_view why) { return fail(Code::Invalid, fmt::format("server \"{}\": {}", text, why)); };
  ServerUrl out;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
    out.tls = false;
  } else {
    return bad("must begin with https:// or http://");
  }
  const auto slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  out.prefix = std::string(rest.substr(slash));
  while (out.prefix.ends_with('/')) out.prefix.pop_back();
  if (authority.find('@') != std::string_view::npos) return bad("user names in it are not supported");
  std::string_view port;
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos) return bad("the bracket is not closed");
    out.host = std::string(authority.substr(1, end - 1));
    port = authority.substr(end + 1);
  } else {
    const auto colon = std::min(authority.find(':'), authority.size());
    out.host = std::string(authority.substr(0, colon));
    port = authority.substr(colon);
  }
  if (out.host.empty()) return bad("names no host");
  out.port = out.tls ? 443 : 80;
  if (!port.empty()) {
    if (port.front() != ':') return bad("the bracket is followed by something else than a port");
    port.remove_prefix(1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (error != std::errc() || end != port.data() + port.size() || out.port == 0) return bad("bad port");
  }
  return out;
}

}  // namespace fairlead::kube
