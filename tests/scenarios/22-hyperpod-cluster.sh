#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The AWS CLI, as it is, makes a cluster of instance groups: machines come, Slurm runs on them; nodes are added, deleted, replaced and rebooted without ending a job; and all of it goes again.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_PROVIDE:?}"

clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { note "left out: AWS's clients cannot be had here"; exit 0; }; fail "AWS's clients"; }
folder=$SCENARIO_WORK/clusters
mkdir -p "$folder"
export XDG_STATE_HOME=$folder
as() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" bea -- "$clients/bin/aws" "$@"; }
sm() { as sagemaker "$@"; }
nodes() { sm list-cluster-nodes --cluster-name ml --include-node-logical-ids "$@"; }
running() { same "$1" nodes --query 'length(ClusterNodeSummaries[?InstanceStatus.Status==`Running`])' --output text; }
km() { k -n cluster-ml "$@"; }
on() { km exec login-0 -c sshd -- "$@"; }
gone() { local out; ! out=$("$@" 2>&1) && [[ $out == *'not found'* || $out == *NotFound* ]]; }
clean_up() {
  local status=$?
  trap - EXIT
  [ "$status" = 0 ] || k get clusters,instances,machines -o wide >&2 || true
  k delete cluster ml --ignore-not-found --timeout=120s > /dev/null || status=1
  f identity delete bea --with-keys > /dev/null 2>&1 || true
  f identity delete --role nodes > /dev/null 2>&1 || true
  exit "$status"
}
trap clean_up EXIT

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "iam:PassRole", "iam:GetRole", "sts:*"], "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$folder/trust.json"
f identity create bea --policy "$folder/all.json" > /dev/null
f identity create --role nodes --trust "$folder/trust.json" > /dev/null
f identity key add bea > /dev/null 2>&1 || fail 'no key for bea'
until_true 20 'bea is known' says ':user/bea' as sts get-caller-identity
role=$(as iam get-role --role-name nodes --query Role.Arn --output text)
group() { # NAME TYPE COUNT SLURM
  printf '{"InstanceGroupName": "%s", "InstanceType": "%s", "InstanceCount": %s, "ExecutionRole": "%s", "SlurmConfig": %s}' "$1" "$2" "$3" "$role" "$4"
}
compute='{"NodeType": "Compute", "PartitionNames": ["train"]}'
for claim in 'jail-pvc 40Gi' 'controller-spool-pvc 1Gi'; do $SCENARIO_PROVIDE cluster-ml $claim; done

refusal=$(sm create-cluster --cluster-name ml --instance-groups "[$(role=${role%nodes}nobody group head ml.c5.large 1 '{"NodeType": "Controller"}')]" 2>&1) && fail 'a role that is not there is taken'
[[ $refusal == *ValidationException*'role/nobody not found'* ]] || fail "of a role that is not there: $refusal"
refusal=$(sm create-cluster --cluster-name ml --instance-groups "[$(group gpu ml.g5.xlarge 1 "$compute")]" 2>&1) && fail 'a cluster without a controller is taken'
[[ $refusal == *'0 groups with nodeType Controller; a Slurm cluster has one'* ]] || fail "of a cluster without a controller: $refusal"
is_empty k get clusters -o name || fail 'something was made of what was refused'
note 'what cannot be is refused, and nothing is made of it'

arn=$(sm create-cluster --cluster-name ml --node-provisioning-mode Continuous --query ClusterArn --output text \
  --instance-groups "[$(group head ml.c5.large 1 '{"NodeType": "Controller"}'), $(group people ml.t3.medium 1 '{"NodeType": "Login"}'), $(group gpu ml.g5.xlarge 2 "$compute")]")
same "$arn" sm describe-cluster --cluster-name ml --query ClusterArn --output text || fail 'it is not told at once'
until_true 120 'InService' same InService sm describe-cluster --cluster-name ml --query ClusterStatus --output text
until_true 60 'all four run' running 4
same $'2\t2' sm describe-cluster --cluster-name "$arn" --query 'InstanceGroups[?InstanceGroupName==`gpu`].[CurrentCount,TargetCount]' --output text || fail 'its counts'
until_true 60 'a job over both nodes' same $'gpu-0\ngpu-1' bash -c "$(declare -f on km k); on srun -p train --nodes=2 --gres=gpu:1 hostname | sort"
note 'CreateCluster is four machines with Slurm on them, which runs a job over two'

