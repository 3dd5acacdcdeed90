#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A cluster as scripts from before SlurmConfig ask for it: provisioning_parameters.json beside the lifecycle scripts says what each group is. With two controllers, all or nothing.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_PROVIDE:?}"

clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { note "left out: AWS's clients cannot be had here"; exit 0; }; fail "AWS's clients"; }
folder=$SCENARIO_WORK/classic
mkdir -p "$folder/base"
export XDG_STATE_HOME=$folder AWS_PAGER=''
as() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" cleo -- "$clients/bin/aws" "$@"; }
sm() { as sagemaker "$@"; }
km() { k -n cluster-classic "$@"; }
on() { km exec workers-0 -c slurmd -- chroot /mnt/jail "$@"; }
gone() { local out; ! out=$("$@" 2>&1) && [[ $out == *'not found'* || $out == *NotFound* ]]; }
clean_up() {
  local status=$?
  trap - EXIT
  [ "$status" = 0 ] || { k get clusters,instances -o wide; km get pods -o wide; km describe slurmcluster classic | tail -n 30; } >&2 || true
  k delete cluster classic --ignore-not-found --timeout=120s > /dev/null || status=1
  as s3 rb --force s3://sagemaker-classic > /dev/null 2>&1 || true
  f identity delete cleo --with-keys > /dev/null 2>&1 || true
  for role in classic classic-head; do f identity delete --role "$role" > /dev/null 2>&1 || true; done
  exit "$status"
}
trap clean_up EXIT

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "s3:*", "iam:PassRole", "iam:GetRole", "sts:*"], "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$folder/trust.json"
f identity create cleo --policy "$folder/all.json" > /dev/null
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::sagemaker-*/*"}}' > "$folder/read.json"
for role in classic classic-head; do f identity create --role "$role" --policy "$folder/read.json" --trust "$folder/trust.json" > /dev/null; done
f identity key add cleo > /dev/null 2>&1 || fail 'no key for cleo'
until_true 20 'cleo is known' says ':user/cleo' as sts get-caller-identity
role=$(as iam get-role --role-name classic --query Role.Arn --output text)
for claim in 'jail-pvc 40Gi' 'controller-spool-pvc 1Gi'; do $SCENARIO_PROVIDE cluster-classic $claim; done
group() { # NAME TYPE COUNT [ROLE]
  printf '{"InstanceGroupName": "%s", "InstanceType": "%s", "InstanceCount": %s, "ExecutionRole": "%s", "ThreadsPerCore": 1, "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-classic/base/", "OnCreate": "on_create.sh"}}' "$1" "$2" "$3" "${4:-$role}"
}
groups="[$(group controller-machine ml.c5.large 2 "$role-head"), $(group login-group ml.t3.medium 1), $(group workers ml.g5.xlarge 2)]"

as s3 mb s3://sagemaker-classic > /dev/null
cat > "$folder/base/on_create.sh" << 'TEXT'
#!/bin/bash
set -e
. ./.settings
python3 - << 'PYTHON'
import json, os, subprocess
config = json.load(open(os.environ["SAGEMAKER_RESOURCE_CONFIG_PATH"]))
roles = json.load(open("provisioning_parameters.json"))
addresses = subprocess.check_output(["hostname", "-I"], text=True).split()
group, name = [(g["Name"], i["InstanceName"]) for g in config["InstanceGroups"] for i in g["Instances"] if i["CustomerIpAddress"] in addresses][0]
slurm = config["ClusterConfig"]["SlurmConfig"]
kind = "controller" if group == roles["controller_group"] else "login" if group == roles["login_group"] else "worker"
os.makedirs("/srv/roles", exist_ok=True)
open("/srv/roles/" + name, "w").write(f"{kind} {'first' if slurm['PrimaryControllerIp'] == '' else 'has a first'} {len(slurm['SecondaryControllerIps'])} {os.environ['SITE']}\n")
PYTHON
TEXT
echo 'export SITE=ours' > "$folder/base/.settings"
as s3 sync --quiet "$folder/base" s3://sagemaker-classic/base

refusal=$(sm create-cluster --cluster-name classic --instance-groups "$groups" 2>&1) && fail 'groups of which nobody says what they are'
[[ $refusal == *'there is no s3://sagemaker-classic/base/provisioning_parameters.json'* ]] || fail "of groups without a role: $refusal"
cat > "$folder/base/provisioning_parameters.json" << 'JSON'
{"version": "1.0.0", "workload_manager": "slurm", "controller_group": "controller-machine", "login_group": "login-group", "worker_groups": [{"instance_group_name": "workers", "partition_name": "partition-1"}], "fsx_dns_name": "", "fsx_mountname": ""}
JSON
as s3 sync --quiet "$folder/base" s3://sagemaker-classic/base
refusal=$(sm create-cluster --cluster-name classic --node-provisioning-mode Continuous --instance-groups "$groups" 2>&1) && fail 'that file with Continuous'
[[ $refusal == *'with NodeProvisioningMode Continuous it is required'* ]] || fail "of Continuous: $refusal"
gone k get cluster classic || fail 'a cluster was made'
note 'a group whose role nobody says is refused, by the name of the file that would'

sm create-cluster --cluster-name classic --instance-groups "$groups" > /dev/null
until_true 240 'it is in service' same InService sm describe-cluster --cluster-name classic --query ClusterStatus --output text
same 5 sm list-cluster-nodes --cluster-name classic --query 'length(ClusterNodeSummaries[?InstanceStatus.Status==`Running`])' --output text || fail 'not all five run'
same $'controller-machine\tController\nlogin-group\tLogin\nworkers\tCompute' sm describe-cluster --cluster-name classic --query 'InstanceGroups[].[InstanceGroupName,SlurmConfig.NodeType]' --output text || fail 'the roles'
until_true 60 'it runs a job' same $'workers-0\nworkers-1' bash -c "$(declare -f on km k); on srun -p partition-1 -N2 hostname | sort"
note 'provisioning_parameters.json says what each group is'

same $'controller first 1 ours\ncontroller has a first 1 ours\nlogin has a first 1 ours\nworker has a first 1 ours\nworker has a first 1 ours' bash -c "$(declare -f on km k); on cat /srv/roles/controller-machine-1 /srv/roles/controller-machine-2 /srv/roles/login-group-1 /srv/roles/workers-1 /srv/roles/workers-2" || fail 'what scripts found'
until_true 60 'two heads and their witness agree' same True km get slurmcluster classic -o 'jsonpath={.status.conditions[?(@.type=="HAReady")].status}'
same $'controller-0 Running\ncontroller-1 Running' bash -c "$(declare -f km k); km get pods --no-headers -o custom-columns=N:.metadata.name,P:.status.phase | grep -E '^controller-[01] ' | tr -s ' ' | sort" || fail 'a head on each controller'
note 'of two controllers one is the first, for scripts and for Slurm'

# As SDKs do it, with nothing in their environment; in whatever pod or job this runs.
ask_role='import json, urllib.request as u
def ask(path, method="GET", **headers): return u.urlopen(u.Request("http://169.254.169.254/latest/" + path, method=method, headers={"X-aws-ec2-metadata-" + k: v for k, v in headers.items()}), timeout=5).read().decode()
token = ask("api/token", "PUT", **{"token-ttl-seconds": "60"})
name = ask("meta-data/iam/security-credentials/", token=token)
keys = json.loads(ask("meta-data/iam/security-credentials/" + name, token=token))
print(name, ask("meta-data/instance-id", token=token), keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"])'
read -r name id key secret token < <(on srun -p partition-1 -N1 -w workers-1 python3 -c "$ask_role") || fail 'a job is told nothing of its node'
[ "$name" = classic ] && [[ $id == i-* ]] || fail "a job has role '$name' of instance '$id'"
same "$id" sm list-cluster-nodes --cluster-name classic --instance-group-name-contains workers --query "ClusterNodeSummaries[?InstanceId=='$id'].InstanceId" --output text || fail 'of another instance'
with_keys() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" cleo -- env AWS_ACCESS_KEY_ID="$key" AWS_SECRET_ACCESS_KEY="$secret" AWS_SESSION_TOKEN="$token" "$clients/bin/aws" "$@"; }
says ":assumed-role/classic/$id" with_keys sts get-caller-identity || fail 'whose keys a job has'
refusal=$(with_keys s3 ls s3://sagemaker-classic 2>&1) && fail 'a job lists a bucket'
[[ $refusal == *AccessDenied* ]] || fail "of a list: $refusal"
with_keys s3 cp --quiet s3://sagemaker-classic/base/on_create.sh "$folder/fetched" && cmp "$folder/fetched" "$folder/base/on_create.sh" || fail 'a job fetches no object'
says 'classic-head i-' km exec controller-0 -c slurmctld -- python3 -c "$ask_role" || fail 'the controller has the role of its group'
note 'jobs have the role of their group, the controller that of its own'

sm delete-cluster --cluster-name classic > /dev/null
until_true 150 'it is gone' gone sm describe-cluster --cluster-name classic
is_empty k get instances -o name || fail 'instances are left'
note 'DeleteCluster leaves nothing'
