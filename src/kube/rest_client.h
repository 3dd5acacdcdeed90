// SPDX-License-Identifier: Apache-2.0
// KubeApi over HTTP: any kube-apiserver, and our own from another process.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/client.h"
#include "kube/exec_plugin.h"
#include "kube/kube_api.h"

namespace fairlead::kube {

struct RestConfig {
  std::string server;       // "https://10.0.0.1:6443", with a path prefix where a proxy needs one
  std::string unix_socket;  // not empty: connects there without TLS; `server` may be empty
  std::string ca_pem;       // empty: the system's authorities
  std::string certificate_pem, key_pem;
  std::string certificate_file, key_file;  // where those came from, if from files: read again when they change
  std::string token;
  std::string token_file;   // used instead of `token`; read again when it changes
  std::optional<ExecPlugin> exec;  // used instead of token and certificate; its answer is kept until it runs out or is refused
  std::string proxy;        // "http://proxy:3128", by CONNECT; empty: straight
  std::string server_name;  // empty: the server's host
  std::string user_agent = "fairlead/" FAIRLEAD_VERSION;
  bool trust_any_server = false;  // insecure-skip-tls-verify
  std::chrono::milliseconds connect_timeout{5'000}, request_timeout{60'000};
  std::chrono::nanoseconds patience{30s};  // how long in all a request waits when the server puts it off
};

struct LogOptions {
  std::string container;  // empty: the only one
  bool follow = false, previous = false, timestamps = false;
  std::optional<std::int64_t> tail_lines, since_seconds, limit_bytes;
};
struct ExecOptions {
  std::string container;
  std::vector<std::string> command;
  bool in = false, out = true, err = true, tty = false;
};

// What the server puts off with Retry-After is repeated within `patience`: everything at 429 (it was not begun; a refused eviction is an
// answer and is not repeated), reads at 503 too. A 401 is tried once more with renewed credentials where they can be renewed.
class RestApi final : public KubeApi {
 public:
  // Invalid: not a URL, bad certificates. Connects only when something is asked.
  static Result<std::shared_ptr<RestApi>> make(RestConfig config);
  ~RestApi() override;

  Result<Json> get(const Resource& resource, const ObjectKey& key) override;
  Result<List> list(const Resource& resource, const std::string& space, const ListOptions& options = {}) override;
  Result<std::unique_ptr<Watch>> watch(const Resource& resource, const std::string& space, const WatchOptions& options) override;
  Result<Json> create(const Resource& resource, const Json& object) override;
  Result<Json> update(const Resource& resource, const Json& object) override;
  Result<Json> update_status(const Resource& resource, const Json& object) override;
  Result<Json> patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& subresource = "") override;
  Result<Json> apply(const Resource& resource, const Json& object, const ApplyOptions& options = {}) override;
  Result<Json> post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) override;
  Result<void> remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options = {}) override;
  Result<ExecResult> exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input,
                          std::chrono::milliseconds limit) override;

  // For the command line. `target` is an escaped path with its query ("/api/v1/pods?limit=500"), `accept` what to ask for (a Table). Errors as above.
  Result<std::string> get_raw(const std::string& target, const std::string& accept);
  // Any request with a body; an answer below 300, as text.
  Result<std::string> send_raw(const std::string& method, const std::string& target, const std::string& body, const std::string& content_type, const std::string& accept);
  // The same as a stream: a watch of Tables.
  Result<std::unique_ptr<http::BodyReader>> open_raw(const std::string& target, const std::string& accept);
  Result<std::unique_ptr<http::BodyReader>> open_log(const ObjectKey& pod, const LogOptions& options);
  // v5.channel.k8s.io or v4: the first byte of a message is its channel (0 stdin, 1 stdout, 2 stderr, 3 the closing Status, 4 resize); in v5
  // a message of 0xFF and a channel closes that channel.
  Result<std::unique_ptr<http::ClientWebSocket>> open_exec_websocket(const ObjectKey& pod, const ExecOptions& options);
  // The same for what the container itself reads and prints from now on; `command` is not used.
  Result<std::unique_ptr<http::ClientWebSocket>> open_attach_websocket(const ObjectKey& pod, const ExecOptions& options);

 private:
  struct State;
  Result<std::unique_ptr<http::ClientWebSocket>> open_channels(const ObjectKey& pod, const char* subresource, const ExecOptions& options);
  explicit RestApi(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct ServerUrl {
  std::string host, prefix;  // the prefix without a slash at its end
  unsigned short port = 0;
  bool tls = true;
};
// "https://[fd00::1]:6443/k8s". Invalid: with the reason.
Result<ServerUrl> parse_server(const std::string& text);

// The path of a collection, an object or its subresource: "/apis/apps/v1/namespaces/x/deployments/y/scale". Escaped.
std::string path_of(const Resource& resource, const std::string& space, const std::string& name = "", const std::string& subresource = "");

// What an HTTP answer of 400 and above means; `body` is a Status, or any text.
Error error_of(int http_status, const std::string& body);
// The same for a Status object (the ERROR event of a watch).
Error error_of_status(const Json& status, int http_status = 0);

// The exit code in the Status that ends an exec (channel 3). Unavailable: the command did not run, with the server's message.
Result<int> exit_code_of(const Json& status);

}  // namespace fairlead::kube
