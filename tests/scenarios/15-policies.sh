#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Admission policies: the same requests are refused with the same words on both engines.
. "$(dirname "$0")/lib.sh"

clean_up() {
  local status=$?
  trap - EXIT
  k delete validatingadmissionpolicybinding,validatingadmissionpolicy -l example.com/scenario=policies > /dev/null || status=1
  k delete namespace policies policies-b --ignore-not-found --timeout=60s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

k create namespace policies > /dev/null
k create namespace policies-b > /dev/null
k label namespace policies example.com/policies=on > /dev/null
k -n policies create configmap limits --from-literal=most=3 > /dev/null

# NAME ACTIONS [BINDING-MORE], the rest of its spec as input: of ConfigMaps and Secrets in the namespace.
policy() {
  local rest
  rest=$(sed 's/^/  /')
  k apply -f - > /dev/null << YAML
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $1.example.com, labels: {example.com/scenario: policies}}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {example.com/policies: "on"}}
    objectSelector: {matchLabels: {of: $1}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [configmaps, secrets]}]
$rest
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $1-binding, labels: {example.com/scenario: policies}}
spec: {policyName: $1.example.com, validationActions: $2${3:+, $3}}
YAML
}
map() { echo "{apiVersion: v1, kind: ConfigMap, metadata: {name: $2, namespace: ${4:-policies}, labels: {of: $1}}, data: ${3:-{\}}}"; } # POLICY NAME [DATA] [NAMESPACE]
# VERB POLICY NAME WORDS [DATA]: refused with just these words. A policy may take a moment until it counts.
refused() {
  local out wanted
  wanted="ValidatingAdmissionPolicy '$2.example.com' with binding '$2-binding' denied request: $4"
  for _ in $(seq 50); do
    out=$(map "$2" "$3" "${5:-}" | k "$1" --dry-run=server -f - 2>&1) || break
    sleep 0.2
  done
  [[ $out == *"$wanted" ]] || fail "wanted \"$wanted\", got: $out"
}
taken() { map "$@" | k create --dry-run=server -f - > /dev/null || fail "refused: $*"; }

policy plain '[Deny]' << 'YAML'
validations:
- {expression: "object.metadata.name.startsWith('ok')", reason: Forbidden, message: "the name must begin with ok"}
- {expression: "!has(object.data) || !has(object.data.size) || int(object.data.size) < 3", messageExpression: "'size ' + object.data.size + ' is too much for ' + object.metadata.name"}
- {expression: " object.metadata.labels.of == 'plain' || oldObject.data.x == 'y' "}
- {expression: "!has(object.data) || !has(object.data.bad) || object.data.missing == object.data.bad"}
YAML
refused create plain nay 'the name must begin with ok'
refused create plain ok 'size 5 is too much for ok' '{size: "5"}'
refused create plain ok "expression '!has(object.data) || !has(object.data.bad) || object.data.missing == object.data.bad' resulted in error: no such key: missing" '{bad: "1"}'
taken plain ok
map plain any '{size: "9"}' policies-b | k create --dry-run=server -f - > /dev/null || fail 'a policy holds where its selector says no'
note 'rules hold, in the same words'

# What was refused is a Status that programs can read.
status_of() { { map "$@" | k create --dry-run=server -f - -v=8 2>&1 || true; } | grep -o '{"kind":"Status".*}' | head -n 1 | python3 -c 'import json,sys; s=json.loads(sys.stdin.readline()); d=s["details"]; print(s["code"], s["reason"], d["kind"], d["name"], d["causes"][0]["message"] in s["message"], s["message"].split(":")[0])'; }
same '403 Forbidden configmaps nay True configmaps "nay" is forbidden' status_of plain nay || fail "the Status: $(status_of plain nay)"
same '422 Invalid configmaps ok True configmaps "ok" is forbidden' status_of plain ok '{size: "5"}' || fail "the Status: $(status_of plain ok '{size: "5"}')"

policy vars '[Deny]' << 'YAML'
variables:
- {name: data, expression: "has(object.data) ? object.data : {}"}
- {name: count, expression: "size(variables.data)"}
- {name: broken, expression: "object.data.nothing.at.all"}
matchConditions:
- {name: not-skipped, expression: "!object.metadata.name.startsWith('skip')"}
validations:
- {expression: "variables.count <= 2", messageExpression: "string(variables.count) + ' of ' + namespaceObject.metadata.name + ' by ' + request.operation"}
- {expression: "variables.count != 2 || variables.broken == 1"}
YAML
refused create vars a '3 of policies by CREATE' '{a: a, b: b, c: c}'
refused create vars a "expression 'variables.count != 2 || variables.broken == 1' resulted in error: composited variable \"broken\" fails to evaluate: no such key: nothing" '{a: a, b: b}'
taken vars skip-a '{a: a, b: b, c: c}'
note 'variables and conditions'

