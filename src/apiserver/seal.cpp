// SPDX-License-Identifier: Apache-2.0
#include "apiserver/seal.h"

#include <fmt/format.h>

#include "base/encoding.h"

namespace fairlead::apiserver {

namespace {

constexpr std::string_view box_mark = "\"},\"box\":\"";

}  // namespace

Result<Seal> Seal::make(std::string key, std::function<std::string(std::size_t)> random) {
  if (key.size() != 32) return fail(Code::Invalid, fmt::format("the key for secrets must have 32 bytes, not {}", key.size()));
  return Seal(std::move(key), std::move(random));
}

Template Seal::close(const std::string& store_key, const Template& plain) const {
  // The length of `before` tells where the revision goes when the box is opened.
  const std::string text = fmt::format("{}\n{}{}", plain.before.size(), plain.before, plain.after);
  const std::string box = close_box(key_, store_key, text, random_(kBoxNonce));
  return {R"({"sealed":1,"metadata":{"resourceVersion":")", std::string(box_mark) + base64(box) + "\"}"};
}

Result<std::string> Seal::open(const std::string& store_key, std::string_view stored, Revision revision) const {
  const auto damaged = [&](std::string_view why) { return fail(Code::Internal, fmt::format("open the sealed object {}: {}", store_key, why)); };
  const auto mark = stored.find(box_mark);
  if (mark == std::string_view::npos || stored.size() < mark + box_mark.size() + 2) return damaged("it is not sealed");
  const auto start = mark + box_mark.size();
  auto box = parse_base64(stored.substr(start, stored.size() - start - 2));
  if (!box) return damaged("its box is damaged");
  auto opened = open_box(key_, store_key, *box);
  if (!opened) return damaged("the key does not fit, or it was changed");
  const std::string text = std::move(*opened);
  const auto line = text.find('\n');
  const std::size_t split = line == std::string::npos ? text.size() : std::strtoull(text.c_str(), nullptr, 10);
  if (line == std::string::npos || line + 1 + split > text.size()) return damaged("its text is damaged");
  Template plain{text.substr(line + 1, split), text.substr(line + 1 + split)};
  std::string out = plain.before;
  return out.append(std::to_string(revision)).append(plain.after);
}

}  // namespace fairlead::apiserver
