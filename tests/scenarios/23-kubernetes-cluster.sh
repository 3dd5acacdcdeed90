#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The AWS CLI makes a cluster that Kubernetes orchestrates: its nodes carry the group's labels and taints, run pods, and are emptied with respect for disruption budgets before their machines go.
. "$(dirname "$0")/lib.sh"

clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { note "left out: AWS's clients cannot be had here"; exit 0; }; fail "AWS's clients"; }
folder=$SCENARIO_WORK/kubernetes-cluster
mkdir -p "$folder"
export XDG_STATE_HOME=$folder
as() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" kim -- "$clients/bin/aws" "$@"; }
sm() { as sagemaker "$@"; }
gone() { local out; ! out=$("$@" 2>&1) && [[ $out == *'not found'* || $out == *NotFound* ]]; }
clean_up() {
  local status=$?
  trap - EXIT
  [ "$status" = 0 ] || k get clusters,instances,machines,pods -A -o wide >&2 || true
  k delete cluster eks --ignore-not-found --timeout=120s > /dev/null || status=1
  k delete namespace tenants --ignore-not-found --timeout=60s > /dev/null || status=1
  f identity delete kim --with-keys > /dev/null 2>&1 || true
  f identity delete --role workers > /dev/null 2>&1 || true
  exit "$status"
}
trap clean_up EXIT

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "eks:*", "iam:PassRole", "iam:GetRole", "sts:*"], "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$folder/trust.json"
f identity create kim --policy "$folder/all.json" > /dev/null
f identity create --role workers --trust "$folder/trust.json" > /dev/null
f identity key add kim > /dev/null 2>&1 || fail 'no key for kim'
until_true 20 'kim is known' says ':user/kim' as sts get-caller-identity
role=$(as iam get-role --role-name workers --query Role.Arn --output text)
eks=$(as eks describe-cluster --name fairlead --query cluster.arn --output text)
group() { # COUNT LABELS
  printf '[{"InstanceGroupName": "Workers", "InstanceType": "ml.c5.large", "InstanceCount": %s, "ExecutionRole": "%s", "KubernetesConfig": {"Labels": %s, "Taints": [{"Key": "tenants", "Value": "only", "Effect": "NoSchedule"}]}}]' "$1" "$role" "$2"
}
network='SecurityGroupIds=sg-12345678,Subnets=subnet-12345678'
refusal=$(sm create-cluster --cluster-name eks --orchestrator "Eks={ClusterArn=${eks%fairlead}other}" --vpc-config "$network" --instance-groups "$(group 1 '{}')" 2>&1) && fail 'another EKS cluster is taken'
[[ $refusal == *"this site works with $eks"* ]] || fail "of another EKS cluster: $refusal"
sm create-cluster --cluster-name eks --node-provisioning-mode Continuous --orchestrator "Eks={ClusterArn=$eks}" --vpc-config "$network" --instance-groups "$(group 2 '{"Team": "blue"}')" > /dev/null
until_true 60 'two nodes run' same $'InService\t2' sm describe-cluster --cluster-name eks --query '[ClusterStatus,InstanceGroups[0].CurrentCount]' --output text
same 2 bash -c "$(declare -f k); k get nodes -l Team=blue,sagemaker.amazonaws.com/cluster-name=eks,sagemaker.amazonaws.com/node-health-status=Schedulable -o name | wc -l | tr -d ' '" || fail 'labels of the nodes'
same 'tenants=only:NoSchedule' k get node -l Team=blue -o 'jsonpath={.items[0].spec.taints[?(@.key=="tenants")].key}={.items[0].spec.taints[?(@.key=="tenants")].value}:{.items[0].spec.taints[?(@.key=="tenants")].effect}' || fail 'their taint'
note 'two nodes with the labels and taints of their group'

k create namespace tenants > /dev/null
pod() { # NAME NODE
  k -n tenants apply -f - > /dev/null << YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: $2}
  tolerations: [{key: tenants, operator: Exists}]
  containers: [{name: work, image: 'busybox:1', imagePullPolicy: IfNotPresent, command: [sleep, "1000"]}]
YAML
}
node=$(k get nodes -l Team=blue -o 'jsonpath={.items[0].metadata.name}')
pod web "$node"
k -n tenants apply -f - > /dev/null << 'YAML'
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
YAML
k -n tenants wait pod web --for=condition=Ready --timeout=60s > /dev/null || fail 'the pod does not run'
until_true 30 'the budget counts it' same 1 k -n tenants get pdb web -o 'jsonpath={.status.currentHealthy}'
victim=${node#hyperpod-}
logical=$(sm describe-cluster-node --cluster-name eks --node-id "$victim" --query NodeDetails.NodeLogicalId --output text)
sm batch-replace-cluster-nodes --cluster-name eks --node-ids "$victim" > /dev/null
until_true 60 'the pod is waited for' says 'pod tenants/web is to leave it first' sm describe-cluster-node --cluster-name eks --node-id "$victim" --query NodeDetails.InstanceStatus --output text
same Running k -n tenants get pod web -o 'jsonpath={.status.phase}' || fail 'the pod was ended against its budget'
k -n tenants delete pdb web > /dev/null
until_true 90 'the machine is gone' gone sm describe-cluster-node --cluster-name eks --node-id "$victim"
until_true 30 'the new one runs' same Running sm describe-cluster-node --cluster-name eks --node-logical-id "$logical" --query NodeDetails.InstanceStatus.Status --output text
note 'a node is replaced when its pods may go, and not before'

sm update-cluster --cluster-name eks --instance-groups "$(group 1 '{"Team": "green"}')" > /dev/null
until_true 60 'one node, with the new label' same $'1\t1' sm describe-cluster --cluster-name eks --query 'InstanceGroups[0].[CurrentCount,TargetCount]' --output text
until_true 30 'the label' same 1 bash -c "$(declare -f k); k get nodes -l Team=green -o name | wc -l | tr -d ' '"
is_empty k get nodes -l Team=blue -o name || fail 'the old label is left'
sm delete-cluster --cluster-name eks > /dev/null
until_true 60 'it is gone' gone sm describe-cluster --cluster-name eks
is_empty k get machines,instances -l fairlead.dev/cluster=eks -o name || fail 'machines are left'
note 'labels follow the group; DeleteCluster leaves nothing'
