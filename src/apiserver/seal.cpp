// SPDX-License-Identifier: Apache-2.0
#include "apiserver/seal.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <memory>

#include "base/encoding.h"

namespace fairlead::apiserver {

namespace {

constexpr std::size_t tag_size = 16;
constexpr std::string_view box_mark = "\"},\"box\":\"";

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

std::string close_box(std::string_view key, std::string_view about, std::string_view plain, const std::string& nonce) {
  INVARIANT(key.size() == 32 && nonce.size() == kBoxNonce);
  std::string box = nonce;
  box.resize(kBoxNonce + plain.size() + tag_size);
  Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int length = 0;
  INVARIANT(cipher && EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key), bytes_of(std::string_view(nonce))) == 1);
  INVARIANT(EVP_EncryptUpdate(cipher.get(), nullptr, &length, bytes_of(about), static_cast<int>(about.size())) == 1);
  INVARIANT(EVP_EncryptUpdate(cipher.get(), bytes_of(box) + kBoxNonce, &length, bytes_of(plain), static_cast<int>(plain.size())) == 1);
  INVARIANT(EVP_EncryptFinal_ex(cipher.get(), bytes_of(box) + kBoxNonce + length, &length) == 1);
  INVARIANT(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, tag_size, bytes_of(box) + kBoxNonce + plain.size()) == 1);
  return box;
}

Result<std::string> open_box(std::string_view key, std::string_view about, std::string_view box) {
  INVARIANT(key.size() == 32);
  if (box.size() < kBoxNonce + tag_size) return fail(Code::Internal, "a box is cut off");
  std::string text(box.size() - kBoxNonce - tag_size, '\0');
  std::string tag(box.substr(box.size() - tag_size));
  Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int length = 0;
  const bool opened = cipher && EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key), bytes_of(box)) == 1 &&
                      EVP_DecryptUpdate(cipher.get(), nullptr, &length, bytes_of(about), static_cast<int>(about.size())) == 1 &&
                      EVP_DecryptUpdate(cipher.get(), bytes_of(text), &length, bytes_of(box.substr(kBoxNonce)), static_cast<int>(text.size())) == 1 &&
                      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, tag_size, bytes_of(tag)) == 1 && EVP_DecryptFinal_ex(cipher.get(), bytes_of(text) + length, &length) == 1;
  if (!opened) return fail(Code::Internal, "the key does not fit, or it was changed");
  return text;
}

Result<Seal> Seal::make(std::string key, std::function<std::string(std::size_t)> random) {
  if (key.size() != 32) return fail(Code::Invalid, fmt::format("the key for secrets must have 32 bytes, not {}", key.size()));
  return Seal(std::move(key), std::move(random));
}

Template Seal::close(const std::string& store_key, const Template& plain) const {
  // The length of `before` tells where the revision goes when the box is opened.
  const std::string text = fmt::format("{}\n{}{}", plain.before.size(), plain.before, plain.after);
  const std::string box = close_box(key_, store_key, text, random_(kBoxNonce));
  return {R"({"sealed":1,"metadata":{"resourceVersion":")", std::string(box_mark) + base64(box) + "\"}"};
}

Result<std::string> Seal::open(const std::string& store_key, std::string_view stored, Revision revision) const {
  const auto damaged = [&](std::string_view why) { return fail(Code::Internal, fmt::format("open the sealed object {}: {}", store_key, why)); };
  const auto mark = stored.find(box_mark);
  if (mark == std::string_view::npos || stored.size() < mark + box_mark.size() + 2) return damaged("it is not sealed");
  const auto start = mark + box_mark.size();
  auto box = parse_base64(stored.substr(start, stored.size() - start - 2));
  if (!box) return damaged("its box is damaged");
  auto opened = open_box(key_, store_key, *box);
  if (!opened) return damaged("the key does not fit, or it was changed");
  const std::string text = std::move(*opened);
  const auto line = text.find('\n');
  const std::size_t split = line == std::string::npos ? text.size() : std::strtoull(text.c_str(), nullptr, 10);
  if (line == std::string::npos || line + 1 + split > text.size()) return damaged("its text is damaged");
  Template plain{text.substr(line + 1, split), text.substr(line + 1 + split)};
  std::string out = plain.before;
  return out.append(std::to_string(revision)).append(plain.after);
}

}  // namespace fairlead::apiserver
