// SPDX-License-Identifier: Apache-2.0
#include "kube/selector.h"

#include <gmock/gmock.h>

namespace fairlead::kube {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Match {
  const char* selector;
  Labels labels;
  bool want;
};
TEST(LabelSelector, Matches) {
  const Labels web = {{"app", "web"}, {"tier", "1"}, {"empty", ""}};
  for (const auto& [selector, labels, want] : std::vector<Match>{{"", web, true},
                                                                 {" ", {}, true},
                                                                 {"app=web", web, true},
                                                                 {"app==web", web, true},
                                                                 {"app = db", web, false},
                                                                 {"app!=db", web, true},
                                                                 {"app!=web", web, false},
                                                                 {"absent!=x", web, true},
                                                                 {"absent=x", web, false},
                                                                 {"app", web, true},
                                                                 {"!app", web, false},
                                                                 {"!absent", web, true},
                                                                 {"app in (db, web)", web, true},
                                                                 {"app in (db)", web, false},
                                                                 {"app notin (db,cache)", web, true},
                                                                 {"absent notin (db)", web, true},
                                                                 {"absent in (db)", web, false},
                                                                 {"empty=", web, true},
                                                                 {"empty=,app", web, true},
                                                                 {"empty in ()", web, true},
                                                                 {"empty in (,x)", web, true},
                                                                 {"app in (,x)", web, false},
                                                                 {"tier>0,tier<2", web, true},
                                                                 {"tier>1", web, false},
                                                                 {"app>1", web, false},
                                                                 {"app=web,tier=1,!x,empty", web, true},
                                                                 {"app=web,tier=2", web, false},
                                                                 {"in=in,notin notin (in)", {{"in", "in"}}, true},
                                                                 {"example.com/role=a", {{"example.com/role", "a"}}, true}}) {
    const auto parsed = LabelSelector::parse(selector);
    ASSERT_TRUE(parsed) << selector << ": " << parsed.error().message;
    EXPECT_EQ(parsed->matches(labels), want) << selector;
    const auto again = LabelSelector::parse(parsed->text());
    ASSERT_TRUE(again) << parsed->text();
    EXPECT_EQ(again->text(), parsed->text());
    EXPECT_EQ(again->matches(labels), want) << parsed->text();
  }
  EXPECT_TRUE(LabelSelector::parse("")->empty());
  EXPECT_TRUE(LabelSelector::parse("a=1")->matches(Json::object({{"a", "1"}})));
  EXPECT_FALSE(LabelSelector::parse("a=1")->matches(Json()));
}

TEST(LabelSelector, SaysWhatIsWrong) {
  const auto wrong = [](std::string_view text) {
    const auto parsed = LabelSelector::parse(text);
    return parsed ? "accepted" : parsed.error().message;
  };
  EXPECT_EQ(wrong("a=b,"), "found '', expected: identifier after ','");
  EXPECT_EQ(wrong(",a"), "found ',', expected: !, identifier, or 'end of string'");
  EXPECT_EQ(wrong("a b"), "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
  EXPECT_EQ(wrong("a=b c"), "found 'c', expected: ',' or 'end of string'");
  EXPECT_EQ(wrong("a in b"), "unable to parse requirement: found 'b' expected: '('");
  EXPECT_EQ(wrong("a in (b"), "unable to parse requirement: found '', expected: ',' or ')'");
  EXPECT_EQ(wrong("a in (b c)"), "unable to parse requirement: found 'c', expected: ',' or ')'");
  EXPECT_EQ(wrong("a=("), "unable to parse requirement: found '(', expected: identifier");
  EXPECT_EQ(wrong("!"), "unable to parse requirement: found '', expected: identifier");
  EXPECT_THAT(wrong("-a"), HasSubstr("<nil>: Invalid value: \"-a\": name part must consist of"));
  EXPECT_THAT(wrong("a=b^"), HasSubstr("values[0][a]: Invalid value: \"b^\": a valid label must be"));
  EXPECT_THAT(wrong("a>x"), HasSubstr("the value must be an integer"));
  EXPECT_THAT(wrong("a in (" + std::string(64, 'x') + ")"), HasSubstr("must be no more than 63 characters"));
}

TEST(LabelSelector, FromObject) {
  const auto selector = [](std::string_view text) { return LabelSelector::from_object(*parse_json(text)); };
  const Labels web = {{"app", "web"}, {"tier", "1"}};
  EXPECT_TRUE(selector("{}")->matches(web));
  EXPECT_FALSE(selector("null")->matches(web));
  EXPECT_FALSE(selector("null")->matches(Labels{{"", ""}}));
  EXPECT_TRUE(selector(R"({"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"In","values":["1","2"]},{"key":"x","operator":"DoesNotExist"}]})")->matches(web));
  EXPECT_FALSE(selector(R"({"matchExpressions":[{"key":"tier","operator":"NotIn","values":["1"]}]})")->matches(web));
  EXPECT_TRUE(selector(R"({"matchExpressions":[{"key":"tier","operator":"Exists"}]})")->matches(web));
  EXPECT_EQ(selector(R"({"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]})").error().message, "\"Gt\" is not a valid label selector operator");
  EXPECT_THAT(selector(R"({"matchExpressions":[{"key":"a","operator":"In","values":[]}]})").error().message, HasSubstr("values set can't be empty"));
  EXPECT_THAT(selector(R"({"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]})").error().message, HasSubstr("values set must be empty"));
  EXPECT_FALSE(selector(R"({"matchLabels":{"a":1}})"));
  EXPECT_FALSE(selector("[]"));
}

