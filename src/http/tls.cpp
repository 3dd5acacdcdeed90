// SPDX-License-Identifier: Apache-2.0
#include "http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <boost/asio/buffer.hpp>

#include "http/openssl.h"

namespace fairlead::http {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr unsigned char protocols[] = "\x08http/1.1";  // as ALPN writes a list of one

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size, void*) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, protocols, sizeof protocols - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// OpenSSL reads a certificate's extensions at its first use, which many connections would share. Here it does so while there is one thread.
void read_extensions_now(SSL_CTX* context) {
  const STACK_OF(X509_OBJECT)* const objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
  for (int i = 0; i < sk_X509_OBJECT_num(objects); ++i) {
    if (X509* const authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i))) X509_check_purpose(authority, -1, 0);
  }
  if (X509* const own = SSL_CTX_get0_certificate(context)) X509_check_purpose(own, -1, 0);
}

std::vector<std::string> name_entries(X509_NAME* name, int nid) {
  std::vector<std::string> out;
  for (int at = -1; (at = X509_NAME_get_index_by_NID(name, nid, at)) >= 0;) {
    unsigned char* text = nullptr;
    const int size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
    if (size < 0) continue;
    out.emplace_back(reinterpret_cast<char*>(text), static_cast<std::size_t>(size));
    OPENSSL_free(text);
  }
  return out;
}

}  // namespace

Result<ssl::context> make_server_tls(const TlsFiles& files) {
  ssl::context context(ssl::context::tls_server);
  SSL_CTX* const raw = context.native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  // No resumption: every connection proves its certificate anew.
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  error_code error;
  context.use_certificate_chain_file(files.certificate, error);
  if (error) return fail(Code::Invalid, fmt::format("certificate {}: {}", files.certificate, error.message()));
  context.use_private_key_file(files.key, ssl::context::pem, error);
  if (error) return fail(Code::Invalid, fmt::format("key {}: {}", files.key, error.message()));
  if (!files.client_ca.empty()) {
    context.load_verify_file(files.client_ca, error);
    if (error) return fail(Code::Invalid, fmt::format("client certificate authority {}: {}", files.client_ca, error.message()));
    SSL_CTX_set_client_CA_list(raw, SSL_load_client_CA_file(files.client_ca.c_str()));
    context.set_verify_mode(ssl::verify_peer);  // asked for; none shown is allowed
    if (files.strangers) context.set_verify_callback([](bool, ssl::verify_context&) { return true; });  // the verdict stays with the connection (read_peer_name)
  }
  read_extensions_now(raw);
  return context;
}

Result<std::shared_ptr<ssl::context>> make_client_tls(const ClientOptions& options) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  SSL_CTX* const raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_alpn_protos(raw, protocols, sizeof protocols - 1);
  context->set_verify_mode(options.trust_any_server || !options.server_key.empty() ? ssl::verify_none : ssl::verify_peer);
  error_code error;
  if (options.ca_pem.empty()) {
    context->set_default_verify_paths(error);
    if (error) return fail(Code::Internal, fmt::format("the system's certificate authorities: {}", error.message()));
  } else {
    context->add_certificate_authority(asio::buffer(options.ca_pem), error);
    if (error) return fail(Code::Invalid, fmt::format("certificate authority: {}", error.message()));
  }
  if (!options.certificate_pem.empty()) {
    context->use_certificate_chain(asio::buffer(options.certificate_pem), error);
    if (error) return fail(Code::Invalid, fmt::format("client certificate: {}", error.message()));
    context->use_private_key(asio::buffer(options.key_pem), ssl::context::pem, error);
    if (error) return fail(Code::Invalid, fmt::format("client key: {}", error.message()));
  }
  read_extensions_now(raw);
  return context;
}

Result<void> expect_server(SSL* tls, const std::string& name) {
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(tls);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, name.c_str()) == 1) return {};
  ERR_clear_error();
  // A name that were not taken down would not be checked.
  if (name.empty() || X509_VERIFY_PARAM_set1_host(wanted, name.data(), name.size()) != 1 || SSL_set_tlsext_host_name(tls, name.c_str()) != 1) {
    ERR_clear_error();
    return fail(Code::Invalid, fmt::format("\"{}\" is not the name of a server", name));
  }
  return {};
}

Result<void> check_server_key(SSL* tls, const std::string& wanted) {
  const Owned<X509, X509_free> certificate(SSL_get1_peer_certificate(tls));
  EVP_PKEY* const key = certificate ? X509_get0_pubkey(certificate.get()) : nullptr;
  if (key == nullptr) return fail(Code::Unavailable, "it showed no certificate");
  if (const std::string is = fingerprint(key); is != wanted) return fail(Code::Unavailable, fmt::format("its certificate has the key {} (SHA-256), and not the one that is trusted", is));
  return {};
}

void read_peer_name(SSL* tls, Peer& peer) {
  const Owned<X509, X509_free> certificate(SSL_get1_peer_certificate(tls));
  if (!certificate || SSL_get_verify_result(tls) != X509_V_OK) return;
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  auto names = name_entries(subject, NID_commonName);
  if (names.size() != 1) return;
  peer.common_name = std::move(names[0]);
  peer.organizations = name_entries(subject, NID_organizationName);
  if (EVP_PKEY* const key = X509_get0_pubkey(certificate.get())) peer.key = fingerprint(key);
}

}  // namespace fairlead::http
