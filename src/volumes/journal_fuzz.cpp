// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"
#include "kube/json.h"
#include "volumes/journal.h"
#include "volumes/plan/ledger.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto check = [](const std::vector<std::string>& texts) {
    volumes::Ledger ledger("p");
    for (const std::string& text : texts) {
      const auto json = kube::parse_json(text, {.depth_limit = 16});
      if (!json || !json->is_object() || !ledger.apply(*json)) return;
      volumes::Ledger again("p");
      const bool taken = again.apply(ledger.snapshot()).has_value();
      INVARIANT(taken && again.entries() == ledger.entries() && again.under_way() == ledger.under_way());
      for (const auto& [id, one] : ledger.entries()) INVARIANT(volumes::is_volume_id(id));
    }
  };
  if (const auto read = volumes::read_records(bytes)) {
    std::string whole;
    for (const std::string& text : read->texts) whole += volumes::frame_record(text);
    INVARIANT(whole.size() == read->good && bytes.substr(0, read->good) == whole);
    check(read->texts);
  }
  // The same as lines, so that what is inside records is tried, too.
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    lines.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  check(lines);
  return 0;
}
