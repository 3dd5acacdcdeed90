// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "apiserver/token_accounts.h"
#include "apiserver/token_jwt.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using testing::HasSubstr;
const Instant now = *parse_time("2026-01-01T00:00:00Z");

const std::string rsa_pem = [] {
  EVP_PKEY* key = EVP_RSA_gen(2048);
  BIO* memory = BIO_new(BIO_s_mem());
  INVARIANT(key != nullptr && PEM_write_bio_PKCS8PrivateKey(memory, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  std::string pem(data, static_cast<std::size_t>(size));
  BIO_free(memory);
  EVP_PKEY_free(key);
  return pem;
}();

TokenKeys keys_of(const std::string& pem, const std::vector<std::string>& more = {}) {
  auto keys = TokenKeys::make(pem, more);
  INVARIANT(keys.has_value());
  return std::move(*keys);
}
Json claims() { return Json::object({{"sub", "x"}, {"exp", 5}}); }

TEST(TokenJwt, ReadsWhatItSigned) {
  for (const std::string& pem : {*make_token_key(), rsa_pem}) {
    const TokenKeys keys = keys_of(pem);
    const std::string token = keys.sign(claims());
    const auto read = keys.verify(token);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, claims());
  }
}

TEST(TokenJwt, TakesTokensOfOlderKeysWhileTheyAreKept) {
  const std::string old_pem = *make_token_key(), new_pem = *make_token_key();
  const std::string token = keys_of(old_pem).sign(claims());
  EXPECT_TRUE(keys_of(new_pem, {old_pem, rsa_pem}).verify(token));
  EXPECT_FALSE(keys_of(new_pem).verify(token));
  EXPECT_EQ(keys_of(new_pem, {old_pem, rsa_pem}).jwks()["keys"].items().size(), 3u);
  EXPECT_THAT(keys_of(new_pem, {rsa_pem}).algorithms(), testing::ElementsAre("ES256", "RS256"));
}

TEST(TokenJwt, RefusesForgeries) {
  const std::string pem = *make_token_key();
  const TokenKeys keys = keys_of(pem, {rsa_pem});
  const std::string token = keys.sign(claims());
  const std::size_t first = token.find('.'), second = token.find('.', first + 1);
  const std::string head = token.substr(0, first), body = token.substr(first + 1, second - first - 1), tail = token.substr(second + 1);
  const std::string other = base64url(R"({"sub":"admin","exp":5})");
  const std::string id = (*parse_jwt(token)).header["kid"].string();
  const auto with_header = [&](const std::string& header, const std::string& signature) { return base64url(header) + "." + body + "." + signature; };
  struct Row {
    const char* name;
    std::string token;
  };
  for (const Row& row : {
           Row{"empty", ""},
           Row{"two parts", head + "." + body},
           Row{"four parts", token + ".x"},
           Row{"other claims", head + "." + other + "." + tail},
           Row{"no signature", head + "." + body + "."},
           Row{"alg none", with_header(R"({"alg":"none"})", "")},
           Row{"alg none with the key's name", with_header(R"({"alg":"none","kid":")" + id + "\"}", tail)},
           Row{"HMAC by the public key's name", with_header(R"({"alg":"HS256","kid":")" + id + "\"}", tail)},
           Row{"RSA by an EC key", with_header(R"({"alg":"RS256","kid":")" + id + "\"}", tail)},
           Row{"unknown key", with_header(R"({"alg":"ES256","kid":"nobody"})", tail)},
           Row{"critical extension", with_header(R"({"alg":"ES256","crit":["x"]})", tail)},
           Row{"padded", token + "="},
           Row{"standard alphabet", head + "." + body + "." + std::string(tail.size(), '+')},
           Row{"zero signature", head + "." + body + "." + base64url(std::string(64, '\0'))},
           Row{"no JSON", base64url("hello") + "." + body + "." + tail},
           Row{"a list", base64url("[]") + "." + body + "." + tail},
           Row{"too long", head + "." + std::string(20'000, 'A') + "." + tail},
           Row{"somebody else's", keys_of(*make_token_key()).sign(claims())},
       }) {
    const auto read = keys.verify(row.token);
    ASSERT_FALSE(read) << row.name;
    EXPECT_EQ(read.error().code, Code::Unauthorized) << row.name;
  }
  // The last character of a base64 text holds bits that belong to no byte: exactly one text is right.
  for (const char c : std::string_view("ABCDwxyz0189-_")) {
    std::string changed = token;
    changed.back() = c;
    EXPECT_EQ(keys.verify(changed).has_value(), changed == token) << c;
  }
}

