// SPDX-License-Identifier: Apache-2.0
// Answers the names of headless services on the pods' bridge, by UDP and TCP, on one thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/result.h"
#include "kube/cache.h"
#include "kube/controller.h"
#include "node/plan/dns.h"

namespace fairlead::node {

class DnsServer {
 public:
  using Resolve = std::function<DnsAnswer(const DnsQuestion&)>;  // on the server's thread
  // port 0: any; see port(). Unavailable: the address is taken or not there.
  static Result<std::unique_ptr<DnsServer>> start(const std::string& address, unsigned short port, Resolve resolve);
  ~DnsServer();
  unsigned short port() const { return port_; }

 private:
  DnsServer(Fd udp, Fd tcp, Fd wake, unsigned short port, Resolve resolve);
  void serve();
  Fd udp_, tcp_, wake_;
  unsigned short port_;
  Resolve resolve_;
  std::jthread thread_;
};

// Has the caches of services and pods kept, and resolves from them.
class DnsController final : public kube::Controller {
 public:
  struct Book;  // the caches, once they are there; shared with the server
  explicit DnsController(std::shared_ptr<Book> book) : book_(std::move(book)) {}
  static std::shared_ptr<Book> make_book(std::string domain);
  static std::vector<kube::Json> services(const Book& book);  // all that are known by now
  static DnsAnswer resolve(Book& book, const DnsQuestion& question);  // any thread
  std::string name() const override { return "dns"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override;
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  std::shared_ptr<Book> book_;
};

}  // namespace fairlead::node
