// SPDX-License-Identifier: Apache-2.0
// What a client shows of itself, kept fresh: token and certificate files that others renew, plug-ins asked again when what they gave runs out.
#pragma once
#include <sys/stat.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kube/exec_plugin.h"
#include "kube/rest_client.h"

namespace fairlead::kube {

// Thread-safe. A plug-in runs on the thread that needs its credentials, one at a time; others wait for it.
class CredentialSource {
 public:
  explicit CredentialSource(const RestConfig& config);
  struct Shown {
    std::string token, certificate_pem, key_pem;
    std::uint64_t generation = 0;             // of all of it: what a refusal is about
    std::uint64_t certificate_generation = 0;  // changes with the certificate alone: connections are made anew
  };
  // Errors: a file cannot be read (and never was), the plug-in fails.
  Result<Shown> get(Instant now);
  // The server has answered 401 to this generation. True: asking again may help (a newer one exists, or may be had).
  bool refused(std::uint64_t generation);

 private:
  struct File {
    std::string path;
    struct stat seen {};
    bool changed();  // since the last call
  };
  Result<void> read_files();
  Result<void> ask_plugin(Instant now);
  std::mutex mutex_;
  Shown shown_;
  File token_, certificate_, key_;
  std::optional<ExecPlugin> plugin_;
  std::optional<Instant> expires_;
  bool asked_ = false;  // the plug-in has given what is shown
  bool reread_ = false;
};

}  // namespace fairlead::kube
