#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lifecycle scripts as HyperPod's users have them: each machine runs them once, before it is in use, with the files that they expect; what they make is there for jobs; an update of the software runs them again, batch after batch; one that
# fails tells its last lines, and another machine tries again.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_PROVIDE:?}"

clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { note "left out: AWS's clients cannot be had here"; exit 0; }; fail "AWS's clients"; }
prometheus_pid=''
folder=$SCENARIO_WORK/scripts bucket=$SCENARIO_WORK/scripts/bucket
mkdir -p "$folder"
export XDG_STATE_HOME=$folder
as() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" lil -- "$clients/bin/aws" "$@"; }
sm() { as sagemaker "$@"; }
upload() { as s3 sync --quiet --delete "$bucket/base" s3://sagemaker-lab/base; }
km() { k -n cluster-life "$@"; }
on() { km exec gpu-0 -c slurmd -- chroot /mnt/jail "$@"; }
gone() { local out; ! out=$("$@" 2>&1) && [[ $out == *'not found'* || $out == *NotFound* ]]; }
message() { sm list-cluster-nodes --cluster-name "$1" --query "ClusterNodeSummaries[?InstanceGroupName=='$2'].InstanceStatus.Message" --output text; }
clean_up() {
  local status=$?
  trap - EXIT
  [ -z "$prometheus_pid" ] || kill "$prometheus_pid" 2> /dev/null || true
  [ "$status" = 0 ] || { k get clusters,instances -o wide; km get pods -o wide; km describe slurmcluster life | tail -n 30; } >&2 || true
  k delete cluster life life-eks --ignore-not-found --timeout=120s > /dev/null || status=1
  as s3 rm --quiet --recursive s3://sagemaker-lab > /dev/null 2>&1 || true
  f identity delete lil --with-keys > /dev/null 2>&1 || true
  f identity delete --role scripted > /dev/null 2>&1 || true
  rm -rf "${bucket:?}"
  exit "$status"
}
trap clean_up EXIT

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "eks:*", "s3:*", "iam:PassRole", "iam:GetRole", "sts:*", "logs:*"], "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$folder/trust.json"
f identity create lil --policy "$folder/all.json" > /dev/null
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::sagemaker-*/*"}}' > "$folder/read.json"
f identity create --role scripted --policy "$folder/read.json" --trust "$folder/trust.json" > /dev/null
f identity key add lil > /dev/null 2>&1 || fail 'no key for lil'
until_true 20 'lil is known' says ':user/lil' as sts get-caller-identity
role=$(as iam get-role --role-name scripted --query Role.Arn --output text)
for claim in 'jail-pvc 40Gi' 'controller-spool-pvc 1Gi'; do $SCENARIO_PROVIDE cluster-life $claim; done
scripts='{"SourceS3Uri": "s3://sagemaker-lab/base/", "OnCreate": "on_create.sh", "OnInitComplete": "on_init.sh"}'
group() { # NAME TYPE COUNT MORE
  printf '{"InstanceGroupName": "%s", "InstanceType": "%s", "InstanceCount": %s, "ExecutionRole": "%s", %s}' "$1" "$2" "$3" "$role" "$4"
}
head=$(group head ml.c5.large 1 '"SlurmConfig": {"NodeType": "Controller"}')
gpu() { group gpu ml.g5.xlarge "$1" "\"SlurmConfig\": {\"NodeType\": \"Compute\", \"PartitionNames\": [\"train\"]}, \"LifeCycleConfig\": $scripts"; }

refusal=$(scripts='{"SourceS3Uri": "s3://sagemaker-lab/base/", "OnCreate": "../on_create.sh"}'; sm create-cluster --cluster-name life --instance-groups "[$head, $(gpu 1)]" 2>&1) && fail 'a script outside of its folder'
[[ $refusal == *ValidationException*'lifeCycleConfig.onCreate: "../on_create.sh" is not the path of a file below sourceS3Uri'* ]] || fail "of a script outside of its folder: $refusal"
sm create-cluster --cluster-name life --node-provisioning-mode Continuous --instance-groups "[$head, $(gpu 2)]" > /dev/null
until_true 120 'it is told that there is no script' says 's3://sagemaker-lab/base/: there is no folder' message life gpu
note 'scripts that are not there are named'

as s3 mb s3://sagemaker-lab > /dev/null
mkdir -p "$bucket/base/utils"
cat > "$bucket/base/on_create.sh" << 'TEXT'
#!/bin/bash
set -e
. utils/lib.sh
[ "$PWD" = /tmp/sagemaker-lab/base ] && [ "$(id -u)" = 0 ] && [ -d /opt/sagemaker_cluster ]
[ "$(sed -E 's/.*"controller_group":"([^"]*)".*/\1/' provisioning_parameters.json)" = head ]
! command -v sinfo > /dev/null || [ ! -e /tmp/slurmd ]
python3 - << 'PYTHON'
import json, os, subprocess
config = json.load(open(os.environ["SAGEMAKER_RESOURCE_CONFIG_PATH"]))
assert config["ClusterConfig"]["ClusterType"] == "Slurm" and config["ClusterConfig"]["ClusterArn"].startswith("arn:aws:sagemaker:"), config
addresses = subprocess.check_output(["hostname", "-I"], text=True).split()
mine = [i["InstanceName"] for g in config["InstanceGroups"] if g["Name"] == "gpu" for i in g["Instances"] if i["CustomerIpAddress"] in addresses]
assert len(mine) == 1, (addresses, config)
os.makedirs("/srv/ran", exist_ok=True)
open("/srv/ran/" + mine[0], "a").write("created\n")
PYTHON
adduser --disabled-password --gecos '' lifer > /dev/null 2>&1 || id lifer
printf '#!/bin/sh\necho a tool of this cluster\n' > "/usr/local/bin/our-tool.$$" && chmod 755 "/usr/local/bin/our-tool.$$" && mv "/usr/local/bin/our-tool.$$" /usr/local/bin/our-tool
TEXT
echo 'echo "a word of the library"' > "$bucket/base/utils/lib.sh"
printf '#!/bin/bash\nset -e\nsinfo -h -o %%P\nsrun --version\necho "$SAGEMAKER_INSTANCE_ID" >> /srv/ran/complete\n' > "$bucket/base/on_init.sh"
upload
same $'base/on_create.sh\nbase/on_init.sh\nbase/utils/lib.sh' bash -c "$(declare -f as); export SCENARIO_FAIRLEAD='$SCENARIO_FAIRLEAD' clients='$clients'; as s3 ls --recursive s3://sagemaker-lab | awk '{ print \$4 }'" || fail 'the scripts are not there'
until_true 180 'all three run' same 3 sm list-cluster-nodes --cluster-name life --query 'length(ClusterNodeSummaries[?InstanceStatus.Status==`Running`])' --output text
same $'gpu-1\ngpu-2' bash -c "$(declare -f on km k); on ls /srv/ran | grep gpu" || fail 'OnCreate did not run on both'
same 2 bash -c "$(declare -f on km k); on sort -u /srv/ran/complete | wc -l | tr -d ' '" || fail 'OnInitComplete did not run on both'
node() { sm list-cluster-nodes --cluster-name life --query "sort_by(ClusterNodeSummaries[?InstanceGroupName=='gpu'], &LaunchTime)[$1].InstanceId" --output text; }
id=$(node 0)
says 'a word of the library' km logs "$id-on-create" || fail 'its log'
says 'train' km logs "$id-on-init-complete" || fail "Slurm's commands in a script"
group=/aws/sagemaker/Clusters/life/$(sm describe-cluster --cluster-name life --query ClusterArn --output text | sed 's|.*/||')
says 'a word of the library' as logs get-log-events --log-group-name "$group" --log-stream-name "LifecycleConfig/gpu/$id" --start-from-head --query 'events[].message' --output text || fail 'its log by the API'
says 'train' as logs filter-log-events --log-group-name "$group" --log-stream-name-prefix LifecycleConfig/gpu --filter-pattern train --query 'events[].message' --output text || fail 'the logs of both by a filter'
says 'Slurm/controller-0/slurmctld' as logs describe-log-streams --log-group-name "$group" --query 'logStreams[].logStreamName' --output text || fail "Slurm's logs"
says 'a word of the library' on cat "/var/log/provision/$id/provisioning.log" || fail 'its log file'
same on_create.sh sm describe-cluster-node --cluster-name life --node-id "$id" --query NodeDetails.LifeCycleConfig.OnCreate --output text || fail 'it is told'
note 'both scripts ran on both machines, with the files that they expect'

