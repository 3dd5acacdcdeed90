// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/value.h"

#include <algorithm>
#include <limits>

namespace fairlead::apiserver {
namespace {

constexpr std::size_t worth_sharing = 128;  // below, the bookkeeping costs as much

}  // namespace

std::string Value::Held::join() const {
  std::size_t size = own.size();
  for (const Insert& insert : inserts) size += insert.text->size();
  std::string out;
  out.reserve(size);
  std::size_t from = 0;
  for (const Insert& insert : inserts) {
    out.append(own, from, insert.at - from).append(*insert.text);
    from = insert.at;
  }
  return out.append(own, from);
}

Value::Value(std::string bytes) : held_(std::make_shared<const Held>(Held{std::move(bytes), {}})) {}

std::shared_ptr<const std::string> Value::bytes() const {
  if (!held_) return nullptr;
  if (held_->inserts.empty()) return {held_, &held_->own};
  return std::make_shared<const std::string>(held_->join());
}

std::size_t Value::size() const {
  std::size_t out = 0;
  if (!held_) return out;
  for (const Insert& insert : held_->inserts) out += insert.text->size();
  return out + held_->own.size();
}

std::string_view Value::head() const {
  if (!held_) return {};
  const std::string_view own = held_->own;
  return held_->inserts.empty() ? own : own.substr(0, held_->inserts.front().at);
}

void Value::pieces(std::vector<std::string_view>& out) const {
  if (!held_) return;
  const std::string_view own = held_->own;
  std::size_t from = 0;
  for (const Insert& insert : held_->inserts) {
    out.push_back(own.substr(from, insert.at - from));
    out.push_back(*insert.text);
    from = insert.at;
  }
  out.push_back(own.substr(from));
}

Value ValuePool::pack(Value value) {
  if (!value || !common_ || !value.held()->inserts.empty()) return value;
  const std::string& whole = value.held()->own;
  parts_.clear();
  common_(whole, parts_);
  std::erase_if(parts_, [](std::string_view part) { return part.size() < worth_sharing; });
  if (parts_.empty() || whole.size() > std::numeric_limits<std::uint32_t>::max()) return value;
  Value::Held packed;
  std::size_t shared = 0;
  for (const std::string_view part : parts_) shared += part.size();
  packed.own.reserve(whole.size() - shared);
  packed.inserts.reserve(parts_.size());
  std::size_t from = 0;
  for (const std::string_view part : parts_) {
    const auto start = static_cast<std::size_t>(part.data() - whole.data());
    packed.own.append(whole, from, start - from);
    packed.inserts.push_back({static_cast<std::uint32_t>(packed.own.size()), share(part)});
    from = start + part.size();
  }
  packed.own.append(whole, from);
  return Value(std::make_shared<const Value::Held>(std::move(packed)));
}

std::shared_ptr<const std::string> ValuePool::share(std::string_view text) {
  if (const auto found = texts_.find(text); found != texts_.end()) return found->second;
  if (texts_.size() >= sweep_at_) sweep();
  auto made = std::make_shared<const std::string>(text);
  texts_.emplace(*made, made);
  return made;
}

// Texts that only the pool holds. Values get theirs from here alone, on this thread, so none of these can be taken up meanwhile.
void ValuePool::sweep() {
  std::erase_if(texts_, [](const auto& entry) { return entry.second.use_count() == 1; });
  sweep_at_ = std::max<std::size_t>(1'024, 2 * texts_.size());
}

}  // namespace fairlead::apiserver
