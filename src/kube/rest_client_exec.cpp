// SPDX-License-Identifier: Apache-2.0
// A command in a container, from its start to its exit code, over the channels of a WebSocket.
#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "kube/rest_client.h"

namespace fairlead::kube {
namespace {

constexpr std::size_t output_limit = 1 << 20;
constexpr std::size_t input_piece = 32 << 10;
constexpr char stdin_channel = 0, stdout_channel = 1, stderr_channel = 2, status_channel = 3;

void send_input(http::ClientWebSocket& socket, std::string_view input) {
  while (!input.empty()) {
    std::string message(1, stdin_channel);
    message += input.substr(0, input_piece);
    input.remove_prefix(std::min(input.size(), input_piece));
    if (!socket.send(std::move(message))) return;  // receive() says why
  }
  (void)socket.send(std::string({'\xff', stdin_channel})).has_value();
}

}  // namespace

Result<ExecResult> RestApi::exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input,
                                 std::chrono::milliseconds limit) {
  const std::string doing = fmt::format("exec in {}", pod.text());
  auto opened = open_exec_websocket(pod, {.container = container, .command = command, .in = !input.empty()});
  if (!opened) return pass(std::move(opened.error()), doing);
  http::ClientWebSocket& socket = **opened;
  if (!input.empty() && socket.subprotocol() != "v5.channel.k8s.io") {
    // Without v5 nothing can say that the input has ended, and the command might wait for that for ever.
    return fail(Code::Unsupported, fmt::format("{}: the server speaks only {}, which cannot end a command's input", doing, socket.subprotocol()));
  }

  // One thread ends us when the time is up, one sends while we receive: a command may fill its output before it has read all its input.
  std::mutex mutex;
  std::condition_variable_any never;
  bool late = false;
  const std::jthread watchdog([&](std::stop_token stop) {
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, limit, [] { return false; });
    if (stop.stop_requested()) return;
    late = true;
    lock.unlock();
    socket.close();
  });
  std::jthread sender;
  if (!input.empty()) sender = std::jthread([&socket, &input] { send_input(socket, input); });

  ExecResult out;
  std::optional<Json> status;
  Error end{Code::Unavailable, "the connection ended without saying how the command ended"};
  while (!status) {
    auto message = socket.receive();
    if (!message) {
      end = std::move(message.error());
      break;
    }
    if (!message->has_value()) break;
    const std::string& bytes = **message;
    if (bytes.empty()) continue;
    const std::string_view content = std::string_view(bytes).substr(1);
    if (bytes[0] == stdout_channel || bytes[0] == stderr_channel) {
      std::string& into = bytes[0] == stdout_channel ? out.out : out.err;
      if (content.size() > output_limit - into.size()) {
        socket.close();
        return fail(Code::Unsupported, fmt::format("{}: the command wrote more than {} bytes", doing, output_limit));
      }
      into += content;
    }
    if (bytes[0] == status_channel) {
      auto value = parse_json(content);
      if (!value) {
        end = std::move(value.error());
        break;
      }
      status = std::move(*value);
    }
  }
  socket.close();
  if (!status) {
    const std::lock_guard lock(mutex);
    if (late) return fail(Code::Unavailable, fmt::format("{}: not finished within {} ms", doing, limit.count()));
    return fail(Code::Unavailable, fmt::format("{}: {}", doing, end.message));
  }
  const auto code = exit_code_of(*status);
  if (!code) return pass(code.error(), doing);
  out.exit_code = *code;
  return out;
}

}  // namespace fairlead::kube