refusal=$(sm create-cluster --cluster-name ml --instance-groups "[$(group head ml.c5.large 1 '{"NodeType": "Controller"}')]" 2>&1) && fail 'a second cluster of the name'
[[ $refusal == *ResourceInUse*'already exists'* ]] || fail "of a name that is taken: $refusal"
add() { sm batch-add-cluster-nodes --cluster-name ml --client-token once --nodes-to-add InstanceGroupName=gpu,IncrementTargetCountBy=1 --query 'Successful[].NodeLogicalId' --output text; }
added=$(add)
same "$added" add || fail 'the same token again'
until_true 90 'the added node' same Running sm describe-cluster-node --cluster-name ml --node-logical-id "$added" --query NodeDetails.InstanceStatus.Status --output text
until_true 60 'Slurm has three' same 3 bash -c "$(declare -f on km k); on sinfo -h -N -p train -o %N | wc -l | tr -d ' '"
note 'a node more, and the same call again adds none'

# The node with a job: it goes when the job has ended, and not before.
id_of() { km get pod "$1" -o 'jsonpath={.spec.nodeName}' | sed 's/^hyperpod-//'; }
victim=$(id_of gpu-1)
on srun -p train -w gpu-1 sleep 12 &
job=$!
until_true 30 'the job runs' same R on squeue -h -o %t
sm batch-delete-cluster-nodes --cluster-name ml --node-ids "$victim" > /dev/null
until_true 30 'it is told what is waited for' says 'gpu-1 is to leave it first' sm describe-cluster-node --cluster-name ml --node-id "$victim" --query NodeDetails.InstanceStatus --output text
wait $job || fail 'the job was ended'
until_true 90 'the node is gone' gone sm describe-cluster-node --cluster-name ml --node-id "$victim"
until_true 30 'Slurm has forgotten it' same $'gpu-0\ngpu-2' bash -c "$(declare -f on km k); on sinfo -h -N -p train -o %N | sort"
same $'2\t2' sm describe-cluster --cluster-name ml --query 'InstanceGroups[?InstanceGroupName==`gpu`].[CurrentCount,TargetCount]' --output text || fail 'the target is not lower'
is_empty k get machine "hyperpod-$victim" --ignore-not-found -o name || fail 'its machine is left'
refusal=$(sm batch-delete-cluster-nodes --cluster-name ml --node-ids "$(id_of controller-0)" --query 'Failed[].Code' --output text)
[ "$refusal" = InvalidNodeStatus ] || fail "a controller: $refusal"
note 'a node that is deleted waits for its job, and takes its machine along'

victim=$(id_of gpu-0)
logical=$(sm describe-cluster-node --cluster-name ml --node-id "$victim" --query NodeDetails.NodeLogicalId --output text)
sm batch-replace-cluster-nodes --cluster-name ml --node-ids "$victim" > /dev/null
until_true 90 'the old machine is gone' gone sm describe-cluster-node --cluster-name ml --node-id "$victim"
until_true 60 'the new one runs' same Running sm describe-cluster-node --cluster-name ml --node-logical-id "$logical" --query NodeDetails.InstanceStatus.Status --output text
until_true 60 'and takes jobs' same gpu-0 on srun -p train -w gpu-0 hostname
[ "$(id_of gpu-0)" != "$victim" ] || fail 'it is the same machine'
note 'a replaced node has another machine, and the name that it had in Slurm'

node=$(id_of gpu-2)
boot() { k get node "hyperpod-$node" -o 'jsonpath={.status.nodeInfo.bootID}'; }
before=$(boot)
sm batch-reboot-cluster-nodes --cluster-name ml --node-ids "$node" > /dev/null
until_true 90 'it has rebooted' same Done k get instance "$node" -o 'jsonpath={.status.reboot.stage}'
until_true 90 'all four run again' running 4
until_true 30 'another boot' bash -c "$(declare -f boot k); export node=$node; [ \"\$(boot)\" != '$before' ]"
until_true 60 'and takes jobs' same gpu-2 on srun -p train -w gpu-2 hostname
note 'a rebooted node is the same one, booted anew'

