// SPDX-License-Identifier: Apache-2.0
// AWS's query protocol, as STS, IAM, SNS and CloudFormation speak it: parameters in a form or in the query, XML back. Source: smithy.io, "AWS query protocol".
#pragma once
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/aws_error.h"

namespace fairlead::hyperpod {

// The parameters of a POST's form or of a GET's query. SerializationException: not so encoded, or more than 1,000.
Answer<http::Query> read_form(const http::Request& request);
std::string xml_escape(std::string_view text);
std::string xml_element(std::string_view name, std::string_view text);  // with its text escaped
// `service`: "sts", "iam", "sns", "cloudformation", "ec2". `result`: what is inside of <ACTIONResult>.
http::Response query_answer(std::string_view service, std::string_view action, std::string_view result, const std::string& request_id);
// Codes by the names that this protocol has for them (InvalidClientTokenId, SignatureDoesNotMatch, AccessDenied, ...), and its statuses.
http::Response query_error(std::string_view service, const AwsError& error, const std::string& request_id);

}  // namespace fairlead::hyperpod
