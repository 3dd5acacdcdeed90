// SPDX-License-Identifier: Apache-2.0
#include "apiserver/status.h"

#include <gmock/gmock.h>

namespace fairlead::apiserver {
namespace {

TEST(Status, MapsEachCodeToOneHttpStatusAndReason) {
  struct Row {
    Code code;
    int http;
    const char* reason;
  };
  for (const Row& row : {Row{Code::NotFound, 404, "NotFound"}, Row{Code::Exists, 409, "AlreadyExists"}, Row{Code::Conflict, 409, "Conflict"},
                         Row{Code::Invalid, 400, "BadRequest"}, Row{Code::Forbidden, 403, "Forbidden"}, Row{Code::Unauthorized, 401, "Unauthorized"},
                         Row{Code::Exhausted, 507, "InsufficientStorage"}, Row{Code::Expired, 410, "Expired"}, Row{Code::Unavailable, 503, "ServiceUnavailable"},
                         Row{Code::Unsupported, 501, "NotImplemented"}, Row{Code::Internal, 500, "InternalError"}}) {
    const Status status = status_of({row.code, "why"});
    EXPECT_EQ(status.code, row.http);
    EXPECT_EQ(status.reason, row.reason);
    EXPECT_EQ(to_json(status)["message"].string(), "why");
  }
}

TEST(Status, TakesAnInvalidObjectApartIntoCauses) {
  const Status status = status_of({Code::Invalid,
                                   "Pod \"x\" is invalid: [spec.containers[0].name: Required value, spec.containers[0].image: Invalid value: \"a, b\": must not hold spaces, or "
                                   "commas, metadata.name: Duplicate value: \"x\"]"});
  EXPECT_EQ(status.code, 422);
  EXPECT_EQ(status.details.kind, "Pod");
  EXPECT_EQ(status.details.name, "x");
  ASSERT_EQ(status.details.causes.size(), 3u);
  EXPECT_EQ(status.details.causes[0].field, "spec.containers[0].name");
  EXPECT_EQ(status.details.causes[0].reason, "FieldValueRequired");
  EXPECT_EQ(status.details.causes[1].message, "Invalid value: \"a, b\": must not hold spaces, or commas");
  EXPECT_EQ(status.details.causes[2].field, "metadata.name");
}

TEST(Status, KeepsAnInvalidMessageThatHasNoFieldForm) {
  const Status status = status_of({Code::Invalid, "Machine.fairlead.dev \"m\" is invalid: something else"});
  EXPECT_EQ(status.code, 422);
  EXPECT_EQ(status.details.kind, "Machine");
  EXPECT_TRUE(status.details.causes.empty());
}

TEST(Status, WarningsCannotBreakTheHeader) {
  http::Headers headers;
  add_warnings(headers, {"unknown field \"spec.x\"\r\nSet-Cookie: a"});
  EXPECT_EQ(headers.at(0).second, "299 - \"unknown field \\\"spec.x\\\"  Set-Cookie: a\"");
}

TEST(Status, ATerminatingNamespaceIsACause) {
  const Status status = status_of({Code::Forbidden, "configmaps \"c\" is forbidden: unable to create new content in namespace team because it is being terminated"});
  EXPECT_EQ(status.code, 403);
  ASSERT_EQ(status.details.causes.size(), 1u);
  EXPECT_EQ(status.details.causes[0].reason, "NamespaceTerminating");
  EXPECT_EQ(status.details.causes[0].message, "namespace team is being terminated");
  EXPECT_EQ(status.details.causes[0].field, "metadata.namespace");
  EXPECT_TRUE(status_of({Code::Forbidden, "pods is forbidden: User \"eve\" cannot list"}).details.causes.empty());
}

}  // namespace
}  // namespace fairlead::apiserver
