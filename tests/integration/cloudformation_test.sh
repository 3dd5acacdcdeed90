#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# CloudFormation of a real server by the AWS CLI and boto3 as they are: stacks of clusters are made, changed, fail, go back, and go; waiters, deploy and change sets; kill -9 in between.
# There are no machines: clusters that Kubernetes orchestrates are in service without any, and one of Slurm fails for want of them.
#   cloudformation_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: cloudformation_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
# shellcheck source=tests/lib.sh
. tests/lib.sh
clients=$(tests/peers/aws/clients.sh) || { [ $? != 77 ] || { echo "skipped: AWS's clients cannot be had here"; exit 77; }; fail "AWS's clients"; }
export HOME=$work XDG_STATE_HOME=$work/home AWS_PAGER=''

says() { # WHAT STATUS TEXT COMMAND...
  local what=$1 want=$2 text=$3 status=0
  shift 3
  "$@" < /dev/null > "$work/out" 2>&1 || status=$?
  [ "$status" = "$want" ] && { [ -z "$text" ] || grep -qF -- "$text" "$work/out"; } || fail "$what: status $status, not $want with \"$text\""
  echo "ok    $what"
}
also() { grep -qF -- "$2" "$work/out" || fail "$1: no \"$2\""; echo "ok    $1"; } # WHAT TEXT: in the answer before
site() { "$build/bin/fairlead" "$@" --state-dir "$work/state"; }
as_user() { "$build/bin/fairlead" aws run --state-dir "$work/state" "$@"; }
cf() { as_user ada -- "$clients/bin/aws" cloudformation "$@"; }
sm() { as_user ada -- "$clients/bin/aws" sagemaker "$@"; }
state() { cf describe-stacks --stack-name "$1" --query 'Stacks[0].StackStatus' --output text; }
is() { [ "$(state "$1" 2>&1)" = "$2" ]; }

options=(--no-cluster-machines --node-range 10.191.0.0/16 --pod-range 10.192.0.0/16 --service-range 10.193.0.0/16)
serve "${options[@]}"
account=$(site aws env -o json | python3 -c 'import json, re, sys; print(re.search(r"aws-ca-(\d+)", json.load(sys.stdin)["AWS_CA_BUNDLE"]).group(1))')
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["cloudformation:*", "sagemaker:*", "iam:*", "eks:*", "sts:*"], "Resource": "*"}}' > "$work/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["cloudformation:*"], "Resource": "*"}}' > "$work/stacks.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$work/trust.json"
site identity create ada --policy "$work/all.json" > /dev/null
site identity create bob --policy "$work/stacks.json" > /dev/null
site identity create --role nodes --trust "$work/trust.json" > /dev/null
site identity key add ada > /dev/null
site identity key add bob > /dev/null
known() { as_user bob -- "$clients/bin/aws" sts get-caller-identity && as_user ada -- "$clients/bin/aws" sts get-caller-identity; }
wait_until 20 'users are known' known
eks=$(as_user ada -- "$clients/bin/aws" eks describe-cluster --name fairlead --query cluster.arn --output text)

cat > "$work/lab.yaml" << YAML
AWSTemplateFormatVersion: "2010-09-09"
Description: a lab
Parameters:
  Workers: {Type: Number, Default: 1, MaxValue: 8}
  Word: {Type: String, NoEcho: true, Default: none}
Resources:
  Cluster: &cluster
    Type: AWS::SageMaker::Cluster
    Properties:
      ClusterName: !Sub "\${AWS::StackName}-one"
      NodeProvisioningMode: Continuous
      Orchestrator: {Eks: {ClusterArn: "$eks"}}
      VpcConfig: {SecurityGroupIds: [sg-12345678], Subnets: [subnet-12345678]}
      InstanceGroups:
        - {InstanceGroupName: gpu, InstanceType: ml.g5.xlarge, InstanceCount: !Ref Workers, ExecutionRole: !Sub "arn:aws:iam::\${AWS::AccountId}:role/nodes"}
Outputs:
  Arn: {Value: !GetAtt Cluster.ClusterArn}
  Said: {Value: !Sub "\${Cluster.ClusterStatus} in \${AWS::Region}"}
YAML

