// SPDX-License-Identifier: Apache-2.0
// An Inquiry answered: what the commands explain, eta, whatif, queue and quota tell, for who may not read what they read. Pure. docs/design/039-members-and-inquiries.md.
#pragma once
#include <optional>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::governance {

inline constexpr std::size_t largest_answer = 900 << 10;  // bytes; an object of an API is at most 1.5 MiB

// The objects as they are.
class InquiryObjects {
 public:
  virtual ~InquiryObjects() = default;
  virtual std::vector<kube::Json> all(const kube::Resource& resource) const = 0;
  virtual std::optional<kube::Json> one(const kube::Resource& resource, const kube::ObjectKey& key) const = 0;
};

bool answered(const kube::Json& inquiry);
// When it is to be deleted: so long after its answer; none: it has none.
std::optional<Instant> inquiry_ends(const kube::Json& inquiry);

// With the answer in its status, or why there is none. Of other namespaces it tells names, amounts and order, and nothing that stands in a pod.
kube::Json answer_inquiry(const kube::Json& inquiry, const InquiryObjects& objects, Instant now);
kube::Json refuse_inquiry(const kube::Json& inquiry, const char* reason, const std::string& why, Instant now);

// The kinds that answers need.
const std::vector<kube::Resource>& inquiry_kinds();

}  // namespace fairlead::governance
