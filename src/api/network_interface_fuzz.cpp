// SPDX-License-Identifier: Apache-2.0
#include "api/network_interface.h"
#include "base/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto orders = api::parse_interface_orders(text)) {
    for (const api::InterfaceOrder& one : *orders) {
      INVARIANT(api::is_interface_id(one.id) && !one.addresses.empty());
      // They become words of a command.
      for (const std::string& address : one.addresses) INVARIANT(address.find_first_not_of("0123456789abcdefABCDEF.:/") == std::string::npos);
      INVARIANT(one.link.find_first_of("/ \n") == std::string::npos && !one.link.starts_with('-') && one.mac.size() == 17);
    }
    const auto again = api::parse_interface_orders(api::print_interface_orders(*orders));
    INVARIANT(again && *again == *orders);
  }
  kube::Json node = kube::Json::object();
  node.child("metadata").child("annotations").set(api::kInterfacesStateNote, std::string(text));
  if (const auto states = api::read_interface_states(node)) {
    node.child("metadata").child("annotations").set(api::kInterfacesStateNote, api::print_interface_states(*states));
    const auto again = api::read_interface_states(node);
    INVARIANT(again && *again == *states);
  }
  return 0;
}
