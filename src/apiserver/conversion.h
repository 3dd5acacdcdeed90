// SPDX-License-Identifier: Apache-2.0
// Conversion of a CRD's objects between its versions by a webhook (spec.conversion.strategy: Webhook): what a CRD may say of it, the ConversionReview v1 that is asked, and what of an answer is taken. The rules and
// words are those of kube-apiserver. Pure, but for the port `Converter`.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/validation.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// For one call, its connection included.
inline constexpr std::chrono::seconds conversion_limit{10};

// Where a CRD's webhook is.
struct ConversionHook {
  std::string url;                 // "https://host:port/path"; empty: a Service
  std::string space, name, path;   // of a Service
  unsigned short port = 443;       // of the Service, not of a pod
  std::string ca_pem;              // trusted, and nobody else; empty: the system's authorities
  friend bool operator==(const ConversionHook&, const ConversionHook&) = default;
};
// nullptr: versions differ in their names alone.
std::shared_ptr<const ConversionHook> hook_of(const kube::Json& crd);

void check_conversion(const kube::Json& conversion, FieldErrors& errors);

kube::Json conversion_review(const std::string& uid, const std::string& to, const std::vector<kube::Json>& objects);
// The objects as the webhook answered, in their order, with the metadata that they had: of an answer only labels and annotations are taken. Internal: it failed, or the answer is none to `uid`, leaves objects out, or
// gives others (version, kind, name, namespace, UID). All or nothing.
Result<std::vector<kube::Json>> converted_objects(const kube::Json& answer, const std::string& uid, const std::string& to, const std::vector<kube::Json>& objects);
// The beginning of all refusals: "conversion webhook for example.com/v1, Kind=Widget".
std::string conversion_title(const kube::Json& object);

// Thread-safe. Blocks up to conversion_limit.
class Converter {
 public:
  virtual ~Converter() = default;
  virtual Result<std::vector<kube::Json>> convert(const ConversionHook& hook, const std::string& to, const std::vector<kube::Json>& objects) const = 0;
};

}  // namespace fairlead::apiserver