out=$(on srun -p train -N2 bash -c 'our-tool; id -un lifer; grep -c InstanceId /opt/ml/config/resource_config.json; ls -d /opt/sagemaker_cluster' 2>&1 | sort | uniq -c | awk '{ $1 = $1; print }')
[ "$out" = $'2 /opt/sagemaker_cluster\n2 1\n2 a tool of this cluster\n2 lifer' ] || fail "what a job sees: $out"
note 'what they installed is there for jobs on all nodes'

sm batch-reboot-cluster-nodes --cluster-name life --node-ids "$id" > /dev/null
until_true 90 'it has rebooted' same Done k get instance "$id" -o 'jsonpath={.status.reboot.stage}'
until_true 90 'all run again' same 3 sm list-cluster-nodes --cluster-name life --query 'length(ClusterNodeSummaries[?InstanceStatus.Status==`Running`])' --output text
until_true 60 'a reboot runs them not again' same $'created\ncreated' bash -c "$(declare -f on km k); on cat /srv/ran/gpu-1 /srv/ran/gpu-2" # its pod may be young
says 'our-tool' on ls /usr/local/bin || fail 'what they installed is gone'
sm batch-replace-cluster-nodes --cluster-name life --node-ids "$id" > /dev/null
until_true 120 'the old machine is gone' gone sm describe-cluster-node --cluster-name life --node-id "$id"
until_true 90 'the new one runs' same 3 sm list-cluster-nodes --cluster-name life --query 'length(ClusterNodeSummaries[?InstanceStatus.Status==`Running`])' --output text
until_true 60 'a new machine has run them once' same 3 bash -c "$(declare -f on km k); on cat /srv/ran/gpu-1 /srv/ran/gpu-2 | wc -l | tr -d ' '"
note 'a reboot runs them not again, a new machine does'

