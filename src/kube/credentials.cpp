// SPDX-License-Identifier: Apache-2.0
#include "kube/credentials.h"

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"

namespace fairlead::kube {
namespace {
constexpr auto expiry_margin = 10s;  // a token is not used in its last moments: it must still be valid when the server reads it
}

CredentialSource::CredentialSource(const RestConfig& config) : plugin_(config.exec) {
  shown_ = {.token = config.token, .certificate_pem = config.certificate_pem, .key_pem = config.key_pem, .generation = 1, .certificate_generation = 1};
  token_.path = config.token_file;
  certificate_.path = config.certificate_file;
  key_.path = config.key_file;
}

bool CredentialSource::File::changed() {
  struct stat now {};
  if (path.empty() || ::stat(path.c_str(), &now) != 0) return false;
  const bool differs = now.st_ino != seen.st_ino || now.st_size != seen.st_size || now.st_mtim.tv_sec != seen.st_mtim.tv_sec || now.st_mtim.tv_nsec != seen.st_mtim.tv_nsec;
  seen = now;
  return differs;
}

Result<void> CredentialSource::read_files() {
  if (!token_.path.empty() && (token_.changed() || reread_ || shown_.token.empty())) {
    auto text = read_file(token_.path, 1_MiB);
    if (!text && shown_.token.empty()) return pass(std::move(text.error()), "token file");
    if (text && trim(*text) != shown_.token) {
      shown_.token = std::string(trim(*text));
      ++shown_.generation;
    }
  }
  reread_ = false;
  const bool certificate = certificate_.changed(), key = key_.changed();
  if (certificate || key) {
    auto new_certificate = certificate_.path.empty() ? Result<std::string>(shown_.certificate_pem) : read_file(certificate_.path, 1_MiB);
    auto new_key = key_.path.empty() ? Result<std::string>(shown_.key_pem) : read_file(key_.path, 1_MiB);
    if (!new_certificate || !new_key) return {};  // half renewed: the old pair goes on
    if (*new_certificate != shown_.certificate_pem || *new_key != shown_.key_pem) {
      shown_.certificate_pem = std::move(*new_certificate);
      shown_.key_pem = std::move(*new_key);
      ++shown_.generation;
      ++shown_.certificate_generation;
    }
  }
  return {};
}

Result<void> CredentialSource::ask_plugin(Instant now) {
  if (asked_ && !(expires_ && now + expiry_margin >= *expires_)) return {};
  auto got = run_exec_plugin(*plugin_);
  if (!got) return std::unexpected(std::move(got.error()));
  asked_ = true;
  expires_ = got->expires;
  if (got->certificate_pem != shown_.certificate_pem || got->key_pem != shown_.key_pem) ++shown_.certificate_generation;
  shown_.token = std::move(got->token);
  shown_.certificate_pem = std::move(got->certificate_pem);
  shown_.key_pem = std::move(got->key_pem);
  ++shown_.generation;
  log_debug("credentials renewed", {{"by", plugin_->command}});
  return {};
}

Result<CredentialSource::Shown> CredentialSource::get(Instant now) {
  const std::lock_guard lock(mutex_);
  if (plugin_) {
    if (auto done = ask_plugin(now); !done) return std::unexpected(std::move(done.error()));
  } else if (auto done = read_files(); !done) {
    return std::unexpected(std::move(done.error()));
  }
  return shown_;
}

bool CredentialSource::refused(std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (generation != shown_.generation) return true;  // renewed meanwhile
  if (plugin_) {
    asked_ = false;
    return true;
  }
  reread_ = !token_.path.empty();
  return reread_;
}

}  // namespace fairlead::kube
