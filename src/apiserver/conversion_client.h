// SPDX-License-Identifier: Apache-2.0
// The webhook of a CRD by HTTPS.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "apiserver/conversion.h"

namespace fairlead::apiserver {

// Where a Service is answered: the address of a ready endpoint and its port. Unavailable: there is none.
struct Endpoint {
  std::string address;
  unsigned short port = 0;
};
using EndpointFinder = std::function<Result<Endpoint>(const std::string& space, const std::string& name, unsigned short port)>;

// Connections are kept. A Service's certificate must be for NAME.NAMESPACE.svc.
std::shared_ptr<const Converter> make_webhook_converter(EndpointFinder find, std::function<std::string()> new_uid);

}  // namespace fairlead::apiserver