ids() { sm list-cluster-nodes --cluster-name life --query 'sort(ClusterNodeSummaries[].InstanceId)' --output text; }
were=$(ids)
refusal=$(sm update-cluster-software --cluster-name life --instance-groups InstanceGroupName=none 2>&1) && fail 'an update of a group that is not there'
[[ $refusal == *ValidationException*'there is no group none'* ]] || fail "of a group that is not there: $refusal"
sm update-cluster-software --cluster-name life --deployment-config 'RollingUpdatePolicy={MaximumBatchSize={Type=INSTANCE_COUNT,Value=1}},WaitIntervalInSeconds=1' > /dev/null
same SystemUpdating sm describe-cluster --cluster-name life --query ClusterStatus --output text || fail 'it is told at once'
refusal=$(sm update-cluster-software --cluster-name life 2>&1) && fail 'two updates at once'
[[ $refusal == *ConflictException* ]] || fail "of a second update: $refusal"
until_true 180 'its software is updated' same InService sm describe-cluster --cluster-name life --query ClusterStatus --output text
same $'Succeeded\tSucceeded' sm describe-cluster --cluster-name life --query 'InstanceGroups[].SoftwareUpdateStatus' --output text || fail 'of each group'
same "$were" ids || fail 'its nodes have other names'
same 3 sm list-cluster-nodes --cluster-name life --query 'length(ClusterNodeSummaries[?InstanceStatus.Status==`Running` && LastSoftwareUpdateTime])' --output text || fail 'all three run, and were updated'
until_true 60 'an update has run them once on each' same 5 bash -c "$(declare -f on km k); on cat /srv/ran/gpu-1 /srv/ran/gpu-2 | wc -l | tr -d ' '"
until_true 60 'Slurm has them again' same 2 bash -c "$(declare -f on km k); on srun -p train -N2 our-tool | wc -l | tr -d ' '"
note 'an update of the software makes one machine after the other anew, and runs them again'

