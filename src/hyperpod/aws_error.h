// SPDX-License-Identifier: Apache-2.0
// What an AWS client is told: a code that decides what it does, and a text for people. Sources: botocore's service model of SageMaker, docs.aws.amazon.com "Common error types".
#pragma once
#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace fairlead::hyperpod {

struct AwsError {
  std::string code;     // "ResourceNotFound"
  std::string message;
  int status = 400;
  friend bool operator==(const AwsError&, const AwsError&) = default;
};

template <class T>
struct [[nodiscard]] Answer : std::expected<T, AwsError> {
  using std::expected<T, AwsError>::expected;
};

inline std::unexpected<AwsError> refuse(std::string code, std::string message, int status = 400) { return std::unexpected(AwsError{std::move(code), std::move(message), status}); }
inline std::unexpected<AwsError> invalid(std::string message) { return refuse("ValidationException", std::move(message)); }
// What failed behind the face, as its callers know it: Conflict and Exists as ConflictException, NotFound as ResourceNotFound, Invalid as ValidationException, Exhausted as ThrottlingException, Unavailable as ServiceUnavailable (503), the rest as
// InternalFailure (500). `doing` goes in front of the text.
AwsError aws_error(const Error& error, std::string_view doing);

}  // namespace fairlead::hyperpod
