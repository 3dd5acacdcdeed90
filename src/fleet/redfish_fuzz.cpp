// SPDX-License-Identifier: Apache-2.0
// What a board answers, whatever it is, becomes a value or an error; paths stay on that service.
#include <cstdlib>

#include "fleet/ipmi.h"
#include "fleet/redfish.h"

using namespace fairlead::fleet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto stays = [](const std::string& path) {
    if (path.size() < 2 || path[0] != '/' || path[1] == '/' || path.find_first_of(" \r\n\t#") != path.npos) std::abort();
  };
  if (const auto root = read_redfish_root(text)) stays(*root);
  if (const auto members = read_redfish_members(text))
    for (const std::string& member : *members) stays(member);
  if (const auto system = read_redfish_system(text)) {
    if (!system->reset.empty()) stays(system->reset);
    for (const PowerAction action : {PowerAction::On, PowerAction::ForceOff, PowerAction::GracefulShutdown, PowerAction::ForceRestart}) (void)redfish_reset_type(*system, action);
  }
  for (const char c : read_redfish_error(text))
    if (c < ' ' || c >= 0x7f) std::abort();
  (void)read_ipmi_status(text);
  return 0;
}
