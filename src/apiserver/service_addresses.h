// SPDX-License-Identifier: Apache-2.0
// Which Service has which addresses and node ports. Kept in memory, filled from the store at start and by its events; an address that a write is about to use is held for it.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apiserver/node_ports.h"
#include "apiserver/validation.h"
#include "base/result.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// "10.79.0.0/16", "fd00:79::/112". Of wide ranges only the first 65 536 addresses are used; the first one is never given out.
class AddressRange {
 public:
  static Result<AddressRange> parse(const std::string& text);  // Invalid: malformed, bits set below the mask, fewer than 8 addresses
  bool six() const { return six_; }
  const std::string& text() const { return text_; }
  std::uint32_t size() const { return size_; }
  std::string at(std::uint32_t offset) const;
  std::optional<std::uint32_t> offset_of(const std::string& address) const;  // nothing: not an address of this range

 private:
  bool six_ = false;
  std::array<std::uint8_t, 16> base_{};
  std::uint32_t size_ = 0;
  std::string text_;
};

// The ranges of a site as its options name them: an IPv4 range, then perhaps an IPv6 one, in two texts or in one with a comma. Invalid: a sentence that says what is wrong.
Result<std::vector<std::string>> parse_service_ranges(const std::vector<std::string>& texts);

// Thread-safe.
class ServiceAddresses {
 public:
  // At most one range of each family; the first one's family is the default.
  static Result<std::unique_ptr<ServiceAddresses>> make(const std::vector<std::string>& ranges);
  // Fills in ipFamilies, clusterIP, clusterIPs and node ports of a service that is about to be written and holds them for its uid. `old`: the service as it is.
  void assign(kube::Json& service, const kube::Json* old, FieldErrors& errors);
  // What is stored under a key from now on; null: nothing. Holds its addresses and ports.
  void note(const std::string& key, const kube::Json* service);
  // A write of this new service came to nothing.
  void forget(const std::string& uid);
  std::size_t held() const;

 private:
  struct Pool {
    AddressRange range;
    std::uint32_t next = 0;
    std::map<std::uint32_t, std::string> holders;  // uid by offset
  };
  const Pool* pool_of(bool six) const;
  Pool* pool_of(bool six);
  void drop(const std::string& uid);
  std::optional<std::string> take(Pool& pool, const std::string& uid);

  mutable std::mutex mutex_;
  std::vector<Pool> pools_;
  NodePorts ports_;
  std::map<std::string, std::string> uids_;  // by key in the store
};

}  // namespace fairlead::apiserver
