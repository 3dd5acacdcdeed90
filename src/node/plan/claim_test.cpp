// SPDX-License-Identifier: Apache-2.0
#include "node/plan/claim.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "kube/json.h"

namespace fairlead::node {
namespace {
using kube::Json;
using testing::HasSubstr;

Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }
const char* claim_text = "{metadata: {name: c, namespace: a, uid: u1}, spec: {volumeName: v}, status: {phase: Bound}}";

TEST(Claim, NamesItsVolumeOnceItIsBound) {
  EXPECT_EQ(volume_of_claim(yaml(claim_text)).value_or(""), "v");
  for (const char* text : {"{metadata: {name: c}, spec: {volumeName: v}, status: {phase: Pending}}", "{metadata: {name: c}, spec: {volumeName: v}, status: {phase: Lost}}",
                           "{metadata: {name: c}, spec: {}, status: {phase: Bound}}"})
    EXPECT_THAT(volume_of_claim(yaml(text)).error().message, HasSubstr("\"c\" is not bound")) << text;
}

TEST(Claim, IsWhereItsVolumeSaysIfThatIsItsOwnAndHere) {
  struct Row {
    const char *spec, *want;
  };
  const Json node = yaml("{metadata: {name: n1, labels: {kubernetes.io/hostname: h1, zone: z}}}");
  const std::string own = "claimRef: {namespace: a, name: c, uid: u1}";
  for (const Row& row : {
           Row{"hostPath: {path: /data/x}", "/data/x  "},
           Row{"hostPath: {path: /data/x, type: DirectoryOrCreate}", "/data/x DirectoryOrCreate "},
           Row{"local: {path: /disk/1}", "/disk/1 Directory local"},
           Row{"hostPath: {path: /data/../etc}", "not an absolute one"},
           Row{"hostPath: {path: data}", "not an absolute one"},
           Row{"local: {}", "not an absolute one"},
           Row{"nfs: {server: s, path: /x}", "does not mount (nfs): hostPath, local and csi are"},
           Row{"capacity: {storage: 1Gi}", "does not mount (nothing)"},
           Row{"csi: {driver: d, volumeHandle: h}, capacity: {storage: 1Gi}", "this node mounts those of csi.fairlead.dev"},
           Row{"hostPath: {path: /x}, volumeMode: Block", "of those this node knows csi volumes alone"},
           Row{"hostPath: {path: /x}, volumeMode: Filesystem", "/x  "},
           Row{"local: {path: /x}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [h1]}]}]}}", "/x Directory local"},
           Row{"local: {path: /x}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [h2]}]}]}}", "is not on node \"n1\""},
       }) {
    const auto place = place_of_claim(yaml(claim_text), yaml(fmt::format("{{metadata: {{name: v}}, spec: {{{}, {}}}}}", own, row.spec)), node);
    EXPECT_THAT(place ? fmt::format("{} {} {}", place->path, place->type, place->local ? "local" : "") : place.error().message, HasSubstr(row.want)) << row.spec;
  }
  for (const char* reference : {"namespace: b, name: c, uid: u1", "namespace: a, name: d, uid: u1", "namespace: a, name: c, uid: u0", "namespace: a, name: c"}) {
    const auto place = place_of_claim(yaml(claim_text), yaml(fmt::format("{{metadata: {{name: v}}, spec: {{claimRef: {{{}}}, hostPath: {{path: /x}}}}}}", reference)), node);
    ASSERT_FALSE(place) << reference;
    EXPECT_EQ(place.error().code, Code::Unavailable);
    EXPECT_THAT(place.error().message, HasSubstr("not bound to claim \"c\""));
  }
}

TEST(ClaimPlace, AVolumeOfTheDriverIsNamedAndHasNoPath) {
  const Json node = yaml("{metadata: {name: n1, labels: {topology.fairlead.dev/pool: here}}}");
  const auto place = [&](const std::string& spec) { return place_of_claim(yaml("{metadata: {namespace: a, name: c, uid: u1}, spec: {volumeName: v}, status: {phase: Bound}}"), yaml("{metadata: {name: v}, spec: {claimRef: {namespace: a, name: c, uid: u1}, " + spec + "}}"), node); };
  const auto good = place("csi: {driver: csi.fairlead.dev, volumeHandle: pvc-1, fsType: xfs, readOnly: true}, mountOptions: [noatime], nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.fairlead.dev/pool, operator: In, values: [here]}]}]}}");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->volume, "pvc-1");
  EXPECT_EQ(good->file_system, "xfs");
  EXPECT_TRUE(good->read_only && good->path.empty());
  EXPECT_THAT(good->mount_options, testing::ElementsAre("noatime"));
  EXPECT_FALSE(good->block);
  EXPECT_TRUE(place("csi: {driver: csi.fairlead.dev, volumeHandle: pvc-1}, volumeMode: Block")->block);
  for (const auto& [spec, why] : {std::pair("csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}", "driver ebs.csi.aws.com"), {"csi: {driver: csi.fairlead.dev, volumeHandle: ../x}", "is no volume"}, {"csi: {driver: csi.fairlead.dev, volumeHandle: a, fsType: ntfs}", "fsType ntfs"}, {"csi: {driver: csi.fairlead.dev, volumeHandle: a}, mountOptions: ['ro,exec']", "single options"},
                                  {"csi: {driver: csi.fairlead.dev, volumeHandle: a}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.fairlead.dev/pool, operator: In, values: [there]}]}]}}", "nodeAffinity does not hold"}}) {
    const auto wrong = place(spec);
    ASSERT_FALSE(wrong) << spec;
    EXPECT_THAT(wrong.error().message, HasSubstr(why));
  }
}

TEST(NodeSelector, TermsAreAlternativesAndAnEmptyOneHoldsNowhere) {
  struct Row {
    const char* terms;
    bool want;
  };
  const Json node = yaml("{metadata: {name: n1, labels: {a: x, size: '5'}}}");
  for (const Row& row : {
           Row{"[]", false},
           Row{"[{}]", false},
           Row{"[{}, {matchExpressions: [{key: a, operator: Exists}]}]", true},
           Row{"[{matchExpressions: [{key: a, operator: In, values: [x]}, {key: b, operator: Exists}]}]", false},
           Row{"[{matchExpressions: [{key: b, operator: DoesNotExist}]}]", true},
           Row{"[{matchExpressions: [{key: b, operator: NotIn, values: [x]}]}]", true},
           Row{"[{matchExpressions: [{key: a, operator: NotIn, values: [x]}]}]", false},
           Row{"[{matchExpressions: [{key: size, operator: Gt, values: ['4']}]}]", true},
           Row{"[{matchExpressions: [{key: size, operator: Lt, values: ['5']}]}]", false},
           Row{"[{matchExpressions: [{key: a, operator: Gt, values: ['4']}]}]", false},
           Row{"[{matchExpressions: [{key: a, operator: Odd, values: [x]}]}]", false},
           Row{"[{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]", true},
           Row{"[{matchFields: [{key: metadata.name, operator: In, values: [n2]}]}]", false},
           Row{"[{matchFields: [{key: spec.podCIDR, operator: Exists}]}]", false},
       })
    EXPECT_EQ(node_selector_holds(yaml(fmt::format("{{nodeSelectorTerms: {}}}", row.terms)), node), row.want) << row.terms;
}

}  // namespace
}  // namespace fairlead::node
