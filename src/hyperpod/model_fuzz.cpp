// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of any operation, strict and relaxed; as a page's token; as a model. The first byte chooses.
#include <cstdint>
#include <iterator>

#include "hyperpod/entity.h"
#include "hyperpod/model.h"
#include "hyperpod/paging.h"

using namespace fairlead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const hyperpod::Model strict = *hyperpod::Model::load_own(), relaxed = *hyperpod::Model::load_own(hyperpod::Names::Relaxed);
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 255) {
    (void)hyperpod::Model::load(text);
    return 0;
  }
  const auto json = kube::parse_json(text, {.depth_limit = 64});
  if (!json) return 0;
  const auto operation = std::next(strict.operations().begin(), data[0] % static_cast<int>(strict.operations().size()));
  const auto& shape = strict.shape(operation->second.input);
  const auto done = strict.check(shape, *json);
  // What holds strictly holds relaxed, but for names that are too long there.
  if (done && json->is_object()) {
    (void)relaxed.check(relaxed.shape(operation->second.input), *json);
    const auto known = hyperpod::only_known(strict, shape, *json);
    if (!strict.check(shape, known)) __builtin_trap();
    if (hyperpod::upper_names(hyperpod::lower_names(known)).is_null()) __builtin_trap();
    std::vector<hyperpod::Entry> entries(3);
    (void)hyperpod::page_of(entries, *json, [](const hyperpod::Entry&) { return kube::Json(); });
  }
  return 0;
}
