// SPDX-License-Identifier: Apache-2.0
#include "api/join.h"

// What is accepted means the same when said again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::api;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::string& form : {std::string(text), "flj1." + std::string(text)})
    if (auto token = parse_join_token(form)) {
      auto again = parse_join_token(print_join_token(*token));
      INVARIANT(again && *again == *token);
    }
  if (auto request = parse_join_request(text)) {
    INVARIANT(request->name.find('/') == std::string::npos);
    auto again = parse_join_request(print_join_request(*request));
    INVARIANT(again && *again == *request);
  }
  if (auto answer = parse_join_answer(text)) {
    auto again = parse_join_answer(print_join_answer(*answer));
    INVARIANT(again && *again == *answer);
  }
  return 0;
}