says 'a template is checked' 0 '"NoEcho": true' cf validate-template --template-body "file://$work/lab.yaml"
says 'one of other things is refused by name' 255 'resource Bucket is of type AWS::S3::Bucket, which is not served here' cf create-stack --stack-name other --template-body '{"Resources": {"Bucket": {"Type": "AWS::S3::Bucket"}}}'
says 'who may not pass the role makes no stack' 255 'AccessDenied' as_user bob -- "$clients/bin/aws" cloudformation create-stack --stack-name lab --template-body "file://$work/lab.yaml"
says 'nothing was made of it' 255 'Stack with id lab does not exist' cf describe-stacks --stack-name lab
says 'a stack' 0 ":stack/lab/" cf create-stack --stack-name lab --template-body "file://$work/lab.yaml" --parameters ParameterKey=Word,ParameterValue=hush --tags Key=team,Value=vision --client-request-token once
says 'the same request again' 0 ":stack/lab/" cf create-stack --stack-name lab --template-body "file://$work/lab.yaml" --parameters ParameterKey=Word,ParameterValue=hush --tags Key=team,Value=vision --client-request-token once
says 'another with its token' 255 'AlreadyExistsException' cf create-stack --stack-name lab --template-body "file://$work/lab.yaml" --client-request-token once
says 'its name is taken' 255 'AlreadyExistsException' cf create-stack --stack-name lab --template-body "file://$work/lab.yaml"
says 'it is waited for' 0 '' timeout 120 "$build/bin/fairlead" aws run --state-dir "$work/state" ada -- "$clients/bin/aws" cloudformation wait stack-create-complete --stack-name lab
arn=$(sm describe-cluster --cluster-name lab-one --query ClusterArn --output text)
says 'outputs' 0 "$arn" cf describe-stacks --stack-name lab
also 'with attributes' 'InService in '
! grep -q hush "$work/out" || fail 'a hidden parameter is told'
says 'events' 0 'Resource creation Initiated' cf describe-stack-events --stack-name lab
says 'resources' 0 "$arn" cf describe-stack-resources --stack-name lab
says 'one of them' 0 'CREATE_COMPLETE' cf describe-stack-resource --stack-name lab --logical-resource-id Cluster
says 'the list of them' 0 'AWS::SageMaker::Cluster' cf list-stack-resources --stack-name lab
says 'the template' 0 'Description: a lab' cf get-template --stack-name lab
says 'the list of stacks' 0 '"StackName": "lab"' cf list-stacks --stack-status-filter CREATE_COMPLETE
says 'its tags are those of the cluster' 0 'vision' sm list-tags --resource-arn "$arn"
says 'kubectl sees it, too' 0 'CREATE_COMPLETE' site get stacks

says 'nothing to do' 255 'No updates are to be performed.' cf update-stack --stack-name lab --template-body "file://$work/lab.yaml" --parameters ParameterKey=Word,UsePreviousValue=true
sed 's/NoEcho: true, //' "$work/lab.yaml" > "$work/open.yaml"
says 'what was hidden stays so' 255 'given with NoEcho' cf update-stack --stack-name lab --template-body "file://$work/open.yaml" --parameters ParameterKey=Word,UsePreviousValue=true
says 'outputs do not tell it' 255 'parameter Word has NoEcho' cf update-stack --stack-name lab --template-body "$(cat "$work/lab.yaml"; echo '  Word: {Value: !Ref Word}')" --parameters ParameterKey=Word,UsePreviousValue=true
sed 's/ClusterName: .*/ClusterName: !Select [!Ref Word, [a]]/' "$work/lab.yaml" > "$work/tells.yaml"
says 'errors do not tell it' 255 'at index ****' cf create-stack --stack-name tells --template-body "file://$work/tells.yaml" --parameters ParameterKey=Word,ParameterValue=hush
says 'more workers' 0 ':stack/lab/' cf update-stack --stack-name lab --use-previous-template --parameters ParameterKey=Workers,ParameterValue=3 ParameterKey=Word,UsePreviousValue=true
says 'are waited for' 0 '' timeout 120 "$build/bin/fairlead" aws run --state-dir "$work/state" ada -- "$clients/bin/aws" cloudformation wait stack-update-complete --stack-name lab
says 'and asked for' 0 '"TargetCount": 3' sm describe-cluster --cluster-name lab-one
says 'what would replace the cluster is refused' 255 'ClusterName does not change' cf update-stack --stack-name lab --template-body "$(sed 's/-one"/-two"/' "$work/lab.yaml")"

