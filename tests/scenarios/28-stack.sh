#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A stack of CloudFormation that holds a cluster which Slurm orchestrates: its machines come, more of them by a parameter, a change that cannot be is refused, and all goes with the stack.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_PROVIDE:?}"

clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { note "left out: AWS's clients cannot be had here"; exit 0; }; fail "AWS's clients"; }
folder=$SCENARIO_WORK/stack
mkdir -p "$folder"
export XDG_STATE_HOME=$folder AWS_PAGER=''
as() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" eve -- "$clients/bin/aws" "$@"; }
cf() { as cloudformation "$@"; }
clean_up() {
  local status=$?
  trap - EXIT
  [ "$status" = 0 ] || { k get clusters,instances,machines -o wide; cf describe-stack-events --stack-name lab --query 'StackEvents[].[LogicalResourceId,ResourceStatus,ResourceStatusReason]' --output text; } >&2 || true
  cf delete-stack --stack-name lab > /dev/null 2>&1 || true
  k delete cluster stacked --ignore-not-found --timeout=120s > /dev/null || status=1
  f identity delete eve --with-keys > /dev/null 2>&1 || true
  f identity delete --role stacked > /dev/null 2>&1 || true
  exit "$status"
}
trap clean_up EXIT

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["cloudformation:*", "sagemaker:*", "iam:PassRole", "sts:*"], "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$folder/trust.json"
f identity create eve --policy "$folder/all.json" > /dev/null
f identity create --role stacked --trust "$folder/trust.json" > /dev/null
f identity key add eve > /dev/null 2>&1 || fail 'no key for eve'
until_true 20 'eve is known' says ':user/eve' as sts get-caller-identity

cat > "$folder/lab.yaml" << 'YAML'
AWSTemplateFormatVersion: "2010-09-09"
Parameters:
  Workers: {Type: Number, Default: 1}
  Volume: {Type: Number, Default: 0}
Conditions: {WithVolume: !Not [!Equals [!Ref Volume, 0]]}
Resources:
  Cluster:
    Type: AWS::SageMaker::Cluster
    Properties:
      ClusterName: stacked
      NodeProvisioningMode: Continuous
      InstanceGroups:
        - {InstanceGroupName: head, InstanceType: ml.c5.large, InstanceCount: 1, ExecutionRole: !Sub "arn:aws:iam::${AWS::AccountId}:role/stacked", SlurmConfig: {NodeType: Controller}}
        - InstanceGroupName: work
          InstanceType: ml.m5.large
          InstanceCount: !Ref Workers
          ExecutionRole: !Sub "arn:aws:iam::${AWS::AccountId}:role/stacked"
          SlurmConfig: {NodeType: Compute, PartitionNames: [train]}
          InstanceStorageConfigs: !If [WithVolume, [{EbsVolumeConfig: {VolumeSizeInGB: !Ref Volume}}], !Ref AWS::NoValue]
Outputs:
  Arn: {Value: !GetAtt Cluster.ClusterArn}
YAML
stack() { cf describe-stacks --stack-name lab --query "Stacks[0].$1" --output text; }
for claim in 'jail-pvc 40Gi' 'controller-spool-pvc 1Gi'; do $SCENARIO_PROVIDE cluster-stacked $claim; done
cf create-stack --stack-name lab --template-body "file://$folder/lab.yaml" > /dev/null
until_true 120 'the stack is there' same CREATE_COMPLETE stack StackStatus
says ':cluster/' stack 'Outputs[0].OutputValue' || fail 'the output of the stack'
until_true 90 'its cluster is ready' same 'Available True' k -n cluster-stacked get slurmcluster stacked -o 'jsonpath={.status.phase} {.status.conditions[?(@.type=="WorkersAvailable")].status}'
slurm() { k -n cluster-stacked exec controller-0 -c slurmctld -- "$@"; }
until_true 30 'its partition' same 1 slurm sh -c 'sinfo -h -p train -o %D'
same "$(stack 'Outputs[0].OutputValue' | sed 's/.*://')" bash -c "$(declare -f as cf); clients=$clients; cf list-stack-resources --stack-name lab --query 'StackResourceSummaries[0].PhysicalResourceId' --output text | sed 's/.*://'" || fail 'its resource'
note 'a stack makes a cluster that Slurm orchestrates'

cf update-stack --stack-name lab --use-previous-template --parameters ParameterKey=Workers,ParameterValue=2 > /dev/null
until_true 120 'it has another worker' same UPDATE_COMPLETE stack StackStatus
until_true 60 'Slurm knows it' same 2 slurm sh -c 'sinfo -h -p train -o %D'
refusal=$(cf update-stack --stack-name lab --use-previous-template --parameters ParameterKey=Workers,UsePreviousValue=true ParameterKey=Volume,ParameterValue=5 2>&1) && fail 'a change that cannot be is begun'
[[ $refusal == *'served where Kubernetes orchestrates'* ]] || fail "of a change that cannot be: $refusal"
same UPDATE_COMPLETE stack StackStatus || fail 'the stack is not as it was'
same 2 slurm sh -c 'sinfo -h -p train -o %D' || fail 'the cluster is not as it was'
note 'it grows by a parameter, and a change that cannot be is refused before anything changes'

cf delete-stack --stack-name lab > /dev/null
deleted() { local out; ! out=$(cf describe-stacks --stack-name lab 2>&1) && [[ $out == *'does not exist'* ]]; }
until_true 120 'the stack is gone' deleted
is_empty k get clusters,instances -o name || fail 'something is left of its cluster'
is_empty k get machines -l fairlead.dev/cluster -o name || fail 'machines are left'
note 'all of it goes with the stack'
