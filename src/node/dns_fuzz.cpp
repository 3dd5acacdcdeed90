// SPDX-License-Identifier: Apache-2.0
#include "node/plan/dns.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::node;
  const std::string_view packet(reinterpret_cast<const char*>(data), size);
  const auto question = parse_dns_query(packet);
  if (!question) {
    INVARIANT(print_dns_error(packet).size() <= 12);
    return 0;
  }
  const DnsNames names{
      .domain = "cluster.local",
      .service = [](const std::string& space,
                    const std::string& name) { return DnsService{.space = space, .name = name, .selector = {{"a", "b"}}}; },
      .pods =
          [](const std::string& space) {
            return std::make_shared<const std::vector<DnsPod>>(40, DnsPod{.space = space, .name = "p", .addresses = {"10.0.0.1", "fd00::1"}, .labels = {{"a", "b"}}, .ready = true});
          }};
  const std::string answer = print_dns_answer(*question, resolve_name(*question, names), 512);
  INVARIANT(answer.size() <= 512 && answer.substr(0, 2) == packet.substr(0, 2));
  return 0;
}
