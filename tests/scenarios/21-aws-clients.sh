#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The AWS CLI, as it is, sees the cluster and its nodes, gives teams their quotas, and may do what its user's policies allow and nothing else.
. "$(dirname "$0")/lib.sh"

clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { note "left out: AWS's clients cannot be had here"; exit 0; }; fail "AWS's clients"; }
type=node.kubernetes.io/instance-type
folder=$SCENARIO_WORK/aws
mkdir -p "$folder"
export XDG_STATE_HOME=$folder
clean_up() {
  local status=$?
  trap - EXIT
  k delete computequotas --all --timeout=30s > /dev/null || status=1
  k delete schedulerconfigs --all --timeout=30s > /dev/null || status=1
  k delete namespace hyperpod-ns-vision --ignore-not-found --timeout=60s > /dev/null || status=1
  until_true 30 'the queues of teams go' is_empty k get clusterqueues,cohorts,resourceflavors,workloadpriorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings -l fairlead.dev/teams=true -o name || status=1
  for user in ada eve; do f identity delete "$user" --with-keys > /dev/null 2>&1 || true; done
  k label nodes -l example.com/pool=gpu "$type-" > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT
as() { # USER ARGUMENTS of aws
  local user=$1
  shift
  "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" "$user" -- "$clients/bin/aws" "$@"
}

k label nodes -l example.com/pool=gpu "$type=ml.g5.xlarge" --overwrite > /dev/null
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:ListClusters", "Resource": "*"}}' > "$folder/little.json"
f identity create ada --policy "$folder/all.json" > /dev/null
f identity create eve --policy "$folder/little.json" > /dev/null
for user in ada eve; do f identity key add "$user" > /dev/null 2>&1 || fail "no key for $user"; done
until_true 20 'ada is known' says ':user/ada' as ada sts get-caller-identity
note 'users with policies and keys'

same InService as ada sagemaker list-clusters --query 'ClusterSummaries[?ClusterName==`demo`].ClusterStatus' --output text || fail 'the cluster is not seen'
until_true 60 'all nodes run' same $'controller-0\tRunning\nlogin-0\tRunning\nworker-0\tRunning\nworker-1\tRunning' as ada sagemaker list-cluster-nodes --cluster-name demo --sort-by NAME --query 'ClusterNodeSummaries[].[NodeLogicalId,InstanceStatus.Status]' --output text
same ml.g5.xlarge as ada sagemaker describe-cluster --cluster-name demo --query 'InstanceGroups[?InstanceGroupName==`worker`].InstanceType' --output text || fail 'the type of the workers'
id=$(as ada sagemaker list-cluster-nodes --cluster-name demo --query 'ClusterNodeSummaries[?NodeLogicalId==`worker-1`].InstanceId' --output text)
address=$(kd get pod worker-1 -o 'jsonpath={.status.podIP}')
same "$address" as ada sagemaker describe-cluster-node --cluster-name demo --node-id "$id" --query NodeDetails.PrivatePrimaryIp --output text || fail 'a node by its id'
note 'the cluster and its nodes, as HyperPod tells of its own'

arn=$(as ada sagemaker list-clusters --query 'ClusterSummaries[?ClusterName==`demo`].ClusterArn' --output text)
as ada sagemaker create-cluster-scheduler-config --name policy --cluster-arn "$arn" --scheduler-config 'PriorityClasses=[{Name=training,Weight=90}],FairShare=Enabled' > /dev/null || fail 'a policy'
quota=$(as ada sagemaker create-compute-quota --name Vision --cluster-arn "$arn" --compute-quota-target TeamName=vision,FairShareWeight=30 --compute-quota-config 'ComputeQuotaResources=[{InstanceType=ml.g5.xlarge,Count=1}],ResourceSharingConfig={Strategy=LendAndBorrow,BorrowLimit=100}' --query ComputeQuotaId --output text) || fail 'a quota'
until_true 30 'the quota is there' same Created as ada sagemaker describe-compute-quota --compute-quota-id "$quota" --query Status --output text
until_true 30 'and its queue' same hyperpod-ns-vision-localqueue k -n hyperpod-ns-vision get localqueues -o 'jsonpath={.items[*].metadata.name}'
as ada sagemaker update-compute-quota --compute-quota-id "$quota" --target-version 1 --compute-quota-config 'ComputeQuotaResources=[{InstanceType=ml.g5.xlarge,Count=9}]' > /dev/null || fail 'a change'
until_true 30 'a promise of what is not there is refused with the numbers' says 'wanted' as ada sagemaker describe-compute-quota --compute-quota-id "$quota" --query FailureReason --output text
note 'a policy and a quota by the AWS CLI are a team with its queue'

refusal=$(as eve sagemaker delete-compute-quota --compute-quota-id "$quota" 2>&1) && fail 'eve may delete a quota'
[[ $refusal == *AccessDeniedException*'user/eve is not authorized to perform: sagemaker:DeleteComputeQuota'* ]] || fail "what eve is told: $refusal"
same 1 as eve sagemaker list-clusters --query 'length(ClusterSummaries[?ClusterName==`demo`])' --output text || fail 'what eve may do'
f identity disable eve > /dev/null
until_true 20 'eve is refused' bash -c "$(declare -f as says); ! out=\$(SCENARIO_FAIRLEAD='$SCENARIO_FAIRLEAD' clients='$clients' as eve sts get-caller-identity 2>&1) && [[ \$out == *'is disabled'* ]]"
note 'who may not, is told so; who is disabled, at once'

as ada sagemaker delete-compute-quota --compute-quota-id "$quota" > /dev/null || fail 'the quota is not deleted'
until_true 30 'its queue is gone' is_empty k get clusterqueues -l fairlead.dev/teams=true -o name
note 'a quota that is deleted takes its queue along'