printf '#!/bin/bash\necho "no route to the license server" >&2\nexit 7\n' > "$bucket/base/on_create.sh"
upload
echo '{"apiVersion": "fairlead.dev/v1alpha1", "kind": "NotificationTopic", "metadata": {"name": "clusters", "namespace": "cluster-life"}, "spec": {"clusterEvents": {"levels": ["Error"]}, "channels": [{"name": "nobody", "webhook": {"url": "https://nobody.invalid/"}}]}}' | k apply -f - > /dev/null
sm batch-add-cluster-nodes --cluster-name life --client-token fails --nodes-to-add InstanceGroupName=gpu,IncrementTargetCountBy=1 > /dev/null
failed() { sm list-cluster-nodes --cluster-name life --query "ClusterNodeSummaries[?InstanceStatus.Status=='Failure'].InstanceStatus.Message" --output text; }
until_true 90 'it is told why' says 'no route to the license server' failed
says 'on_create.sh: it ended with 7:' failed || fail 'what it ended with'
says 'another machine tries it at' failed || fail 'when it is tried again'
event=$(sm list-cluster-events --cluster-name life --resource-type Instance --query "Events[?EventLevel=='Error'].EventId | [0]" --output text)
says 'no route to the license server' sm describe-cluster-event --cluster-name life --event-id "$event" --query EventDetails.EventDetails.EventMetadata.Instance.FailureMessage --output text || fail 'the event'
letter() { km get notifications -o json | python3 -c 'import json, sys; [print(e["detail-type"], e["detail"]["EventDetails"]["EventId"], e["detail"]["EventDetails"]["EventDetails"]["EventMetadata"]["Instance"]["FailureMessage"]) for e in (n["spec"]["event"]["envelope"] for n in json.load(sys.stdin)["items"])]'; }
until_true 30 'somebody is to be told' says "SageMaker HyperPod Cluster Event $event" letter
says 'no route to the license server' letter || fail 'what is told'
same 3 sm list-cluster-events --cluster-name life --instance-group-name gpu --max-results 3 --no-paginate --query 'length(Events)' --output text || fail 'a page of events'
says 'The cluster was Creating and is InService' k -n cluster-life get clusterevents || fail 'events for kubectl'
same $'2\t3' sm describe-cluster --cluster-name life --query 'InstanceGroups[?InstanceGroupName==`gpu`].[CurrentCount,TargetCount]' --output text || fail 'its counts'
printf '#!/bin/bash\necho fixed\n' > "$bucket/base/on_create.sh"
upload
until_true 180 'another machine has run it' same 3 bash -c "$(declare -f sm as); export SCENARIO_FAIRLEAD='$SCENARIO_FAIRLEAD' clients='$clients'; sm describe-cluster --cluster-name life --query 'InstanceGroups[?InstanceGroupName==\`gpu\`].CurrentCount' --output text"
note 'one that fails tells its last lines, in an event, too; when it is mended another machine runs it'

