// SPDX-License-Identifier: Apache-2.0
// S3 over HTTP, as far as the AWS CLI and SDKs need it to bring lifecycle scripts and to look at them: objects of at most a MiB, by path (https://HOST/BUCKET/KEY). Source: docs.aws.amazon.com, "Amazon S3 REST API".
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/buckets.h"
#include "hyperpod/front.h"

namespace fairlead::hyperpod {

// "GetObject"; empty: none that is known.
std::string s3_operation(const http::Request& request);
// `error`: what it came to, for the audit.
http::Response answer_s3(const http::Request& request, const Call& call, const Buckets& buckets, std::optional<AwsError>& error);
// In the form of S3, codes by its names (SignatureDoesNotMatch, AccessDenied, NoSuchKey, ...).
http::Response s3_error(const AwsError& error, const std::string& resource, const std::string& request_id);

// The bytes of a body in chunks ("aws-chunked"), whose signature is that of the connection (STREAMING-UNSIGNED-PAYLOAD-TRAILER). Nothing: it is none.
std::optional<std::string> read_chunked(std::string_view body);

}  // namespace fairlead::hyperpod
