// SPDX-License-Identifier: Apache-2.0
// What the face adds to objects so that AWS's clients know them again: names, ids, tags, who made them. Pure.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "api/cluster.h"
#include "hyperpod/front.h"
#include "hyperpod/text.h"
#include "api/cluster.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::hyperpod {

// Annotations.
inline constexpr const char* name_note = "fairlead.dev/aws-name";               // where it is no name of Kubernetes
inline constexpr const char* description_note = "fairlead.dev/aws-description";
inline constexpr const char* cluster_note = "fairlead.dev/aws-cluster-arn";     // for which it was made
inline constexpr const char* maker_note = "fairlead.dev/aws-created-by";        // {Arn, PrincipalId}
inline constexpr const char* changer_note = "fairlead.dev/aws-modified-by";     // {Arn, PrincipalId, Time}
inline constexpr const char* tags_note = "fairlead.dev/aws-tags";               // {KEY: VALUE}

// Twelve of [a-z0-9], of this object and none after it with the same name: 36^12 ids, by SHA-256 of its uid.
using api::entity_id;
std::string arn_of(const Site& site, std::string_view kind, std::string_view id);  // "arn:aws:sagemaker:REGION:ACCOUNT:compute-quota/ID"
// A name of Kubernetes for a name of AWS: itself, or in lower case with a hash.
std::string object_name_of(std::string_view name);
std::string name_of_entity(const Json& object);  // the other way round
Instant created_at(const Json& object);

using Tags = std::map<std::string, std::string>;
Tags tags_of(const Json& object);
Json tag_list(const Tags& tags);                       // [{Key, Value}], by key
Answer<Tags> read_tags(const Json& list);               // ValidationException: a key twice, one that begins with aws:
void set_tags(Json& object, const Tags& tags);
Answer<void> check_case(const Tags& tags);              // ValidationException: two keys that differ only in case, since conditions of policies know none
// aws:RequestTag/KEY and aws:TagKeys of what is asked for; aws:ResourceTag/KEY and sagemaker:ResourceTag/KEY of what is there.
iam::Keys tag_keys(const Tags& asked, const Tags& there);
// What a request says of machines and networks, for conditions: sagemaker:InstanceTypes, sagemaker:VpcSubnets, sagemaker:VpcSecurityGroupIds, of all its groups.
void set_request_keys(iam::Keys& keys, const kube::Json& input);

void note(Json& object, const char* annotation, std::string text);  // empty: takes it away
Json user_context(const Json& object, const char* annotation);      // UserContext, or null
Json as_context(const Call& call);                                  // what those annotations hold

// Members by the names of the API ("VCpu") from those of objects ("vCpu"), and back; what is inside, too.
Json lower_names(const Json& value);
Json upper_names(const Json& value);
// The request of CreateCluster, or a group of it, as the object has it, and back: keys of Kubernetes' labels are nobody's names.
Json cluster_to_spec(const Json& input);
Json spec_to_cluster(const Json& spec);
// What of the value the shape has; the rest is dropped.
Json only_known(const Model& model, const Model::Shape& shape, const Json& value);

}  // namespace fairlead::hyperpod