# Where Kubernetes orchestrates.
cat > "$bucket/base/on_create.sh" << 'TEXT'
#!/bin/bash
set -e
grep -q '"ClusterType":"Kubernetes"' /opt/ml/config/resource_config.json
[ ! -e provisioning_parameters.json ]
python3 - << 'PYTHON'
import base64, json, ssl, urllib.request
config = json.load(open("/opt/ml/config/resource_config.json"))["ClusterConfig"]["KubernetesConfig"]
assert config["EksClusterName"] == "fairlead", config
trust = ssl.create_default_context(cadata=base64.b64decode(config["EksClusterCertificateAuthority"]).decode())
assert "gitVersion" in json.load(urllib.request.urlopen(config["EksClusterEndpoint"] + "/version", timeout=20, context=trust))
PYTHON
echo "on a node of Kubernetes: $SAGEMAKER_INSTANCE_ID"
TEXT
upload
scripts='{"SourceS3Uri": "s3://sagemaker-lab/base", "OnCreate": "on_create.sh"}'
eks=$(as eks describe-cluster --name fairlead --query cluster.arn --output text)
sm create-cluster --cluster-name life-eks --node-provisioning-mode Continuous --orchestrator "Eks={ClusterArn=$eks}" --vpc-config SecurityGroupIds=sg-12345678,Subnets=subnet-12345678 --instance-groups "[$(group workers ml.c5.large 1 "\"LifeCycleConfig\": $scripts")]" > /dev/null
until_true 90 'its node runs' same Running sm list-cluster-nodes --cluster-name life-eks --query 'ClusterNodeSummaries[0].InstanceStatus.Status' --output text
id=$(sm list-cluster-nodes --cluster-name life-eks --query 'ClusterNodeSummaries[0].InstanceId' --output text)
first=$id
says "on a node of Kubernetes: $id" k -n cluster-life-eks logs "$id-on-create" || fail 'its log'
is_empty k get node "hyperpod-$id" -o 'jsonpath={.spec.unschedulable}' || fail 'its node stays closed'
sm update-cluster-software --cluster-name life-eks > /dev/null
until_true 120 'its software is updated' same $'InService\tSucceeded' sm describe-cluster --cluster-name life-eks --query '[ClusterStatus, InstanceGroups[0].SoftwareUpdateStatus]' --output text
same "$id" sm list-cluster-nodes --cluster-name life-eks --query 'ClusterNodeSummaries[?InstanceStatus.Status==`Running`].InstanceId' --output text || fail 'its node'
is_empty k get node "hyperpod-$id" -o 'jsonpath={.spec.unschedulable}' || fail 'its node stays closed after an update'
# An update that alarms watch.
watched() { sm update-cluster-software --cluster-name life-eks --deployment-config '{"AutoRollbackConfiguration": [{"AlarmName": "'"$1"'"}], "RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "RollbackMaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}}, "WaitIntervalInSeconds": 600}'; }
refused() { local said; ! said=$(watched "$1" 2>&1) && [[ $said == *ValidationException*"$2"* ]] || { echo "$said"; return 1; }; }
if prometheus=$(FAIRLEAD_ONLY_THERE=1 "$top/tests/peers/prometheus.sh"); then
  until_true 10 'nobody is asked in vain' refused NodesAreHot "whether alarm NodesAreHot is well is not known: Prometheus at $SCENARIO_ALARMS"
  mkdir -p "$folder/prometheus"
  rules() { # THRESHOLD: of the time
    printf 'groups:\n- name: nodes\n  interval: 1s\n  rules:\n  - alert: NodesAreHot\n    expr: vector(time()) > %s\n    annotations: {summary: "they are at 91 degrees"}\n' "$1" > "$folder/prometheus/rules.yaml"
    [ -z "$prometheus_pid" ] || kill -HUP "$prometheus_pid"
  }
  rules 9e12
  echo '{"rule_files": ["rules.yaml"]}' > "$folder/prometheus/prometheus.yml"
  "$prometheus/prometheus" --config.file="$folder/prometheus/prometheus.yml" --storage.tsdb.path="$folder/prometheus/data" --web.listen-address="${SCENARIO_ALARMS#http://}" > "$folder/prometheus/log" 2>&1 &
  prometheus_pid=$!
  until_true 30 'what is no alarm is refused' refused NoSuchAlarm 'there is no alarm NoSuchAlarm'
  printf '#!/bin/bash\necho "by the second version"\n' > "$bucket/base/on_create.sh"
  upload
  until_true 30 'Prometheus has evaluated it' watched NodesAreHot
  until_true 120 'it is prepared by what is there now' says 'by the second version' k -n cluster-life-eks logs "$id-on-create"
  until_true 60 'it runs' same $'SystemUpdating\tInProgress' sm describe-cluster --cluster-name life-eks --query '[ClusterStatus, InstanceGroups[0].SoftwareUpdateStatus]' --output text
  rules 0
  until_true 120 'it is as before' same $'InService\tRollbackComplete' sm describe-cluster --cluster-name life-eks --query '[ClusterStatus, InstanceGroups[0].SoftwareUpdateStatus]' --output text
  says "on a node of Kubernetes: $id" k -n cluster-life-eks logs "$id-on-create" || fail 'it was prepared by other files'
  same 'alarm NodesAreHot fires: they are at 91 degrees' k get cluster life-eks -o 'jsonpath={.status.softwareUpdate.reason}' || fail 'why'
  says 'alarm NodesAreHot fires: they are at 91 degrees' k -n cluster-life-eks get clusterevents -o 'jsonpath={.items[*].spec.metadata.failureMessage}' || fail 'an event says why'
  same "$first" sm list-cluster-nodes --cluster-name life-eks --query 'ClusterNodeSummaries[?InstanceStatus.Status==`Running`].InstanceId' --output text || fail 'its node'
  refused NodesAreHot 'alarm NodesAreHot fires now' || fail 'an update under an alarm'
  kill "$prometheus_pid"
  prometheus_pid=''
  note 'an update that an alarm watches goes back to the scripts of before, whatever the bucket holds now'
fi

k label node "hyperpod-$id" --overwrite sagemaker.amazonaws.com/node-health-status=unschedulablePendingReboot > /dev/null
until_true 90 'its label has it rebooted' same Done k get instance "$id" -o 'jsonpath={.status.reboot.stage}'
until_true 60 'it is schedulable again' same Schedulable k get node "hyperpod-$id" -o 'jsonpath={.metadata.labels.sagemaker\.amazonaws\.com/node-health-status}'
until_true 60 'it runs' same "$id" sm list-cluster-nodes --cluster-name life-eks --query 'ClusterNodeSummaries[?InstanceStatus.Status==`Running`].InstanceId' --output text
note 'so do machines that Kubernetes orchestrates; a label of its health has one rebooted'

sm delete-cluster --cluster-name life-eks > /dev/null
sm delete-cluster --cluster-name life > /dev/null
until_true 120 'both are gone' gone sm describe-cluster --cluster-name life
until_true 60 'both are gone' gone sm describe-cluster --cluster-name life-eks
is_empty k get clusters,instances -o name || fail 'instances are left'
gone k get namespace cluster-life || fail 'the namespace is left'
gone k get namespace cluster-life-eks || fail 'the namespace is left'
note 'they leave nothing'
