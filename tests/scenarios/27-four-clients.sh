#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# boto3, the AWS CLI and the SDK for JavaScript, as they are, at the same time: each takes a cluster of its own through its life, with Slurm and with Kubernetes. Then hyp, the fourth: a cluster, the way into it, its nodes.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_PROVIDE:?}"

clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { note "left out: AWS's clients cannot be had here"; exit 0; }; fail "AWS's clients"; }
hyp=$("$top/tests/peers/hyp/hyp.sh") || hyp=''
folder=$SCENARIO_WORK/four
mkdir -p "$folder"
export XDG_STATE_HOME=$folder
ways=(boto3 cli)
[ ! -d "$clients/js/node_modules" ] || ways+=(js)
as() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" dot -- "$@"; }
clean_up() {
  local status=$? way
  trap - EXIT
  [ "$status" = 0 ] || k get clusters,instances,machines -o wide >&2 || true
  for way in $(jobs -p); do kill "$way" 2> /dev/null || true; done
  for way in boto3 cli js hyp; do k delete cluster "slurm-$way" "eks-$way" --ignore-not-found --timeout=120s > /dev/null || status=1; done
  k delete namespace four --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete clusterrolebinding,clusterrole four --ignore-not-found > /dev/null || status=1
  as "$clients/bin/aws" s3 rb --force s3://sagemaker-four > /dev/null 2>&1 || true
  f identity delete dot --with-keys > /dev/null 2>&1 || true
  f identity delete --role four > /dev/null 2>&1 || true
  exit "$status"
}
trap clean_up EXIT

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "eks:*", "s3:*", "logs:*", "iam:PassRole", "iam:GetRole", "sts:*"], "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$folder/trust.json"
f identity create dot --policy "$folder/all.json" > /dev/null
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::sagemaker-four/*"}}' > "$folder/read.json"
f identity create --role four --policy "$folder/read.json" --trust "$folder/trust.json" > /dev/null
f identity key add dot > /dev/null 2>&1 || fail 'no key for dot'
until_true 20 'dot is known' says ':user/dot' as "$clients/bin/aws" sts get-caller-identity
role=$(as "$clients/bin/aws" iam get-role --role-name four --query Role.Arn --output text)
account=$(cut -d: -f5 <<< "$role")
eks=$(as "$clients/bin/aws" eks describe-cluster --name fairlead --query cluster.arn --output text)

as "$clients/bin/aws" s3 mb s3://sagemaker-four > /dev/null
printf '#!/bin/bash\necho "$SAGEMAKER_INSTANCE_ID prepares"\n' > "$folder/on_create.sh"
as "$clients/bin/aws" s3 cp --quiet "$folder/on_create.sh" s3://sagemaker-four/base/on_create.sh

life() { # ORCHESTRATOR CLIENT
  local steps=$top/tests/peers/aws/life-$1.json given=("$account" "name=$1-$2" "role=$role" "eks=$eks")
  case $2 in
    js) as node "$top/tests/peers/aws/scenario.mjs" "$clients/js" "$steps" "${given[@]}" ;;
    *) as "$clients/bin/python" "$top/tests/peers/aws/scenario.py" "$2" "$steps" "${given[@]}" ;;
  esac
}
for orchestrator in slurm eks; do
  declare -A running=()
  for way in "${ways[@]}"; do
    [ $orchestrator = eks ] || for claim in 'jail-pvc 40Gi' 'controller-spool-pvc 1Gi'; do $SCENARIO_PROVIDE "cluster-slurm-$way" $claim; done
    SCENARIO_PAUSE=1 life $orchestrator "$way" > "$folder/$orchestrator-$way" 2>&1 &
    running[$way]=$!
  done
  for way in "${ways[@]}"; do wait "${running[$way]}" || fail "$orchestrator by $way: $(tail -n 2 "$folder/$orchestrator-$way")"; done
  is_empty k get clusters,instances -o name || fail "something is left of clusters with $orchestrator"
  is_empty k get machines -l fairlead.dev/cluster -o name || fail 'machines are left'
  note "$orchestrator: a cluster's life by ${ways[*]}, at the same time: made, changed, its logs read, deleted"
done
[ ${#ways[@]} = 3 ] || note 'no Node.js: left out JavaScript'

[ -n "$hyp" ] || { note 'left out: hyp cannot be had here'; exit 0; }
mkdir -p "$folder/home"
# By tokens of `aws eks get-token`, with what an access entry and a Role give, and no more.
h() { HOME=$folder/home KUBECONFIG=$folder/kubeconfig PATH=$(dirname "$SCENARIO_KUBECTL"):$clients/bin:$PATH PYTHONWARNINGS=ignore "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" dot -- timeout 120 "$hyp/bin/hyp" "$@"; }
user=$(as "$clients/bin/aws" sts get-caller-identity --query Arn --output text)
as "$clients/bin/aws" eks create-access-entry --cluster-name fairlead --principal-arn "$user" --kubernetes-groups four > /dev/null
k create namespace four > /dev/null
k apply -f - > /dev/null << 'YAML'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: four}
rules:
- {apiGroups: [sagemaker.amazonaws.com], resources: [hyperpodpytorchjobs], verbs: ["*"]}
- {apiGroups: [""], resources: [pods, pods/log, namespaces, nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: four}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: four}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: four}]
YAML
as "$clients/bin/aws" sagemaker create-cluster --cluster-name eks-hyp --node-provisioning-mode Continuous --orchestrator "Eks={ClusterArn=$eks}" --vpc-config SecurityGroupIds=sg-12345678,Subnets=subnet-12345678 \
  --instance-groups "[{\"InstanceGroupName\": \"work\", \"InstanceType\": \"ml.c5.large\", \"InstanceCount\": 1, \"ExecutionRole\": \"$role\"}]" > /dev/null
until_true 120 'its node runs' same $'InService\t1' as "$clients/bin/aws" sagemaker describe-cluster --cluster-name eks-hyp --query '[ClusterStatus,InstanceGroups[0].CurrentCount]' --output text
hyp_says() { # TEXT ARGUMENTS of hyp
  local text=$1
  shift
  says "$text" h "$@" > "$folder/last" || fail "hyp $1: $(cat "$folder/last")"
}
hyp_says '"Cluster": "eks-hyp"' list-cluster
hyp_says eks-hyp describe cluster eks-hyp
hyp_says '' set-cluster-context --cluster-name eks-hyp
hyp_says cluster/fairlead get-cluster-context
# An access policy gives what an administrator has offered, there and nowhere else.
by_token() { PATH=$clients/bin:$PATH "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" dot -- "$SCENARIO_KUBECTL" --kubeconfig "$folder/kubeconfig" "$@"; }
policy() { as "$clients/bin/aws" eks "$1" --cluster-name fairlead --principal-arn "$user" --policy-arn arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy "${@:2}"; }
refusal=$(policy associate-access-policy --access-scope type=namespace,namespaces=four 2>&1) && fail 'what nobody offers is given'
[[ $refusal == *'kubectl -n four create rolebinding fairlead-access-edit --clusterrole=edit --group=fairlead:access:edit:four'* ]] || fail "of a policy that is not offered: $refusal"
refusal=$(by_token -n four get secrets 2>&1) && fail 'secrets are shown before'
[[ $refusal == *Forbidden* ]] || fail "before: $refusal"
k -n four create rolebinding fairlead-access-edit --clusterrole=edit --group=fairlead:access:edit:four > /dev/null
policy associate-access-policy --access-scope type=namespace,namespaces=four > /dev/null
until_true 20 'its policy counts' by_token -n four get secrets
refusal=$(by_token -n default get secrets 2>&1) && fail 'it counts in another namespace'
[[ $refusal == *Forbidden* ]] || fail "elsewhere: $refusal"
policy disassociate-access-policy > /dev/null
shut() { local out; ! out=$(by_token -n four get secrets 2>&1) && [[ $out == *Forbidden* ]]; }
until_true 20 'it counts no more' shut
note 'an access policy, once an administrator offers it'
hyp_says 'Successfully submitted' create hyp-pytorch-job --job-name one --namespace four --image busybox:1 --pull-policy IfNotPresent --replica-count 1 --command '[hostname]'
until_true 60 'it completes' says Completed h describe hyp-pytorch-job --job-name one --namespace four
hyp_says one-pod-0 get-logs hyp-pytorch-job --job-name one --pod-name one-pod-0 --namespace four
hyp_says 'Successful deleted' delete hyp-pytorch-job --job-name one --namespace four
as "$clients/bin/aws" eks delete-access-entry --cluster-name fairlead --principal-arn "$user" > /dev/null
as "$clients/bin/aws" sagemaker delete-cluster --cluster-name eks-hyp > /dev/null
until_true 60 'it is gone' is_empty k get clusters,instances -o name
note 'hyp: a cluster, the way into it, a job in it, its log'