TEST(TokenJwt, TakesOnlyKeysThatAreGoodEnough) {
  EXPECT_FALSE(TokenKeys::make(""));
  EXPECT_FALSE(TokenKeys::make("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"));
  const std::string pem = *make_token_key();
  EXPECT_FALSE(TokenKeys::make(pem, {"nothing"}));
  // A public key alone cannot sign, but verifies.
  EXPECT_TRUE(TokenKeys::make(pem, {pem}));
}

// --- accounts ---

Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }

std::optional<Json> find(const kube::Resource& resource, const kube::ObjectKey& key) {
  const std::string at = resource.plural + "/" + key.text();
  if (at == "serviceaccounts/team/bot") return yaml("{metadata: {name: bot, namespace: team, uid: sa-1}}");
  if (at == "pods/team/p") return yaml("{metadata: {name: p, namespace: team, uid: pod-1}, spec: {serviceAccountName: bot, nodeName: w0}}");
  if (at == "pods/team/other") return yaml("{metadata: {name: other, namespace: team, uid: pod-2}, spec: {serviceAccountName: else, nodeName: w0}}");
  if (at == "pods/team/far") return yaml("{metadata: {name: far, namespace: team, uid: pod-3}, spec: {serviceAccountName: bot, nodeName: w1}}");
  if (at == "secrets/team/s") return yaml("{metadata: {name: s, namespace: team, uid: secret-1}}");
  if (at == "nodes/w0") return yaml("{metadata: {name: w0, uid: node-1}}");
  return std::nullopt;
}
const User ann{"ann", {"system:authenticated"}};
const User node_w0{"system:node:w0", {"system:nodes"}};

TEST(TokenAccounts, ARequestBecomesClaims) {
  const Json request = yaml("{spec: {audiences: [vault], expirationSeconds: 3607, boundObjectRef: {apiVersion: v1, kind: Pod, name: p, uid: pod-1}}}");
  const auto plan = plan_token(request, {"team", "bot"}, node_w0, find, {}, now, "id-1");
  ASSERT_TRUE(plan) << plan.error().message;
  const Json& c = plan->claims;
  EXPECT_EQ(c["sub"].string(), "system:serviceaccount:team:bot");
  EXPECT_EQ(c["aud"], yaml("[vault]"));
  EXPECT_EQ(c["exp"].integer() - c["iat"].integer(), 3607);
  EXPECT_EQ(c["kubernetes.io"], yaml("{namespace: team, serviceaccount: {name: bot, uid: sa-1}, pod: {name: p, uid: pod-1}, node: {name: w0, uid: node-1}}"));
  EXPECT_EQ(plan->answer["status"]["expirationTimestamp"].string(), "2026-01-01T01:00:07Z");
  EXPECT_EQ(plan->answer["metadata"]["name"].string(), "bot");
}

TEST(TokenAccounts, RefusesWhatKubernetesRefuses) {
  struct Row {
    const char* request;
    const User& caller;
    Code code;
    const char* message;
  };
  for (const Row& row : {
           Row{"{spec: {expirationSeconds: 599}}", ann, Code::Invalid, "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
           Row{"{spec: {expirationSeconds: 4294967297}}", ann, Code::Invalid, "may not specify a duration larger than 2^32 seconds"},
           Row{"{metadata: {name: other}}", ann, Code::Invalid, "must match the service account name if specified"},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: gone}}}", ann, Code::NotFound, "pods \"gone\" not found"},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: other}}}", ann, Code::Invalid, "cannot bind token for serviceaccount \"bot\""},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: p, uid: x}}}", ann, Code::Conflict, "the UID in the bound object reference (x)"},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: ConfigMap, name: p}}}", ann, Code::Invalid, "cannot bind token to object of type"},
           Row{"{}", node_w0, Code::Forbidden, "node requested token not bound to a pod"},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: p}}}", node_w0, Code::Forbidden, "without a uid"},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: p, uid: x}}}", node_w0, Code::Forbidden, "does not match the UID in record"},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: far, uid: pod-3}}}", node_w0, Code::Forbidden, "scheduled on a different node"},
           Row{"{spec: {boundObjectRef: {apiVersion: v1, kind: Secret, name: s}}}", node_w0, Code::Forbidden, "node requested token not bound to a pod"},
       }) {
    const auto plan = plan_token(yaml(row.request), {"team", "bot"}, row.caller, find, {}, now, "id");
    ASSERT_FALSE(plan) << row.request;
    EXPECT_EQ(plan.error().code, row.code) << row.request;
    EXPECT_THAT(plan.error().message, HasSubstr(row.message)) << row.request;
  }
  EXPECT_EQ(plan_token(Json::object(), {"team", "nobody"}, ann, find, {}, now, "id").error().code, Code::NotFound);
  EXPECT_TRUE(plan_token(yaml("{spec: {boundObjectRef: {apiVersion: v1, kind: Secret, name: s}}}"), {"team", "bot"}, ann, find, {}, now, "id"));
  EXPECT_TRUE(plan_token(yaml("{spec: {boundObjectRef: {apiVersion: v1, kind: Node, name: w0}}}"), {"team", "bot"}, ann, find, {}, now, "id"));
}

