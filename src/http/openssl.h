// SPDX-License-Identifier: Apache-2.0
// Owners of OpenSSL's objects, and its memory files. Only for .cpp files: what they hold appears in no interface.
#pragma once
#include <openssl/bio.h>
#include <openssl/evp.h>

#include <memory>
#include <string>

namespace fairlead::http {

template <auto Free>
struct OpensslDeleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
// Owned<X509, X509_free>
template <class T, auto Free>
using Owned = std::unique_ptr<T, OpensslDeleter<Free>>;
using OwnedKey = Owned<EVP_PKEY, EVP_PKEY_free>;
using OwnedMemory = Owned<BIO, BIO_free_all>;

// Reads from `text`, which must outlive it.
inline OwnedMemory memory_of(const std::string& text) { return OwnedMemory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// SHA-256, in hex, of a public key as http/pki.h's fingerprint_of_key tells it.
std::string fingerprint(EVP_PKEY* key);

}  // namespace fairlead::http
