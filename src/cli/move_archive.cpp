// SPDX-License-Identifier: Apache-2.0
#include "cli/move_archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/encoding.h"
#include "base/files.h"
#include "kube/json.h"

namespace fairlead::cli {
namespace {

using kube::Json;

constexpr std::string_view kMagic = "fairlead-export 1\n";
constexpr std::size_t kRecord = 1 << 20, kPrefix = 5, kTag = 16;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

Result<std::string> key_of(const std::string& passphrase, const ArchiveHeader& header) {
  std::string key(32, '\0');
  if (EVP_PBE_scrypt(passphrase.data(), passphrase.size(), bytes_of(std::string_view(header.salt)), header.salt.size(), static_cast<std::uint64_t>(header.n), 8, 1, std::uint64_t{2} << 30, bytes_of(key), key.size()) != 1)
    return fail(Code::Internal, "no key could be made of the passphrase: is there enough memory?");
  return key;
}

std::string nonce_of(std::uint64_t number) {
  std::string out(12, '\0');
  for (int i = 0; i < 8; ++i) out[11 - static_cast<std::size_t>(i)] = static_cast<char>(number >> (8 * i));
  return out;
}

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

std::string sealed(const std::string& key, std::uint64_t number, const std::string& bound, const std::string& plain) {
  const Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  const std::string nonce = nonce_of(number);
  std::string out(plain.size() + kTag, '\0');
  int length = 0;
  INVARIANT(cipher && EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(std::string_view(key)), bytes_of(std::string_view(nonce))) == 1);
  INVARIANT(EVP_EncryptUpdate(cipher.get(), nullptr, &length, bytes_of(std::string_view(bound)), static_cast<int>(bound.size())) == 1);
  INVARIANT(EVP_EncryptUpdate(cipher.get(), bytes_of(out), &length, bytes_of(std::string_view(plain)), static_cast<int>(plain.size())) == 1);
  INVARIANT(EVP_EncryptFinal_ex(cipher.get(), bytes_of(out) + length, &length) == 1);
  INVARIANT(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTag, bytes_of(out) + plain.size()) == 1);
  return out;
}

bool unsealed(const std::string& key, std::uint64_t number, const std::string& bound, std::string& box, std::string& plain) {
  const Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  const std::string nonce = nonce_of(number);
  const std::size_t size = box.size() - kTag;
  plain.assign(size, '\0');
  int length = 0;
  return cipher && EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(std::string_view(key)), bytes_of(std::string_view(nonce))) == 1 &&
         EVP_DecryptUpdate(cipher.get(), nullptr, &length, bytes_of(std::string_view(bound)), static_cast<int>(bound.size())) == 1 &&
         EVP_DecryptUpdate(cipher.get(), bytes_of(plain), &length, bytes_of(std::string_view(box)), static_cast<int>(size)) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTag, bytes_of(box) + size) == 1 && EVP_DecryptFinal_ex(cipher.get(), bytes_of(plain) + length, &length) == 1;
}

std::string prefix_of(bool last, std::size_t size) {
  std::string out(1, last ? '\1' : '\0');
  for (int i = 3; i >= 0; --i) out += static_cast<char>(size >> (8 * i));
  return out;
}

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "write the archive");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Fewer at the end of the file.
Result<std::string> read_up_to(int fd, std::size_t count) {
  std::string out(count, '\0');
  std::size_t have = 0;
  while (have < count) {
    const ssize_t n = ::read(fd, out.data() + have, count - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read the archive");
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  out.resize(have);
  return out;
}

bool is_sum(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos; }
// What becomes an argument of a command or the name of an object.
bool is_word(std::string_view text) { return !text.empty() && text.size() <= 253 && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == text.npos && text[0] != '-' && text[0] != '.'; }

}  // namespace

std::string print_archive_header(const ArchiveHeader& header) {
  const Json json = Json::object({{"id", header.id}, {"cluster", header.cluster}, {"namespace", header.space}, {"time", header.time}, {"codeSha256", header.code_sum}, {"set", header.set}, {"slurm", header.slurm}, {"scryptN", header.n}, {"salt", base64(header.salt)}});
  return std::string(kMagic) + kube::print_json(json) + "\n";
}

Result<ArchiveHeader> parse_archive_header(std::string_view text, std::size_t& size) {
  if (!text.starts_with("fairlead-export ")) return fail(Code::Invalid, "this is no export of a Slurm cluster");
  if (!text.starts_with(kMagic)) return fail(Code::Invalid, "this export was made by a later version of Fairlead");
  const auto end = text.find('\n', kMagic.size());
  if (end == text.npos) return fail(Code::Invalid, "the header of the export is cut off");
  auto json = kube::parse_json(text.substr(kMagic.size(), end - kMagic.size()));
  if (!json) return pass(std::move(json.error()), "the header of the export");
  auto salt = parse_base64((*json)["salt"].string());
  ArchiveHeader out{.id = (*json)["id"].string(), .cluster = (*json)["cluster"].string(), .space = (*json)["namespace"].string(), .time = (*json)["time"].string(), .code_sum = (*json)["codeSha256"].string(),
                    .set = (*json)["set"].string(), .slurm = (*json)["slurm"].string(), .salt = salt ? *salt : "", .n = (*json)["scryptN"].integer()};
  if (!is_word(out.id) || !is_word(out.cluster) || !is_word(out.space) || !is_word(out.set) || !is_sum(out.code_sum)) return fail(Code::Invalid, "the header of the export is damaged");
  if (out.salt.size() < 16 || out.salt.size() > 64 || out.n < (1 << 14) || out.n > (1 << 20) || !std::has_single_bit(static_cast<std::uint64_t>(out.n))) return fail(Code::Invalid, "the header of the export is damaged: its key cannot be made");
  size = end + 1;
  return out;
}

Result<ArchiveWriter> ArchiveWriter::create(const std::string& path, const ArchiveHeader& header, const std::string& passphrase) {
  if (exists(path)) return fail(Code::Exists, path + " is there already: remove it, or name another file with --to");
  auto key = key_of(passphrase, header);
  if (!key) return std::unexpected(std::move(key.error()));
  Fd fd(::open((path + ".partial").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, "make " + path + ".partial");
  const std::string text = print_archive_header(header);
  if (auto written = write_all(fd.get(), text); !written) return std::unexpected(std::move(written.error()));
  return ArchiveWriter(path, std::move(fd), std::move(*key), sha256(text));
}

ArchiveWriter::~ArchiveWriter() {
  if (fd_) ::unlink((path_ + ".partial").c_str());
  if (!key_.empty()) OPENSSL_cleanse(key_.data(), key_.size());
}

Result<void> ArchiveWriter::seal(bool last) {
  const std::string prefix = prefix_of(last, waiting_.size());
  const std::string box = sealed(key_, number_++, bound_ + prefix, waiting_);
  waiting_.clear();
  return write_all(fd_.get(), prefix + box);
}

Result<void> ArchiveWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t some = std::min(bytes.size(), kRecord - waiting_.size());
    waiting_.append(bytes.substr(0, some));
    bytes.remove_prefix(some);
    if (waiting_.size() == kRecord)
      if (auto done = seal(false); !done) return done;
  }
  return {};
}