# Through Slurm, as HyperPod's users do it; mistyped, too.
before=$(boot)
on scontrol update nodename=gpu-2 state=fail reason='action: reboot'
until_true 120 'it has rebooted for what was said in Slurm' bash -c "$(declare -f boot k); export node=$node; now=\$(boot); [ -n \"\$now\" ] && [ \"\$now\" != '$before' ]"
until_true 90 'and is in service again' same gpu-2 on srun --immediate=5 -p train -w gpu-2 hostname
until_true 30 'it is told by whom it was asked' says 'reason "action: reboot" in Slurm' k get instance "$node" -o 'jsonpath={.spec.reboot.by}'
note 'Action:Reboot as reason of a node in Slurm reboots its machine'

# A job that runs there is waited for, so what is told meanwhile is seen however slow this machine is.
job=$(on sbatch --parsable -p train -w gpu-2 --output /dev/null --wrap 'sleep 600')
until_true 60 'a job runs there' same RUNNING on squeue --noheader --jobs "$job" --format %T
sm start-cluster-health-check --cluster-name ml --deep-health-check-configurations "[{\"InstanceGroupName\": \"gpu\", \"InstanceIds\": [\"$node\"], \"DeepHealthChecks\": [\"InstanceStress\"]}]" > /dev/null
until_true 60 'it is checked' same DeepHealthCheckInProgress sm describe-cluster-node --cluster-name ml --node-id "$node" --query NodeDetails.InstanceStatus.Status --output text
same Emptying k get instance "$node" -o 'jsonpath={.status.healthCheck.stage}' || fail 'it does not wait for the job'
same RUNNING on squeue --noheader --jobs "$job" --format %T || fail 'the job does not go on'
on scancel "$job"
until_true 150 'it has passed' same Passed k get instance "$node" -o 'jsonpath={.status.healthCheck.stage}'
until_true 90 'and runs again' running 4
says 'all the same' k get instance "$node" -o 'jsonpath={.status.healthCheck.message}' || fail 'it does not tell what was tried'
until_true 60 'its node takes jobs' same gpu-2 on srun -p train -w gpu-2 hostname
note 'a deep health check puts a node under load, and in service again'

other=$(id_of gpu-0)
sm start-cluster-health-check --cluster-name ml --deep-health-check-configurations '[{"InstanceGroupName": "gpu", "DeepHealthChecks": ["InstanceConnectivity"]}]' > /dev/null
links_tried() { says 'MB/s each way' k get instance "$1" -o 'jsonpath={.status.healthCheck.stage} {.status.healthCheck.message}'; }
until_true 150 'their links are tried' links_tried "$node"
until_true 60 'from both ends' links_tried "$other"
says "links: 1 ($other" k get instance "$node" -o 'jsonpath={.status.healthCheck.message}' || fail 'it was not tried with the other'
is_empty k get pods -n cluster-ml --field-selector "metadata.name=$node-links-answer" -o name || fail 'what answers is left'
until_true 90 'all run again' running 4
note 'nodes of a group try the links between them'

sm update-cluster --cluster-name ml --instance-groups "[$(group gpu ml.g5.xlarge 1 "$compute"), $(group cpu ml.m5.large 1 '{"NodeType": "Compute", "PartitionNames": ["cpu"]}')]" > /dev/null
until_true 120 'another group, and fewer of this one' same $'cpu\t1\t1\ngpu\t1\t1' bash -c "$(declare -f sm as); export SCENARIO_FAIRLEAD='$SCENARIO_FAIRLEAD' clients='$clients'; sm describe-cluster --cluster-name ml --query 'InstanceGroups[?SlurmConfig.NodeType==\`Compute\`].[InstanceGroupName,CurrentCount,TargetCount]' --output text | sort"
until_true 60 'its partition' same cpu-0 on srun -p cpu hostname
note 'UpdateCluster changes the groups that it names'

sm delete-cluster --cluster-name "$arn" > /dev/null
until_true 120 'it is gone' gone sm describe-cluster --cluster-name ml
is_empty k get clusters,instances -o name || fail 'instances are left'
is_empty k get machines -l fairlead.dev/cluster=ml -o name || fail 'machines are left'
gone k get namespace cluster-ml || fail 'the namespace is left'
note 'DeleteCluster leaves nothing'
