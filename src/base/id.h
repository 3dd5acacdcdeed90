// SPDX-License-Identifier: Apache-2.0
// A name that cannot be mistaken for another kind of name.
#pragma once
#include <compare>
#include <functional>
#include <string>

namespace fairlead {

template <class Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  friend auto operator<=>(const Id&, const Id&) = default;

 private:
  std::string text_;
};

}  // namespace fairlead

template <class Tag>
struct std::hash<fairlead::Id<Tag>> {
  std::size_t operator()(const fairlead::Id<Tag>& id) const noexcept { return std::hash<std::string>()(id.text()); }
};
