// SPDX-License-Identifier: Apache-2.0
// The bytes of an object at rest. Long parts that many objects have in common (what a manager owns of pods of one template) are in memory once, in a pool.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fairlead::apiserver {

// Shared and immutable; copying is cheap. Null: no value.
class Value {
 public:
  struct Insert {
    std::uint32_t at;  // where in `own` it belongs; ascending
    std::shared_ptr<const std::string> text;
  };
  // What is held: `own` with the inserts put in.
  struct Held {
    std::string own;
    std::vector<Insert> inserts;
    std::string join() const;
  };

  Value() = default;
  Value(std::nullptr_t) {}
  explicit Value(std::string bytes);
  explicit Value(std::shared_ptr<const Held> held) : held_(std::move(held)) {}

  explicit operator bool() const { return held_ != nullptr; }
  friend bool operator==(const Value& value, std::nullptr_t) { return value.held_ == nullptr; }
  // All of it in one piece; a copy is made only where parts are shared. Null of no value.
  std::shared_ptr<const std::string> bytes() const;
  std::size_t size() const;
  std::string_view head() const;  // what comes before the first shared part
  // Its parts in order, never joined; they live as long as this value.
  void pieces(std::vector<std::string_view>& out) const;
  const std::shared_ptr<const Held>& held() const { return held_; }

 private:
  std::shared_ptr<const Held> held_;
};

// Tells which parts of a value other values are likely to have, too: views into it, in order, not overlapping. Pure.
using CommonParts = std::function<void(std::string_view bytes, std::vector<std::string_view>& parts)>;

// One thread at a time.
class ValuePool {
 public:
  explicit ValuePool(CommonParts common) : common_(std::move(common)) {}
  Value pack(Value value);
  std::size_t size() const { return texts_.size(); }  // texts in use, and some that are not any more

 private:
  std::shared_ptr<const std::string> share(std::string_view text);
  void sweep();

  CommonParts common_;
  std::unordered_map<std::string_view, std::shared_ptr<const std::string>> texts_;  // the key is the text itself
  std::size_t sweep_at_ = 1'024;
  std::vector<std::string_view> parts_;
};

}  // namespace fairlead::apiserver
