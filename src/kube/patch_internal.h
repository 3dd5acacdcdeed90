// SPDX-License-Identifier: Apache-2.0
// Shared by the patch kinds: members of one object while many are looked up, set and removed.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kube/json.h"

namespace fairlead::kube {

// Linear look-ups for few changes, an index for many: a large map under a large patch must not cost their product.
// Between construction and destruction nobody else may add or remove members.
class MemberEdit {
 public:
  MemberEdit(Json& object, std::size_t changes);
  ~MemberEdit();  // takes out what was erased
  MemberEdit(const MemberEdit&) = delete;
  MemberEdit& operator=(const MemberEdit&) = delete;
  Json* find(std::string_view key);
  void set(std::string_view key, Json value);  // replaces or appends
  void erase(std::string_view key);

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::size_t place(std::string_view key);
  Json::ObjectType& members_;
  std::optional<std::unordered_map<std::string, std::size_t>> index_;
  std::vector<bool> erased_;
  bool any_erased_ = false;
};

}  // namespace fairlead::kube