TEST(FieldSelector, Matches) {
  const Json pod = *parse_json(R"({"metadata":{"name":"a","namespace":"s"},"spec":{"nodeName":"n1","hostNetwork":true,"priority":5},"status":{"phase":"Running"},"odd":"a,b=c\\d"})");
  for (const auto& [text, want] : std::vector<std::pair<const char*, bool>>{{"", true},
                                                                           {"metadata.name=a", true},
                                                                           {"metadata.name==a,metadata.namespace=s", true},
                                                                           {"metadata.name!=a", false},
                                                                           {"spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed", true},
                                                                           {"spec.nodeName=", false},
                                                                           {"spec.absent=", true},
                                                                           {"spec.absent!=x", true},
                                                                           {"spec.hostNetwork=true", true},
                                                                           {"spec.priority=5", true},
                                                                           {",metadata.name=a,,", true},
                                                                           {"odd=a\\,b\\=c\\\\d", true}}) {
    const auto parsed = FieldSelector::parse(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->matches(pod), want) << text;
  }
  EXPECT_EQ(FieldSelector::parse("a!=b")->terms()[0].field, "a");
  EXPECT_FALSE(FieldSelector::parse("a!=b")->terms()[0].equal);
}

TEST(FieldSelector, SaysWhatIsWrong) {
  EXPECT_EQ(FieldSelector::parse("a").error().message, "invalid selector: 'a'; can't understand 'a'");
  EXPECT_FALSE(FieldSelector::parse("a=b=c"));
  EXPECT_FALSE(FieldSelector::parse("a=\\x"));
  EXPECT_FALSE(FieldSelector::parse("a=b\\"));
}

TEST(Names, AreCheckedAsKubernetesDoes) {
  EXPECT_EQ(check_dns_label("my-name"), "");
  EXPECT_EQ(check_dns_label("0"), "");
  EXPECT_EQ(check_dns_label("a.b"), "must not contain dots");
  EXPECT_EQ(check_dns_label("A"),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
            "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')");
  EXPECT_EQ(check_dns_label(std::string(63, 'a')), "");
  EXPECT_EQ(check_dns_label(std::string(64, 'a')), "must be no more than 63 characters");
  EXPECT_NE(check_dns_label(""), "");
  EXPECT_NE(check_dns_label("-a"), "");
  EXPECT_NE(check_dns_label("a\n"), "");
  EXPECT_EQ(check_dns_subdomain("a.b-c.0"), "");
  EXPECT_THAT(check_dns_subdomain("a..b"), StartsWith("a lowercase RFC 1123 subdomain"));
  EXPECT_NE(check_dns_subdomain("a_b"), "");
  EXPECT_EQ(check_dns_subdomain(std::string(254, 'a')), "must be no more than 253 characters");
  EXPECT_EQ(check_label_key("Example_1.x-y"), "");
  EXPECT_EQ(check_label_key("example.com/Name"), "");
  EXPECT_THAT(check_label_key("/a"), StartsWith("prefix part must be non-empty"));
  EXPECT_THAT(check_label_key("A/a"), StartsWith("prefix part a lowercase RFC 1123 subdomain"));
  EXPECT_THAT(check_label_key("a/"), StartsWith("name part must be non-empty; name part must consist of"));
  EXPECT_THAT(check_label_key("a/b/c"), StartsWith("a qualified name must consist of"));
  EXPECT_THAT(check_label_key(std::string(64, 'a')), StartsWith("name part must be no more than 63 characters"));
  EXPECT_EQ(check_label_value(""), "");
  EXPECT_EQ(check_label_value("A_b.c-1"), "");
  EXPECT_THAT(check_label_value("a b"), StartsWith("a valid label must be an empty string"));
  EXPECT_THAT(check_label_value("-"), StartsWith("a valid label"));
}

}  // namespace
}  // namespace fairlead::kube
