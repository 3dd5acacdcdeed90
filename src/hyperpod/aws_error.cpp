// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/aws_error.h"

namespace fairlead::hyperpod {

AwsError aws_error(const Error& error, std::string_view doing) {
  std::string message(doing);
  if (!message.empty()) message += ": ";
  message += error.message;
  switch (error.code) {
    case Code::NotFound: return {"ResourceNotFound", std::move(message)};
    case Code::Exists:
    case Code::Conflict: return {"ConflictException", std::move(message)};
    case Code::Invalid: return {"ValidationException", std::move(message)};
    case Code::Exhausted: return {"ThrottlingException", std::move(message)};
    case Code::Unavailable:
    case Code::Expired: return {"ServiceUnavailable", std::move(message), 503};
    case Code::Forbidden:
    case Code::Unauthorized:
    case Code::Unsupported:
    case Code::Internal: break;
  }
  return {"InternalFailure", std::move(message), 500};
}

}  // namespace fairlead::hyperpod
