// SPDX-License-Identifier: Apache-2.0
#include "base/box.h"

#include <openssl/evp.h>

#include <memory>

namespace fairlead {
namespace {

constexpr std::size_t tag_size = 16;

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

}  // namespace fairlead