# Without machines a cluster of Slurm that takes all or nothing fails within a minute, and with it its stack.
sed -e '/Orchestrator:/d' -e '/VpcConfig:/d' -e '/NodeProvisioningMode:/d' -e 's/InstanceGroupName: gpu, InstanceType: ml.g5.xlarge, InstanceCount: !Ref Workers,/InstanceGroupName: head, InstanceType: ml.c5.large, InstanceCount: 1, SlurmConfig: {NodeType: Controller},/' "$work/lab.yaml" > "$work/slurm.yaml"
says 'a stack that will fail' 0 ':stack/broken/' cf create-stack --stack-name broken --template-body "file://$work/slurm.yaml"
{ kill -9 "$server" && wait "$server"; } 2> /dev/null || true
serve "${options[@]}"
wait_until 20 'the same after kill -9' is broken CREATE_IN_PROGRESS
wait_until 90 'it is taken back' is broken ROLLBACK_COMPLETE
says 'with the reason' 0 'The following resource(s) failed to create: [Cluster]. Rollback requested by user.' cf describe-stack-events --stack-name broken
also 'and that of the cluster' '"ResourceStatus": "CREATE_FAILED"'
says 'nothing is left' 255 'not found' sm describe-cluster --cluster-name broken-one
says 'it is not updated any more' 255 'is in ROLLBACK_COMPLETE state and can not be updated' cf update-stack --stack-name broken --template-body "file://$work/lab.yaml"

# deploy is change sets: one that makes a stack, one that changes it, one without a change.
says 'deploy makes a stack' 0 'Successfully created/updated stack - deployed' cf deploy --stack-name deployed --template-file "$work/lab.yaml" --parameter-overrides Word=x
says 'again: no changes' 0 'No changes to deploy' cf deploy --no-fail-on-empty-changeset --stack-name deployed --template-file "$work/lab.yaml"
says 'deploy changes it' 0 'Successfully created/updated stack - deployed' cf deploy --stack-name deployed --template-file "$work/lab.yaml" --parameter-overrides Workers=2
says 'which is asked for' 0 '"TargetCount": 2' sm describe-cluster --cluster-name deployed-one
says 'deploy of what failed before' 255 'ROLLBACK_COMPLETE' cf deploy --stack-name broken --template-file "$work/lab.yaml"
says 'the set of a failed deploy' 0 '' cf delete-stack --stack-name broken
cat > "$work/sets.py" << 'PY'
import boto3, sys
cf = boto3.client("cloudformation")
kept = [{"ParameterKey": "Word", "UsePreviousValue": True}, {"ParameterKey": "Workers", "ParameterValue": "4"}]
made = cf.create_change_set(StackName="lab", ChangeSetName="more", UsePreviousTemplate=True, Parameters=kept)
cf.get_waiter("change_set_create_complete").wait(ChangeSetName=made["Id"])
told = cf.describe_change_set(ChangeSetName=made["Id"])
change = told["Changes"][0]["ResourceChange"]
print(change["Action"], change["LogicalResourceId"], change["Replacement"], told["ExecutionStatus"], len(cf.list_change_sets(StackName="lab")["Summaries"]))
cf.execute_change_set(ChangeSetName="more", StackName="lab")
cf.get_waiter("stack_update_complete").wait(StackName="lab", WaiterConfig={"Delay": 2})
events = [one for page in cf.get_paginator("describe_stack_events").paginate(StackName="lab") for one in page["StackEvents"]]
assert events[0]["ResourceStatus"] == "UPDATE_COMPLETE" and events[-1]["ResourceStatus"] == "CREATE_IN_PROGRESS", events
PY
says 'change sets, waiters and pages by boto3' 0 'Modify Cluster False AVAILABLE 1' as_user ada -- "$clients/bin/python" "$work/sets.py"
says 'which is asked for' 0 '"TargetCount": 4' sm describe-cluster --cluster-name lab-one
says 'who may not change clusters does not delete them by their stack' 255 'sagemaker:DeleteCluster' as_user bob -- "$clients/bin/aws" cloudformation delete-stack --stack-name lab
for name in lab deployed broken; do says "$name goes" 0 '' cf delete-stack --stack-name $name; done
says 'which is waited for' 0 '' timeout 120 "$build/bin/fairlead" aws run --state-dir "$work/state" ada -- "$clients/bin/aws" cloudformation wait stack-delete-complete --stack-name lab
left() { [ "$(cf list-stacks --query 'length(StackSummaries)' --output text)$(sm list-clusters --query 'length(ClusterSummaries)' --output text)" = 00 ]; }
wait_until 60 'nothing is left' left
echo 'ok    nothing is left'
says 'the name is free' 0 ':stack/lab/' cf create-stack --stack-name lab --template-body "file://$work/lab.yaml"

! grep -qF hush "$work/server.log" "$work/state/aws-audit.log" || fail 'a hidden parameter is in a log'
grep -q '"eventName":"CreateStack"' "$work/state/aws-audit.log" || fail 'the audit does not tell of a call'
echo 'ok    the audit tells of it, without what is hidden'
stop_server || fail 'the server did not end well'
