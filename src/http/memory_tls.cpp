// SPDX-License-Identifier: Apache-2.0
#include "http/memory_tls.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace fairlead::http {
namespace {

Result<Fd> hidden_file(const char* name, std::string_view text) {
  Fd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "make a file in memory");
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_errno(errno, "write a file in memory");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

}  // namespace

Result<std::unique_ptr<Server>> serve_with_certificate(ServerOptions options, const KeyPair& certificate, Handler handler, const std::string& client_ca_pem) {
  auto chain = hidden_file("server.crt", certificate.certificate_pem);
  if (!chain) return std::unexpected(std::move(chain.error()));
  auto key = hidden_file("server.key", certificate.key_pem);
  if (!key) return std::unexpected(std::move(key.error()));
  Result<Fd> authority = Fd();
  if (!client_ca_pem.empty()) authority = hidden_file("clients.crt", client_ca_pem);
  if (!authority) return std::unexpected(std::move(authority.error()));
  options.tls = TlsFiles{.certificate = fmt::format("/proc/self/fd/{}", chain->get()), .key = fmt::format("/proc/self/fd/{}", key->get()), .client_ca = client_ca_pem.empty() ? "" : fmt::format("/proc/self/fd/{}", authority->get()), .strangers = true};
  return Server::start(std::move(options), std::move(handler));
}

}  // namespace fairlead::http
