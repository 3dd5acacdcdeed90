// SPDX-License-Identifier: GPL-3.0-or-later
// Cards of sets, intents and holds, and the head of job_state: any bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "card.h"
#include "job_state.h"

using namespace fairlead;
using namespace fairlead::companion;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto card = parse_card("set", text)) INVARIANT(*parse_card("set", print_card("set", *card)) == *card);
  // A checksum that fits is rarely guessed: also the text as lines of a card that is sound.
  Card made;
  made["value"] = std::string(text);
  INVARIANT(*parse_card("set", print_card("set", made)) == made);
  if (auto head = read_job_state(text)) {
    auto other = with_next_id(std::string(text), 7);
    INVARIANT(other && other->size() == size && read_job_state(*other)->next_id == 7 && read_job_state(*other)->saved_at == head->saved_at);
  }
  return 0;
}