Result<void> ArchiveWriter::finish() {
  if (auto done = seal(true); !done) return done;
  if (::fsync(fd_.get()) != 0) return fail_errno(errno, "write " + path_);
  if (::rename((path_ + ".partial").c_str(), path_.c_str()) != 0) return fail_errno(errno, "rename to " + path_);
  fd_ = Fd();
  const auto slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
  const Fd at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!at || ::fsync(at.get()) != 0) return fail_errno(errno, "write " + folder);
  return {};
}

Result<ArchiveReader> ArchiveReader::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open " + path);
  auto text = read_up_to(fd.get(), kMaxArchiveHeader);
  if (!text) return std::unexpected(std::move(text.error()));
  std::size_t size = 0;
  auto header = parse_archive_header(*text, size);
  if (!header) return pass(std::move(header.error()), path);
  if (::lseek(fd.get(), static_cast<off_t>(size), SEEK_SET) < 0) return fail_errno(errno, "read " + path);
  return ArchiveReader(std::move(fd), std::move(*header), sha256(text->substr(0, size)));
}

Result<void> ArchiveReader::next() {
  auto prefix = read_up_to(fd_.get(), kPrefix);
  if (!prefix) return std::unexpected(std::move(prefix.error()));
  if (prefix->size() != kPrefix) return fail(Code::Invalid, "the export is cut off");
  std::size_t size = 0;
  for (std::size_t i = 1; i < kPrefix; ++i) size = size << 8 | static_cast<unsigned char>((*prefix)[i]);
  if (size > kRecord || static_cast<unsigned char>((*prefix)[0]) > 1) return fail(Code::Invalid, "the export is damaged");
  auto box = read_up_to(fd_.get(), size + kTag);
  if (!box) return std::unexpected(std::move(box.error()));
  if (box->size() != size + kTag) return fail(Code::Invalid, "the export is cut off");
  if (!unsealed(key_, number_, bound_ + *prefix, *box, open_)) return fail(Code::Invalid, "the export is damaged, or it was changed");
  last_ = (*prefix)[0] == '\1';
  ++number_;
  return {};
}

Result<void> ArchiveReader::unlock(const std::string& passphrase) {
  auto key = key_of(passphrase, header_);
  if (!key) return std::unexpected(std::move(key.error()));
  key_ = std::move(*key);
  if (auto first = next(); !first) return fail(Code::Forbidden, "the passphrase does not open the export, or its beginning was changed");
  return {};
}

Result<std::string> ArchiveReader::read(std::size_t most) {
  while (open_.empty()) {
    if (last_) {
      auto more = read_up_to(fd_.get(), 1);
      if (!more) return more;
      if (!more->empty()) return fail(Code::Invalid, "something follows the end of the export");
      return std::string();
    }
    if (auto done = next(); !done) return std::unexpected(std::move(done.error()));
  }
  std::string out = open_.substr(0, most);
  open_.erase(0, out.size());
  return out;
}

Result<std::string> ArchiveReader::read_all_of(std::size_t count) {
  std::string out;
  while (out.size() < count) {
    auto some = read(count - out.size());
    if (!some) return some;
    if (some->empty()) return fail(Code::Invalid, "the export is cut off");
    out += *some;
  }
  return out;
}

}  // namespace fairlead::cli