Json issued(const char* more = "{}") {
  Json request = Json::object({{"spec", yaml(more)}});
  auto plan = plan_token(request, {"team", "bot"}, ann, find, {}, now, "id-1");
  INVARIANT(plan.has_value());
  return plan->claims;
}

TEST(TokenAccounts, ClaimsHoldForTheirTimeAndAudience) {
  struct Row {
    const char* name;
    Json claims;
    std::chrono::seconds after;
    std::vector<std::string> audiences;
    const char* want;
  };
  const auto with = [&](const char* key, Json value) {
    Json out = issued();
    out.set(key, std::move(value));
    return out;
  };
  for (const Row& row : {
           Row{"fresh", issued(), 0s, {}, ""},
           Row{"at its end", issued(), 3659s, {}, ""},
           Row{"over", issued(), 3661s, {}, "service account token has expired"},
           Row{"not yet", issued(), -61s, {}, "service account token is not valid yet"},
           Row{"a little early", issued(), -59s, {}, ""},
           Row{"other issuer", with("iss", "https://elsewhere"), 0s, {}, "the token was issued by somebody else"},
           Row{"other audience", issued("{audiences: [vault]}"), 0s, {}, "the token is for another audience"},
           Row{"audience asked for", issued("{audiences: [vault]}"), 0s, {"vault", "x"}, ""},
           Row{"API token elsewhere", issued(), 0s, {"vault"}, "the token is for another audience"},
           Row{"no end", with("exp", nullptr), 0s, {}, "the token never ends: it is not taken"},
           Row{"end as text", with("exp", "9999999999"), 0s, {}, "the token never ends: it is not taken"},
           Row{"another subject", with("sub", "system:serviceaccount:team:else"), 0s, {}, "the token names no service account"},
           Row{"a user", with("sub", "admin"), 0s, {}, "the token names no service account"},
           Row{"no details", with("kubernetes.io", 3), 0s, {}, "the token names no service account"},
       }) {
    const auto read = read_claims(row.claims, {}, row.audiences, now + row.after);
    EXPECT_EQ(read ? "" : read.error().message, row.want) << row.name;
  }
}

TEST(TokenAccounts, ATokenDiesWithWhatItIsBoundTo) {
  const auto claims = read_claims(issued("{boundObjectRef: {apiVersion: v1, kind: Pod, name: p, uid: pod-1}}"), {}, {}, now);
  ASSERT_TRUE(claims);
  struct Row {
    std::optional<Standing> account, pod;
    const char* want;
  };
  for (const Row& row : {
           Row{Standing{"sa-1", ""}, Standing{"pod-1", ""}, ""},
           Row{Standing{"sa-2", ""}, Standing{"pod-1", ""}, "service account UID (sa-2) does not match claim (sa-1)"},
           Row{std::nullopt, Standing{"pod-1", ""}, "service account token has been invalidated"},
           Row{Standing{"sa-1", ""}, std::nullopt, "service account token has been invalidated"},
           Row{Standing{"sa-1", ""}, Standing{"pod-2", ""}, "pod UID (pod-2) does not match claim (pod-1)"},
           Row{Standing{"sa-1", ""}, Standing{"pod-1", "2026-01-01T00:00:30Z"}, ""},  // ends later
           Row{Standing{"sa-1", ""}, Standing{"pod-1", "2025-12-31T23:58:59Z"}, "service account token has been invalidated"},
       }) {
    const auto done = check_standing(*claims, [&](const kube::Resource& resource, const kube::ObjectKey&) { return resource.plural == "pods" ? row.pod : row.account; }, now);
    EXPECT_EQ(done ? "" : done.error().message, row.want);
  }
  const User user = user_of(*claims);
  EXPECT_EQ(user.name, "system:serviceaccount:team:bot");
  EXPECT_THAT(user.groups, testing::ElementsAre("system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"));
  EXPECT_EQ(user.uid, "sa-1");
  EXPECT_EQ(to_user_info(user)["extra"]["authentication.kubernetes.io/pod-name"], yaml("[p]"));
}

}  // namespace
}  // namespace fairlead::apiserver