policy conds '[Deny]' << 'YAML'
matchConditions:
- {name: error, expression: "object.data.missing == 'x'"}
- {name: name, expression: "object.metadata.name != 'free'"}
validations: [{expression: "false"}]
YAML
refused create conds a "expression 'object.data.missing == 'x'' resulted in error: no such key: data"
taken conds free

policy request '[Deny]' << 'YAML'
validations:
- expression: "false"
  messageExpression: "request.kind.kind + ' ' + request.resource.resource + ' ' + request.requestKind.version + ' ' + request.name + ' ' + request.namespace + ' ' + string(request.dryRun) + ' ' + string(has(request.subResource)) + ' ' + string(request.userInfo.groups.size() > 0) + ' ' + string(oldObject == null)"
YAML
refused create request a 'ConfigMap configmaps v1 a policies true false true true'

policy params '[Deny]' 'paramRef: {name: limits, namespace: policies, parameterNotFoundAction: Deny}' << 'YAML'
paramKind: {apiVersion: v1, kind: ConfigMap}
validations: [{expression: "size(object.metadata.name) <= int(params.data.most)", messageExpression: "'longer than ' + params.data.most"}]
YAML
refused create params long 'longer than 3'
taken params abc
policy none '[Deny]' 'paramRef: {name: not-there, parameterNotFoundAction: Deny}' << 'YAML'
paramKind: {apiVersion: v1, kind: ConfigMap}
validations: [{expression: "true"}]
YAML
refused create none a 'failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction'
note 'parameters'

policy change '[Deny]' << 'YAML'
validations:
- {expression: "request.operation != 'UPDATE' || object.data.a == oldObject.data.a", message: "a stays"}
- {expression: "request.operation != 'DELETE' || !has(oldObject.data.keep)", message: "it is kept", reason: Forbidden}
YAML
map change c '{a: a, keep: "yes"}' | k create -f - > /dev/null
refused replace change c 'a stays' '{a: b}'
deleted() { k -n policies delete configmap c --dry-run=server 2>&1 || true; }
until_true 20 'a delete is refused' says "ValidatingAdmissionPolicy 'change.example.com' with binding 'change-binding' denied request: it is kept" deleted
note 'updates and deletes'

policy warn '[Warn, Audit]' << 'YAML'
validations: [{expression: "false", message: "think again"}]
YAML
warned() { map warn w | k create --dry-run=server -f - 2>&1; }
until_true 20 'a warning' says "Warning: Validation failed for ValidatingAdmissionPolicy 'warn.example.com' with binding 'warn-binding': think again" warned
note 'warnings'

# SPEC WORDS: not taken as a policy.
wrong() {
  local out
  if out=$(echo "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: wrong.example.com, labels: {example.com/scenario: policies}}, spec: $1}" | k create -f - 2>&1); then fail "taken: $1"; fi
  [[ $out == *"$2"* ]] || fail "wanted \"$2\", got: $out"
}
match='matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}'
wrong '{}' 'spec.matchConstraints: Required value'
wrong "{$match}" 'spec.validations: Required value: validations or auditAnnotations must contain at least one item'
wrong "{$match, validations: [{expression: 'objekt.a'}]}" "undeclared reference to 'objekt'"
wrong "{$match, validations: [{expression: 'params.a'}]}" "undeclared reference to 'params'"
wrong "{$match, failurePolicy: Maybe, validations: [{expression: 'true'}]}" 'spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"'
wrong "{$match, variables: [{name: for, expression: '1'}], validations: [{expression: 'true'}]}" 'spec.variables[0].name: Invalid value: "for": name is not a valid CEL identifier'
wrong "{$match, variables: [{name: a, expression: '1'}], validations: [{expression: 'variables.b == 1'}]}" "undefined field 'b'"
wrong "{$match, validations: [{expression: 'true', reason: Bad}]}" 'spec.validations[0].reason: Unsupported value: "Bad": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"'
wrong "{$match, matchConditions: [{name: a, expression: 'true'}, {name: a, expression: 'true'}], validations: [{expression: 'true'}]}" 'spec.matchConditions[1].name: Duplicate value: "a"'
wrong '{matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*", CREATE], resources: [pods]}]}, validations: [{expression: "true"}]}' "operations: Invalid value: []admissionregistration.OperationType{\"*\", \"CREATE\"}: if '*' is present, must not specify other operations"
wrong '{matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: ["*/*", pods]}]}, validations: [{expression: "true"}]}' "resources: Invalid value: []string{\"*/*\", \"pods\"}: if '*/*' is present, must not specify other resources"
wrong '{matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Here}]}, validations: [{expression: "true"}]}' 'scope: Unsupported value: "Here": supported values: "*", "Cluster", "Namespaced"'
note 'a policy that cannot hold is not taken'
