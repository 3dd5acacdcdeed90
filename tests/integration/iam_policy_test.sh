#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `fairlead policy` as people and their tests use it: documents of volumes and keys, what is wrong with others, decisions and exit statuses. No site runs.
#   iam_policy_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: iam_policy_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
# says WHAT STATUS TEXT COMMAND...: the command ends with this status and its output holds the text.
says() {
  local what=$1 want=$2 text=$3 status=0
  shift 3
  "$@" < /dev/null > "$work/out" 2>&1 || status=$?
  if [ "$status" = "$want" ] && grep -qF -- "$text" "$work/out"; then echo "ok    $what"; else echo "FAIL  $what: status $status"; cat "$work/out"; failures=$((failures + 1)); fi
}
policy() { "$build/bin/fairlead" policy "$@" --state-dir "$work/none"; }
documents=tests/data/policies
echo '{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}' > "$work/all.json"
cluster=arn:aws:sagemaker:us-east-1:111122223333:cluster/abc
key=arn:aws:kms:us-east-1:111122223333:key/k
session=arn:aws:sts::111122223333:assumed-role/caller-role/s1
grant=(--resource-policy $documents/customer-key.json --as $session --action kms:CreateGrant --resource $key --context-key kms:ViaService=ec2.us-east-1.amazonaws.com --context-key kms:EncryptionContextKeys=aws:ebs:id --context-key kms:GrantIsForAWSResource=true)

says 'the documents of volumes are taken as they are written' 0 'customer-key.json: 2 statements for a resource' policy check $documents/*.json
says 'a volume may be attached' 0 'allowed sagemaker:AttachClusterNodeVolume' policy simulate --policy $documents/attach-volume.json --action sagemaker:AttachClusterNodeVolume --resource $cluster --expect allowed
says 'and not be detached' 1 'not every call is allowed' policy simulate --policy $documents/attach-volume.json --action sagemaker:DetachClusterNodeVolume --resource $cluster --expect allowed
says 'a key is lent for one operation' 0 'allowed kms:CreateGrant' policy simulate "${grant[@]}" --context-key kms:GrantOperations=Decrypt --expect allowed
says 'and for no other' 0 'ForAllValues:StringEquals kms:GrantOperations [Decrypt]: it is Decrypt, Encrypt' policy simulate "${grant[@]}" --context-key kms:GrantOperations=Decrypt --context-key kms:GrantOperations=Encrypt --expect denied
says 'JSON for scripts' 0 '"decision": "implicitDeny"' policy simulate --policy $documents/csi-driver.json --action s3:GetObject -o json
says 'a key of which the own policy was not given' 0 'is no part of the answer' policy simulate --policy $documents/csi-driver.json --action kms:Decrypt
echo '{"Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringSounds":{"aws:username":"a"}}}]}' > "$work/sounds.json"
echo '{"Statement":[{"Effect":"Allow","Effect":"Deny","Action":"*","Resource":"*"}]}' > "$work/twice.json"
says 'which is no yes' 1 'it cannot be told' policy simulate --policy "$work/all.json" --action kms:Decrypt --expect allowed
says 'a bucket of which nobody knows whose it is' 1 'nobody knows whose it is' policy simulate --policy "$work/all.json" --as arn:aws:iam::111122223333:user/ada --action s3:GetObject --resource arn:aws:s3:::b/x --expect allowed
says 'and of which one says so' 0 'allowed s3:GetObject' policy simulate --policy "$work/all.json" --as arn:aws:iam::111122223333:user/ada --action s3:GetObject --resource arn:aws:s3:::b/x --resource-account 111122223333 --expect allowed
says 'an operator that nobody knows' 1 'Statement[0].Condition.StringSounds: "StringSounds" is no condition operator' policy check "$work/sounds.json"
says 'an element twice' 1 'stands there twice' policy check "$work/twice.json"
says 'such a document decides nothing' 1 'sounds.json: Statement[0]' policy simulate --policy "$work/sounds.json" --action s3:GetObject
says 'a file that is not there' 1 'it cannot be read' policy check "$work/none.json"
says 'a folder' 1 'it cannot be read' policy check "$work"
says 'an action with a wildcard is no call' 1 'one action is expected' policy simulate --policy $documents/csi-driver.json --action 'kms:*'
says 'a caller that is none' 1 '"ada" is no caller' policy simulate --policy $documents/csi-driver.json --action kms:Decrypt --as ada
says 'no document' 2 'name documents' policy simulate --action s3:GetObject
[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
