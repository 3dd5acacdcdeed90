// SPDX-License-Identifier: Apache-2.0
#include "apiserver/discovery.h"

#include <gmock/gmock.h>

namespace fairlead::apiserver {
namespace {

KindTable sample_table() {
  KindTable table;
  const auto add = [&](const char* group, const char* version, const char* plural, const char* kind, bool namespaced) {
    auto out = std::make_shared<Kind>();
    out->resource = {group, version, plural, kind, namespaced};
    out->singular = plural;
    out->singular.pop_back();
    if (std::string_view(plural) == "pods") {
      out->short_names = {"po"};
      out->categories = {"all"};
      out->status_subresource = true;
      out->subresources = {"binding", "eviction", "log", "exec", "attach"};
    }
    table.kinds.push_back(out);
  };
  add("", "v1", "namespaces", "Namespace", false);
  add("", "v1", "pods", "Pod", true);
  add("fairlead.dev", "v1alpha1", "machines", "Machine", false);
  add("fairlead.dev", "v1beta1", "machines", "Machine", false);
  return table;
}

TEST(Discovery, OrdersVersionsAsKubernetesDoes) {
  std::vector<std::string> versions{"foo1", "v1alpha1", "v10", "v2beta1", "v1", "v10beta3", "v2", "v11alpha2", "foo10", "v1beta12"};
  std::sort(versions.begin(), versions.end(), version_before);
  EXPECT_THAT(versions, testing::ElementsAre("v10", "v2", "v1", "v10beta3", "v2beta1", "v1beta12", "v11alpha2", "v1alpha1", "foo1", "foo10"));
}

TEST(Discovery, ListsGroupsWithTheirPreferredVersion) {
  const kube::Json list = group_list(sample_table());
  ASSERT_EQ(list["groups"].items().size(), 3u);  // authentication, authorization, fairlead.dev
  const kube::Json& ours = list["groups"].items()[2];
  EXPECT_EQ(ours["name"].string(), "fairlead.dev");
  EXPECT_EQ(ours["preferredVersion"]["groupVersion"].string(), "fairlead.dev/v1beta1");
  EXPECT_EQ(ours["versions"].items().size(), 2u);
  EXPECT_TRUE(group(sample_table(), "fairlead.dev"));
  EXPECT_FALSE(group(sample_table(), "apps"));
}

TEST(Discovery, ListsResourcesWithSubresourcesAndTheirBodies) {
  const auto list = resource_list(sample_table(), "", "v1");
  ASSERT_TRUE(list);
  std::vector<std::string> names;
  for (const kube::Json& resource : (*list)["resources"].items()) names.push_back(resource["name"].string());
  EXPECT_THAT(names, testing::ElementsAre("namespaces", "pods", "pods/attach", "pods/binding", "pods/eviction", "pods/exec", "pods/log", "pods/status"));
  const kube::Json& eviction = (*list)["resources"].items()[4];
  EXPECT_EQ(eviction["group"].string(), "policy");
  EXPECT_EQ(eviction["kind"].string(), "Eviction");
  EXPECT_FALSE(resource_list(sample_table(), "apps", "v1"));
  EXPECT_TRUE(resource_list(sample_table(), "authorization.k8s.io", "v1"));
}

TEST(Discovery, AggregatesGroups) {
  const kube::Json core = aggregated(sample_table(), true);
  EXPECT_EQ(core["apiVersion"].string(), "apidiscovery.k8s.io/v2");
  ASSERT_EQ(core["items"].items().size(), 1u);
  const kube::Json& pods = core["items"].items()[0]["versions"].items()[0]["resources"].items()[1];
  EXPECT_EQ(pods["resource"].string(), "pods");
  EXPECT_EQ(pods["scope"].string(), "Namespaced");
  EXPECT_EQ(pods["responseKind"]["kind"].string(), "Pod");
  EXPECT_EQ(pods["shortNames"].items()[0].string(), "po");
  EXPECT_EQ(pods["subresources"].items().size(), 6u);
  EXPECT_EQ(aggregated(sample_table(), false)["items"].items().size(), 3u);
}

}  // namespace
}  // namespace fairlead::apiserver
