// SPDX-License-Identifier: Apache-2.0
#include "api/stack.h"

#include "api/crds.h"

namespace fairlead::api {
namespace {

using kube::Json;

constexpr const char* kStackCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: stacks.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: stacks, singular: stack, kind: Stack, listKind: StackList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Status, type: string, jsonPath: .status.phase}
    - {name: Reason, type: string, jsonPath: .status.reason}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A stack of CloudFormation whose resources are clusters. Made by that API, which settles and allows all of it; deleted by hand, its clusters go with it as their DeletionPolicy says.
        required: [spec]
        properties:
          spec:
            type: object
            required: [stackName, arn]
            properties:
              stackName: {type: string, maxLength: 128}
              arn: {type: string}
              description: {type: string}
              operation:
                type: object
                description: The last that was asked for; a new id asks for it once.
                required: [id, kind]
                properties:
                  id: {type: string, minLength: 1}
                  kind: {type: string, enum: [Create, Update, Delete]}
                  token: {type: string, description: ClientRequestToken.}
                  request: {type: string, description: "SHA-256 of the request, where it has a token: with another request the token is refused."}
                  changeSet: {type: string, description: "Id of the change set that was carried out: asked for again, it is done."}
                  changeSetName: {type: string}
                  onFailure: {type: string, enum: [ROLLBACK, DO_NOTHING, DELETE]}
                  timeoutMinutes: {type: integer, minimum: 1}
                  by: {type: string}
                  at: {type: string, format: date-time}
              target: &side
                type: object
                description: What it is to be.
                properties:
                  template: {type: string}
                  description: {type: string}
                  parameters: {type: object, additionalProperties: {type: string}, description: "With those that have NoEcho, which the API of CloudFormation does not tell."}
                  tags: {type: object, additionalProperties: {type: string}}
                  capabilities: {type: array, items: {type: string}}
                  likelyOutputs: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}, description: "Outputs with values of their form, by which a change of them is seen."}
                  resources:
                    type: array
                    items:
                      type: object
                      required: [logicalId, type, cluster, spec]
                      properties:
                        logicalId: {type: string}
                        type: {type: string}
                        cluster: {type: string, description: Name of the Cluster object.}
                        clusterName: {type: string}
                        annotations: {type: object, additionalProperties: {type: string}}
                        spec: {type: object, x-kubernetes-preserve-unknown-fields: true, description: Of the Cluster.}
                        dependsOn: {type: array, items: {type: string}}
                        deletionPolicy: {type: string, enum: [Delete, Retain, RetainExceptOnCreate]}
              before: *side
              changeSets:
                type: array
                maxItems: 20
                items: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              operation: {type: string, description: Id of the operation that this tells of.}
              phase: {type: string, description: "StackStatus: CREATE_IN_PROGRESS, CREATE_COMPLETE, ..."}
              reason: {type: string}
              back: {type: boolean, description: "The last update was taken back: spec.before is in force."}
              since: {type: string, format: date-time}
              updated: {type: string, format: date-time, description: "When the last update began."}
              deleted: {type: string, format: date-time, description: When the deletion began.}
              resources:
                type: array
                items:
                  type: object
                  properties:
                    logicalId: {type: string}
                    type: {type: string}
                    cluster: {type: string}
                    physicalId: {type: string}
                    status: {type: string}
                    reason: {type: string}
                    operation: {type: string, description: In which it was touched.}
                    at: {type: string, format: date-time}
              outputs:
                type: array
                items: {type: object, properties: {key: {type: string}, description: {type: string}, value: {type: string}}}
              count: {type: integer, description: Of events so far.}
              events:
                type: array
                description: The newest, at most 300.
                items:
                  type: object
                  properties:
                    number: {type: integer}
                    at: {type: string, format: date-time}
                    logicalId: {type: string}
                    type: {type: string}
                    physicalId: {type: string}
                    status: {type: string}
                    reason: {type: string}
                    token: {type: string}
)yaml";

StackSide read_side(const Json& of) {
  StackSide out;
  for (const Json& one : of["resources"].items()) {
    StackResource resource{.id = one["logicalId"].string(), .type = one["type"].string(), .cluster = one["cluster"].string(), .title = one["clusterName"].string_or(one["cluster"].string()), .annotations = one["annotations"], .spec = one["spec"], .depends_on = {}, .deletion = one["deletionPolicy"].string_or("Delete")};
    for (const Json& other : one["dependsOn"].items()) resource.depends_on.push_back(other.string());
    out.resources.push_back(std::move(resource));
  }
  return out;
}

}  // namespace

kube::Json stack_crd() { return parse_crd(kStackCrd); }

const StackResource* StackSide::resource(std::string_view id) const {
  for (const StackResource& one : resources)
    if (one.id == id) return &one;
  return nullptr;
}

Stack read_stack(const Json& object) {
  const Json &spec = object["spec"], &operation = spec["operation"];
  Stack out{.name = kube::name_of(object), .uid = kube::uid_of(object), .title = spec["stackName"].string(), .arn = spec["arn"].string(), .operation = operation["id"].string(), .kind = operation["kind"].string(), .on_failure = operation["onFailure"].string_or("ROLLBACK"), .timeout = {}, .asked = parse_time(operation["at"].string()).value_or(Instant()), .target = read_side(spec["target"]), .before = read_side(spec["before"])};
  if (const auto minutes = operation["timeoutMinutes"].integer(); minutes > 0) out.timeout = std::chrono::minutes(minutes);
  out.deleting = kube::deleting(object);
  out.finalizer = kube::has_finalizer(object, kStackFinalizer);
  return out;
}

std::string stack_phase(const Json& object) {
  const Json &operation = object["spec"]["operation"], &status = object["status"];
  const std::string& phase = status["phase"].string();
  if (kube::deleting(object)) return phase.starts_with("DELETE_") ? phase : "DELETE_IN_PROGRESS";
  if (operation["id"].string().empty()) return "REVIEW_IN_PROGRESS";
  if (status["operation"] == operation["id"] && !phase.empty()) return phase;
  const std::string& kind = operation["kind"].string();
  return kind == "Update" ? "UPDATE_IN_PROGRESS" : kind == "Delete" ? "DELETE_IN_PROGRESS" : "CREATE_IN_PROGRESS";
}

bool is_stack_at_rest(std::string_view phase) { return !phase.ends_with("_IN_PROGRESS") || phase == "REVIEW_IN_PROGRESS"; }

const Json& stack_in_force(const Json& object) {
  const Json &spec = object["spec"], &before = spec["before"], &operation = spec["operation"], &status = object["status"];
  // What is asked for anew is not back before the controller has taken it up.
  const bool back = status["back"].boolean() && (status["operation"] == operation["id"] || operation["kind"].string() == "Delete");
  return back && before.is_object() ? before : spec["target"];
}

}  // namespace fairlead::api
