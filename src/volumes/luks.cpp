// SPDX-License-Identifier: Apache-2.0
#include "volumes/luks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/rng.h"
#include "kube/json.h"

namespace fairlead::volumes {
namespace {

using kube::Json;
using namespace std::chrono_literals;

constexpr auto limit = 30s;
constexpr std::size_t key_size = 64;
constexpr const char* token_type = "fairlead";

void cleanse(std::string& text) { OPENSSL_cleanse(text.data(), text.size()); }
struct Cleansed {
  std::string& text;
  ~Cleansed() { cleanse(text); }
};

// A file in memory alone.
Result<Fd> memory_with(std::string_view bytes) {
  Fd out(::memfd_create("key", MFD_CLOEXEC));
  if (!out || ::write(out.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) || ::lseek(out.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "make a file in memory");
  return out;
}

Result<std::string> call(Command command, std::string_view input) {
  // Its lock on a regular file is flock, which the volume's engine has as long as it serves; of one volume one operation after the other is the pool's to see to.
  command.argv.insert(command.argv.begin(), {"cryptsetup", "--disable-locks"});
  // What it prints is read: in whatever language the machine speaks, it would be another text.
  command.environment = std::map<std::string, std::string>{{"LC_ALL", "C"}, {"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}};
  auto done = run_checked(std::move(command), limit, input);
  if (!done && done.error().code == Code::NotFound) return fail(Code::Unavailable, "cryptsetup is not installed: encrypted volumes need it");
  if (!done) done.error().code = Code::Unavailable;
  return done;
}

std::string about(const std::string& uuid) { return "fairlead volume " + uuid; }

// Tokens of the header that are ours: the newest, and the numbers of the others, of which a death may have left one.
struct Token {
  int id = 0;
  std::string uuid;
  Wrapped wrapped;
  std::vector<int> others;
};
constexpr int most_tokens = 4;
Result<Token> newest_token(const std::string& file) {
  std::optional<Token> out;
  std::vector<int> others;
  Error last{Code::Internal, "there is no wrapped key in it"};
  for (int id = 0; id < most_tokens; ++id) {
    const auto text = call({.argv = {"token", "export", "--token-id", std::to_string(id), file}, .environment = {}, .working_directory = {}, .before_exec = {}}, "");
    if (!text) {
      // Which is the newest is not known if one cannot be read.
      if (text.error().message.find("Failed to get token") == std::string::npos) return std::unexpected(text.error());
      continue;
    }
    const auto token = kube::parse_json(*text, {.depth_limit = 8});
    if (!token || (*token)["type"].string() != token_type) continue;
    auto box = parse_base64((*token)["box"].string());
    if (!box) return fail(Code::Internal, "the wrapped key in it is damaged");
    Token one{.id = id, .uuid = (*token)["uuid"].string(), .wrapped = {.key = (*token)["key"].string(), .version = std::atoll((*token)["version"].string().c_str()), .box = std::move(*box)}, .others = {}};
    if (out && out->wrapped.version >= one.wrapped.version) {
      others.push_back(one.id);
      continue;
    }
    if (out) others.push_back(out->id);
    out = std::move(one);
  }
  if (!out) return std::unexpected(std::move(last));
  out->others = std::move(others);
  return std::move(*out);
}

Result<void> import_token(const std::string& file, const Wrapped& wrapped, const std::string& uuid) {
  const Json token = Json::object({{"type", token_type}, {"keyslots", Json::array({Json("0")})}, {"uuid", uuid}, {"key", wrapped.key}, {"version", std::to_string(wrapped.version)}, {"box", base64(wrapped.box)}});
  auto done = call({.argv = {"token", "import", "--json-file", "-", file}, .environment = {}, .working_directory = {}, .before_exec = {}}, kube::print_json(token));
  return done ? Result<void>() : Result<void>(pass(std::move(done.error()), "write the wrapped key of an encrypted volume"));
}

}  // namespace

Result<std::string> read_key_dump(std::string_view text) {
  const auto damaged = [] { return fail(Code::Internal, "cryptsetup does not tell the volume's key"); };
  auto at = text.find("MK dump:");
  if (at == text.npos) return damaged();
  std::string out;
  int high = -1;
  for (const char c : text.substr(at + 8)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) {
      if ((c != ' ' && c != '\t' && c != '\n') || high >= 0) return cleanse(out), damaged();
      continue;
    }
    if (high < 0) high = digit;
    else out.push_back(static_cast<char>(high * 16 + digit)), high = -1;
  }
  if (high >= 0 || out.size() != key_size) return cleanse(out), damaged();
  return out;
}

Result<void> format_luks(const std::string& file, const std::string& key, Keyring& keyring) {
  const std::string uuid = random_uuid();
  std::string volume_key = secret_bytes(key_size), secret = secret_bytes(32), passphrase = base64(secret);
  const Cleansed first{volume_key}, second{secret}, third{passphrase};
  auto wrapped = keyring.wrap(key, about(uuid), passphrase);
  if (!wrapped) return std::unexpected(std::move(wrapped.error()));
  auto memory = memory_with(volume_key);
  if (!memory) return std::unexpected(std::move(memory.error()));
  // The passphrase has 256 bits of chance: to make its use slow protects nothing.
  auto done = call({.argv = {"luksFormat", "--batch-mode", "--type", "luks2", "--cipher", "aes-xts-plain64", "--key-size", "512", "--sector-size", "4096", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--offset", std::to_string(kLuksHeader / 512), "--luks2-metadata-size", "16k",
                             "--luks2-keyslots-size", "512k", "--uuid", uuid, "--volume-key-file", "/dev/fd/3", "--key-file", "-", file},
                    .environment = {}, .working_directory = {}, .pass = {{memory->get(), 3}}, .before_exec = {}},
                   passphrase);
  if (!done) return pass(std::move(done.error()), "make the header of an encrypted volume");
  return import_token(file, *wrapped, uuid);
}

Result<std::string> open_luks(const std::string& file, const std::string& volume, Keyring& keyring) {
  auto token = newest_token(file);
  if (!token) return pass(std::move(token.error()), "read the header of an encrypted volume");
  if (auto may = keyring.may_serve(token->wrapped.key, volume); !may) return std::unexpected(std::move(may.error()));
  auto passphrase = keyring.unwrap(token->wrapped, about(token->uuid));
  if (!passphrase) return std::unexpected(std::move(passphrase.error()));
  const Cleansed first{*passphrase};
  auto dump = call({.argv = {"luksDump", "--dump-volume-key", "--batch-mode", "--key-file", "-", file}, .environment = {}, .working_directory = {}, .before_exec = {}}, *passphrase);
  if (!dump) return pass(std::move(dump.error()), "open an encrypted volume");
  const Cleansed second{*dump};
  return read_key_dump(*dump);
}

Result<std::int64_t> rewrap_luks(const std::string& file, Keyring& keyring) {
  auto token = newest_token(file);
  if (!token) return pass(std::move(token.error()), "read the header of an encrypted volume");
  const auto current = keyring.current(token->wrapped.key);
  if (!current) return std::unexpected(current.error());
  if (token->wrapped.version < *current) {
    auto passphrase = keyring.unwrap(token->wrapped, about(token->uuid));
    if (!passphrase) return std::unexpected(std::move(passphrase.error()));
    const Cleansed first{*passphrase};
    auto wrapped = keyring.wrap(token->wrapped.key, about(token->uuid), *passphrase);
    if (!wrapped) return std::unexpected(std::move(wrapped.error()));
    // The new one is there before the old one goes.
    if (auto done = import_token(file, *wrapped, token->uuid); !done) return std::unexpected(std::move(done.error()));
    token->wrapped.version = wrapped->version;
    token->others.push_back(token->id);
  }
  for (const int id : token->others)
    if (auto done = call({.argv = {"token", "remove", "--token-id", std::to_string(id), file}, .environment = {}, .working_directory = {}, .before_exec = {}}, ""); !done) return pass(std::move(done.error()), "take the older wrapped key of an encrypted volume away");
  return token->wrapped.version;
}

Result<void> erase_luks(const std::string& file) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno == ENOENT ? Result<void>() : fail_errno(errno, "open " + file);
  const std::string zeros(static_cast<std::size_t>(kLuksHeader), '\0');
  if (::pwrite(fd.get(), zeros.data(), zeros.size(), 0) != static_cast<ssize_t>(zeros.size()) || ::fsync(fd.get()) != 0) return fail_errno(errno, "erase the header of " + file);
  return {};
}

}  // namespace fairlead::volumes
