// SPDX-License-Identifier: Apache-2.0
// Which proxy leads to a server, as curl, Go and every cloud tool decide it: HTTPS_PROXY, HTTP_PROXY, NO_PROXY. Pure.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::http {

struct Proxy {
  std::string host;
  unsigned short port = 80;
  std::string authorization;  // value of Proxy-Authorization, or empty
};
// "http://user:password@host:3128", or "host:3128". Unsupported: other schemes (https, socks5). The password is never in a message.
Result<Proxy> parse_proxy(std::string_view url);

struct ProxySettings {
  std::string http, https, none;  // HTTP_PROXY, HTTPS_PROXY, NO_PROXY
};
// The proxy's URL; empty: straight. NO_PROXY is a list by comma: "*", names (with and without a leading dot), addresses, networks, each with an optional :port.
// This machine itself (localhost, loopback) is never reached by a proxy. The rules are those of golang.org/x/net/http/httpproxy.
std::string choose_proxy(const ProxySettings& settings, bool tls, std::string_view host, unsigned short port);

}  // namespace fairlead::http
