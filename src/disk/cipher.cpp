// SPDX-License-Identifier: Apache-2.0
#include "disk/cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace fairlead::disk {
namespace {

constexpr std::size_t kSector = 4096, kUnit = 512;

const unsigned char* bytes_of(const char* text) { return reinterpret_cast<const unsigned char*>(text); }

bool is_zero(const char* text) {
  // The first word says it nearly always.
  std::uint64_t word = 0;
  std::memcpy(&word, text, sizeof word);
  return word == 0 && std::all_of(text, text + kSector, [](char c) { return c == 0; });
}

// One for each thread and each way: setting the key up takes longer than a sector.
struct Context {
  EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
  std::uint64_t of = 0;
  ~Context() { EVP_CIPHER_CTX_free(cipher); }
};

}  // namespace

Result<std::unique_ptr<Cipher>> Cipher::make(std::string_view key) {
  if (key.size() != kKey || key.substr(0, kKey / 2) == key.substr(kKey / 2)) return fail(Code::Invalid, "the volume's key is none: 64 bytes are expected, in two different halves");
  std::unique_ptr<Cipher> out(new Cipher());
  (void)::mlock(out->key_, kKey);
  std::copy(key.begin(), key.end(), out->key_);
  return out;
}

Cipher::Cipher() : number_([] { static std::atomic<std::uint64_t> last = 0; return ++last; }()) {}
Cipher::~Cipher() { OPENSSL_cleanse(key_, kKey); }

bool Cipher::run(const char* from, char* into, std::size_t size, std::int64_t at, bool closes) const {
  thread_local Context contexts[2];
  Context& context = contexts[closes ? 1 : 0];
  if (context.of != number_) {
    if (context.cipher == nullptr || EVP_CipherInit_ex(context.cipher, EVP_aes_256_xts(), nullptr, bytes_of(key_), nullptr, closes ? 1 : 0) != 1) return false;
    context.of = number_;
  }
  for (std::size_t done = 0; done < size; done += kSector) {
    if (!closes && is_zero(from + done)) continue;
    unsigned char tweak[16] = {};
    const std::uint64_t number = (static_cast<std::uint64_t>(at) + done) / kUnit;
    for (int i = 0; i < 8; ++i) tweak[i] = static_cast<unsigned char>(number >> (8 * i));
    int length = 0;
    if (EVP_CipherInit_ex(context.cipher, nullptr, nullptr, nullptr, tweak, -1) != 1 || EVP_CipherUpdate(context.cipher, reinterpret_cast<unsigned char*>(into) + done, &length, bytes_of(from) + done, kSector) != 1 || length != static_cast<int>(kSector)) return false;
  }
  return true;
}

bool Cipher::close(const char* from, char* into, std::size_t size, std::int64_t at) const { return run(from, into, size, at, true); }
bool Cipher::open(char* text, std::size_t size, std::int64_t at) const { return run(text, text, size, at, false); }

}  // namespace fairlead::disk
