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
  end_pool || status=1
  # Whatever is left there: it ends with its mounts.
  [ -z "$pool" ] || { kill "$pool" && wait "$pool"; } || true
  k delete cluster eks --ignore-not-found --timeout=120s > /dev/null || status=1
  k -n fairlead-system delete configmap fairlead-networks --ignore-not-found > /dev/null || status=1
  k delete networkinterface eni-0a1b2c3d --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete namespace tenants --ignore-not-found --timeout=60s > /dev/null || status=1
  [ -z "${association:-}" ] || as eks delete-pod-identity-association --cluster-name fairlead --association-id "$association" > /dev/null 2>&1 || true
  for user in kim lea; do f identity delete "$user" --with-keys > /dev/null 2>&1 || true; done
  for role in workers web pods; do f identity delete --role $role > /dev/null 2>&1 || true; done
  exit "$status"
}
# A pool of volumes that the cluster's nodes reach. What is mounted there goes with its process.
begin_pool() {
  unshare --mount --propagation private bash -c '
    trap "kill \$daemon; wait \$daemon; \"$0\" destroy --folder \"$1/pool\" --image \"$1/pool.img\" --yes; exit" TERM
    "$0" run --folder "$1/pool" --image "$1/pool.img" --size 4Gi --sparse --name shelf --nodes sagemaker.amazonaws.com/cluster-name=eks --kubeconfig "$2" --metrics off & daemon=$!
    wait' "${SCENARIO_FAIRLEAD%/*}/fairlead-volumes" "$folder" "$KUBECONFIG" > "$folder/pool.log" 2>&1 &
  pool=$!
}
pool=''
end_pool() {
  [ -n "$pool" ] || return 0
  k delete attachments --all --ignore-not-found --timeout=60s > /dev/null || return 1
  k delete volumes,snapshots --all --ignore-not-found --timeout=60s > /dev/null || return 1
  kill "$pool" && wait "$pool" || true
  pool=''
  k delete volumepool shelf --ignore-not-found --timeout=30s > /dev/null || return 1
  k delete volumekeys --all --ignore-not-found > /dev/null && k delete namespace fairlead-volume-keys --ignore-not-found --timeout=60s > /dev/null
}
trap clean_up EXIT

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "ec2:*", "kms:*", "eks:*", "iam:PassRole", "iam:GetRole", "sts:*"], "Resource": "*"}}' > "$folder/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$folder/trust.json"
f identity create kim --policy "$folder/all.json" > /dev/null
f identity create --role workers --trust "$folder/trust.json" > /dev/null
f identity key add kim > /dev/null 2>&1 || fail 'no key for kim'
until_true 20 'kim is known' says ':user/kim' as sts get-caller-identity
role=$(as iam get-role --role-name workers --query Role.Arn --output text)
eks=$(as eks describe-cluster --name fairlead --query cluster.arn --output text)
group() { # COUNT LABELS
  printf '[{"InstanceGroupName": "Workers", "InstanceType": "ml.c5.large", "InstanceCount": %s, "ExecutionRole": "%s", %s "KubernetesConfig": {"Labels": %s, "Taints": [{"Key": "tenants", "Value": "only", "Effect": "NoSchedule"}]}}]' "$1" "$role" "$storage" "$2"
}
# A volume is a file behind a loop device.
storage='' volume='' place=''
if [ -e /dev/loop-control ]; then
  storage='"InstanceStorageConfigs": [{"EbsVolumeConfig": {"VolumeSizeInGB": 1}}],' volume=', volumeMounts: [{name: own, mountPath: /own}]' place='  volumes: [{name: own, hostPath: {path: /opt/sagemaker}}]'
else
  note 'no loop devices here: volumes of instances are left out'
fi
network='SecurityGroupIds=sg-12345678,Subnets=subnet-12345678'
refusal=$(sm create-cluster --cluster-name eks --orchestrator "Eks={ClusterArn=${eks%fairlead}other}" --vpc-config "$network" --instance-groups "$(group 1 '{}')" 2>&1) && fail 'another EKS cluster is taken'
[[ $refusal == *"this site works with $eks"* ]] || fail "of another EKS cluster: $refusal"
f cluster preflight -o json > "$folder/preflight" || fail "the preflight: $(cat "$folder/preflight")"
says '"ready": true' cat "$folder/preflight" || fail "the preflight: $(cat "$folder/preflight")"
says '"authentication"' cat "$folder/preflight" || fail 'the preflight does not tell all checks'
k -n fairlead-system create configmap fairlead-networks --from-literal 'subnet-12345678=public 192.0.2.0/24' > /dev/null
refusal=$(sm create-cluster --cluster-name eks --orchestrator "Eks={ClusterArn=$eks}" --vpc-config "$network" --instance-groups "$(group 1 '{}')" 2>&1) && fail 'a public subnet is taken'
[[ $refusal == *'subnets: subnet-12345678 is public'* ]] || fail "of a public subnet: $refusal"
! f cluster preflight --subnet subnet-12345678 > "$folder/preflight" || fail 'a public subnet passes the preflight'
k -n fairlead-system patch configmap fairlead-networks --type=merge -p '{"data": {"subnet-12345678": "private 10.0.0.0/16"}}' > /dev/null
note 'what the site says of its networks is held against a cluster before anything is made'
sm create-cluster --cluster-name eks --node-provisioning-mode Continuous --orchestrator "Eks={ClusterArn=$eks}" --vpc-config "$network" --instance-groups "$(group 2 '{"Team": "blue"}')" > /dev/null
until_true 60 'two nodes run' same $'InService\t2' sm describe-cluster --cluster-name eks --query '[ClusterStatus,InstanceGroups[0].CurrentCount]' --output text
same 2 bash -c "$(declare -f k); k get nodes -l Team=blue,sagemaker.amazonaws.com/cluster-name=eks,sagemaker.amazonaws.com/node-health-status=Schedulable -o name | wc -l | tr -d ' '" || fail 'labels of the nodes'
same 'tenants=only:NoSchedule' k get node -l Team=blue -o 'jsonpath={.items[0].spec.taints[?(@.key=="tenants")].key}={.items[0].spec.taints[?(@.key=="tenants")].value}:{.items[0].spec.taints[?(@.key=="tenants")].effect}' || fail 'their taint'
same '9 9' bash -c "$(declare -f k); k get nodes -l Team=blue -o 'jsonpath={.items[*].status.allocatable.pods}'" || fail 'they hold as many pods as their type'
note 'two nodes with the labels and taints of their group'

k create namespace tenants > /dev/null
# Accounts with a role: one by its annotation, one by an association.
issuer=$(as eks describe-cluster --name fairlead --query cluster.identity.oidc.issuer --output text)
issuer=${issuer#https://}
account=$(cut -d: -f5 <<< "$role")
printf '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Federated": "arn:aws:iam::%s:oidc-provider/%s"}, "Action": "sts:AssumeRoleWithWebIdentity", "Condition": {"StringEquals": {"%s:sub": "system:serviceaccount:tenants:web", "%s:aud": "sts.amazonaws.com"}}}}' "$account" "$issuer" "$issuer" "$issuer" > "$folder/web.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}}' > "$folder/pods.json"
f identity create --role web --trust "$folder/web.json" > /dev/null
f identity create --role pods --trust "$folder/pods.json" > /dev/null
k -n tenants create serviceaccount web > /dev/null
k -n tenants annotate serviceaccount web "eks.amazonaws.com/role-arn=arn:aws:iam::$account:role/web" > /dev/null
k -n tenants create serviceaccount serve > /dev/null
associate() { association=$(as eks create-pod-identity-association --cluster-name fairlead --namespace tenants --service-account serve --role-arn "arn:aws:iam::$account:role/pods" --query association.associationId --output text 2>&1) && [[ $association == a-* ]]; }
until_true 20 'an association' associate
pod() { # NAME NODE ACCOUNT [FIELDS OF SPEC]
  k -n tenants apply -f - > /dev/null << YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}}
spec:
  ${4:-}
  terminationGracePeriodSeconds: 0
  serviceAccountName: $3
  nodeSelector: {kubernetes.io/hostname: $2}
  tolerations: [{key: tenants, operator: Exists}]
  containers: [{name: work, image: 'busybox:1', imagePullPolicy: IfNotPresent, command: [sleep, "1000"]$volume}]
$place
YAML
}
has_ended() { [[ $(k -n tenants get pod "$1" -o 'jsonpath={.status.phase}') =~ ^(Succeeded|Failed)$ ]]; }
# boto3 as it is, within a pod: NAME ACCOUNT.
sdk_pod() {
  k -n tenants apply -f - > /dev/null << YAML
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  serviceAccountName: $2
  nodeSelector: {kubernetes.io/hostname: $node}
  tolerations: [{key: tenants, operator: Exists}]
  containers:
  - name: work
    image: 'slurm:22.05'
    imagePullPolicy: IfNotPresent
    command: [python3, -c, 'import boto3; print(boto3.client("sts").get_caller_identity()["Arn"])']
    env: [{name: PYTHONPATH, value: /sdk}]
    volumeMounts: [{name: sdk, mountPath: /sdk, readOnly: true}]
  volumes: [{name: sdk, hostPath: {path: "$(echo "$clients"/lib/python3*/site-packages)", type: Directory}}]
YAML
  until_true 60 "boto3 in pod $1 has ended" has_ended "$1"
  k -n tenants logs "$1"
}
node=$(k get nodes -l Team=blue -o 'jsonpath={.items[0].metadata.name}')
pod web "$node" web
pod serve "$node" serve
k -n tenants apply -f - > /dev/null << 'YAML'
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
YAML
k -n tenants wait pod web --for=condition=Ready --timeout=60s > /dev/null || fail 'the pod does not run'
# What their programs have, shown to AWS's CLI as it is.
k -n tenants wait pod serve --for=condition=Ready --timeout=60s > /dev/null || fail 'the other pod does not run'
inside() { k -n tenants exec "$1" -- sh -c "$2"; }
inside web 'cat "$AWS_WEB_IDENTITY_TOKEN_FILE"' > "$folder/token"
same "arn:aws:iam::$account:role/web" inside web 'echo "$AWS_ROLE_ARN"' || fail 'the role of an annotated account'
# shellcheck disable=SC2016
inside web 'a=${AWS_ENDPOINT_URL#https://}; grep -q BEGIN "$AWS_CA_BUNDLE" && nc -w 5 "${a%:*}" "${a#*:}" < /dev/null > /dev/null' || fail 'the pod does not reach the site'
by_token() { AWS_ROLE_ARN="arn:aws:iam::$account:role/web" AWS_WEB_IDENTITY_TOKEN_FILE=$folder/token as_nobody sts get-caller-identity; }
as_nobody() { (eval "$(f aws env)" && env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY -u AWS_SESSION_TOKEN "$clients/bin/aws" "$@"); }
says ':assumed-role/web/' by_token || fail 'its token is exchanged for no role'
# shellcheck disable=SC2016
inside serve 'wget -qO- --header "Authorization: $(cat "$AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")" "$AWS_CONTAINER_CREDENTIALS_FULL_URI"' > "$folder/credentials" || fail 'the node answers no pod that asks for its credentials'
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$folder/credentials" "$1"; }
by_credentials() { (eval "$(f aws env)" && AWS_ACCESS_KEY_ID=$(field AccessKeyId) AWS_SECRET_ACCESS_KEY=$(field SecretAccessKey) AWS_SESSION_TOKEN=$(field Token) "$clients/bin/aws" sts get-caller-identity); }
says ':assumed-role/pods/eks-fairlead-serve-' by_credentials || fail 'what the node handed out is good for nothing'
says ':assumed-role/web/' sdk_pod sdk-token web || fail 'boto3 in a pod, by token file'
says ':assumed-role/pods/eks-fairlead-sdk-node-' sdk_pod sdk-node serve || fail 'boto3 in a pod, from its node'
k -n tenants delete pod serve sdk-token sdk-node --wait=false > /dev/null
note 'pods have the roles of their service accounts, by token file and from their node, also for boto3 as it is'

# The machine's own role is for its processes and pods in its network. busybox has no PUT.
pod machine "$node" default 'hostNetwork: true'
k -n tenants wait pod machine --for=condition=Ready --timeout=60s > /dev/null || fail 'the pod in the network of the node does not run'
metadata_token='printf "PUT /latest/api/token HTTP/1.1\r\nHost: x\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" | nc -w 5 169.254.169.254 80'
metadata() { inside machine "token=\$($metadata_token | tail -n 1); wget -qO- --header \"X-aws-ec2-metadata-token: \$token\" http://169.254.169.254/latest/meta-data/$1"; }
until_true 20 'the node knows its instance' same "${node#hyperpod-}" metadata instance-id
same workers metadata iam/security-credentials/ || fail 'the role of the node'
metadata iam/security-credentials/workers > "$folder/credentials" || fail 'the node has no credentials of its role'
says ":assumed-role/workers/${node#hyperpod-}" by_credentials || fail 'credentials of the node are good for nothing'
says 401 inside machine 'wget -O- http://169.254.169.254/latest/meta-data/instance-id 2>&1 || true' || fail 'the metadata service answers without a token'
same "got:" inside web "echo \"got:\$($metadata_token 2> /dev/null)\"" || fail 'a pod without hostNetwork reaches the metadata service'
# SDKs as they are, among the node's own processes. They come to the site as pods do.
on_node() { # COMMAND...
  local pid
  pid=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["pid"])' "$SCENARIO_STATE/nodes/$node/init.json")
  (eval "$(f aws env)" && nsenter -t "$pid" -n env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY -u AWS_SESSION_TOKEN -u AWS_EC2_METADATA_DISABLED AWS_ENDPOINT_URL="$(k -n fairlead-system get configmap fairlead-aws -o 'jsonpath={.data.pod-endpoint}')" "$@")
}
sdks=''
if [ ! -e "${SCENARIO_STATE:-}/nodes/$node/init.json" ]; then
  note 'left out: SDKs on the node, which is not on this machine'
else
  sdks=' by SDKs as they are'
  says ":assumed-role/workers/${node#hyperpod-}" on_node "$clients/bin/aws" sts get-caller-identity || fail 'the AWS CLI on the node'
  says ":assumed-role/workers/${node#hyperpod-}" on_node "$clients/bin/python" -c 'import boto3; print(boto3.client("sts").get_caller_identity()["Arn"])' || fail 'boto3 on the node'
  if [ -d "$clients/js/node_modules" ]; then
    js='const { STSClient, GetCallerIdentityCommand } = require(process.argv[1] + "/node_modules/@aws-sdk/client-sts"); new STSClient({}).send(new GetCallerIdentityCommand({})).then((a) => console.log(a.Arn), (e) => { console.error(e); process.exit(1); });'
    says ":assumed-role/workers/${node#hyperpod-}" on_node node -e "$js" "$clients/js" || fail 'the SDK for JavaScript on the node'
  fi
fi

# A network interface of the site goes to the node, and with its instance away.
address=$(k get node "$node" -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}' | cut -d' ' -f1)
k apply -f - > /dev/null << YAML
apiVersion: fairlead.dev/v1alpha1
kind: NetworkInterface
metadata: {name: eni-0a1b2c3d}
spec: {addresses: ["${address%.*}.213/24"], description: of the scenario}
YAML
until_true 20 'it is told of' same Available k get networkinterface eni-0a1b2c3d -o 'jsonpath={.status.phase}'
# By boto3: the AWS CLI of version 1 does not know the call yet.
attach() { "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" kim -- "$clients/bin/python" -c 'import boto3, sys; print(boto3.client("sagemaker").attach_cluster_node_network_interface(ClusterName="eks", NodeId=sys.argv[1], NetworkInterfaceId=sys.argv[2])["AttachmentId"])' "$@"; }
refusal=$(attach "${node#hyperpod-}" eni-0a1b2c3e 2>&1) && fail 'an interface that is not there'
[[ $refusal == *ResourceNotFound* ]] || fail "of an interface that is not there: $refusal"
attachment=$(attach "${node#hyperpod-}" eni-0a1b2c3d) && [[ $attachment == eni-attach-* ]] || fail "no attachment: $attachment"
same "$attachment" attach "${node#hyperpod-}" eni-0a1b2c3d || fail 'sent again it is another'
until_true 30 'it is there' same "Attached $node" k get networkinterface eni-0a1b2c3d -o 'jsonpath={.status.phase} {.status.node}'
says "${address%.*}.213/24" inside machine 'ip address show dev eni-0a1b2c3d' || fail 'the node has no such interface'
neighbour=$(k get nodes -l Team=blue -o name | grep -v "/$node\$")
pod neighbour "${neighbour#node/}" default 'hostNetwork: true'
k -n tenants wait pod neighbour --for=condition=Ready --timeout=60s > /dev/null || fail 'the pod in the network of the other node does not run'
until_true 20 'the other node reaches it' inside neighbour "ping -c 1 -W 2 ${address%.*}.213"
other=$(attach "${neighbour#node/hyperpod-}" eni-0a1b2c3d 2>&1) && fail 'two nodes have it'
[[ $other == *"is attached to ${node#hyperpod-}"* ]] || fail "of the second node: $other"
k -n tenants delete pod machine neighbour > /dev/null
note 'a network interface of the site is attached to a node, and reached from another'
note "processes of the node have the role of their group$sdks, other pods do not"

# A volume under a customer's key, at a node, by somebody who has AWS's documents for that and no more.
boto() { # WHO SERVICE CALL [NAME VALUE]...: its answer as JSON
  "$SCENARIO_FAIRLEAD" aws run --kubeconfig "$KUBECONFIG" "$1" -- "$clients/bin/python" -c 'import boto3, json, sys; print(json.dumps(getattr(boto3.client(sys.argv[1]), sys.argv[2])(**dict(zip(sys.argv[3::2], sys.argv[4::2]))), default=str))' "${@:2}"
}
if [ ! -e /dev/fuse ] || [ -z "$storage" ] || [ ! -e "${SCENARIO_STATE:-}/nodes/$node/init.json" ]; then
  note 'left out: volumes at nodes, which need loop devices, FUSE and a node on this machine'
else
  begin_pool
  documented() { sed "s/us-east-1/$(cut -d: -f4 <<< "$eks")/; s/111122223333/$account/; s/my-cluster-name/fairlead/; s|role/caller-role|user/lea|" "$top/tests/data/policies/$1.json"; }
  documented attach-volume > "$folder/attach.json"
  documented detach-volume > "$folder/detach.json"
  f identity create lea --policy "$folder/attach.json" --policy "$folder/detach.json" > /dev/null
  f identity key add lea > /dev/null 2>&1 || fail 'no key for lea'
  key=$(as kms create-key --description 'of the scenario' --query KeyMetadata.KeyId --output text)
  as kms create-alias --alias-name alias/scenario --target-key-id "$key"
  made() { volume_id=$(as ec2 create-volume --availability-zone shelf --size 1 --encrypted --kms-key-id alias/scenario --client-token one --query VolumeId --output text 2>&1) && [[ $volume_id == vol-* ]]; }
  until_true 30 'a volume under its key' made
  until_true 30 'it is there' same available as ec2 describe-volumes --volume-ids "$volume_id" --query 'Volumes[0].State' --output text
  says ":key/$key" as ec2 describe-volumes --volume-ids "$volume_id" --query 'Volumes[0].KmsKeyId' --output text || fail 'its key is not told'
  arn=$(sm describe-cluster --cluster-name eks --query ClusterArn --output text)
  # What programs of AWS's on the node read of it.
  is_at() { same "$(cut -d: -f4 <<< "$eks") $1 aws:///$1/sagemaker/cluster/hyperpod-${arn##*/}-${node#hyperpod-}" k get node "$node" -o 'jsonpath={.metadata.labels.topology\.kubernetes\.io/region} {.metadata.labels.topology\.kubernetes\.io/zone} {.spec.providerID}'; }
  until_true 30 'the node says where it is' is_at shelf
  by_lea() { boto lea sagemaker "$1_cluster_node_volume" ClusterArn "$arn" NodeId "${node#hyperpod-}" VolumeId "$volume_id"; }
  until_true 20 'lea is known' says ':user/lea' boto lea sts get_caller_identity
  refusal=$(by_lea attach 2>&1) && fail 'attached without a word of the key'
  [[ $refusal == *AccessDenied*kms:* ]] || fail "of the key: $refusal"
  documented customer-key | python3 -c 'import json, sys
policy = json.load(sys.stdin)
policy["Statement"].append({"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::%s:root" % sys.argv[1]}, "Action": "kms:*", "Resource": "*"})
print(json.dumps(policy))' "$account" > "$folder/key.json"
  as kms put-key-policy --key-id "$key" --policy "file://$folder/key.json"
  is_attached() { same attached as ec2 describe-volumes --volume-ids "$volume_id" --query 'Volumes[0].Attachments[0].State' --output text; }
  is_free() { same available as ec2 describe-volumes --volume-ids "$volume_id" --query 'Volumes[0].State' --output text; }
  says /dev/xvd by_lea attach || fail 'not attached'
  until_true 30 'it is attached' is_attached
  # Of the kernel's name: another site on this machine may have the other.
  device=$(k get attachment "$volume_id.$node" -o 'jsonpath={.status.device}')
  python3 -c 'print("words that nobody is to find on the disk" * 30000, end="")' | dd of="$device" bs=1M count=1 iflag=fullblock oflag=direct status=none
  says 'words that nobody' dd if="$device" ibs=4096 count=1 iflag=direct status=none || fail 'what was written is not there'
  grep -qaF 'words that nobody' "$folder/pool.img" && fail 'it lies on the disk as it is'
  says "$volume_id" as kms list-grants --key-id "$key" --output json || fail 'its grant is not told'
  as kms disable-key --key-id "$key"
  says 'words that nobody' dd if="$device" ibs=4096 count=1 iflag=direct status=none || fail 'a disabled key stops what runs'
  by_lea detach > /dev/null || fail 'detaching needs the key'
  until_true 30 'it is detached' is_free
  refusal=$(by_lea attach 2>&1) && fail 'attached by a disabled key'
  [[ $refusal == *'Ec2ErrCode: InvalidKMSKey.InvalidState'* ]] || fail "of a disabled key: $refusal"
  as kms enable-key --key-id "$key"
  # By hand, without a grant: the pool itself refuses.
  f volume attach "$volume_id" "$node" --no-wait > /dev/null
  until_true 30 'an attachment without a grant opens nothing' says 'asks for grants' k get attachment "$volume_id.$node" -o 'jsonpath={.status.message}'
  f volume detach "$volume_id" "$node" > /dev/null
  by_lea attach > /dev/null || fail 'not attached again'
  until_true 30 'it is attached again' is_attached
  device=$(k get attachment "$volume_id.$node" -o 'jsonpath={.status.device}')
  says 'words that nobody' dd if="$device" ibs=4096 count=1 iflag=direct status=none || fail 'what was written is not there any more'
  grep -qF "$(k -n fairlead-volume-keys get secret "$key" -o 'jsonpath={.data.v1}' | base64 -d | xxd -p -c 64 | head -c 32)" "$folder/pool.log" && fail 'the key is in the log'
  by_lea detach > /dev/null
  note 'a volume under a customer key at a node: by the policies of the documents, with a grant, and closed with its key'

  # /opt/sagemaker of an instance, by the same key.
  vault() { # GIB
    printf '[{"InstanceGroupName": "Vault", "InstanceType": "ml.c5.large", "InstanceCount": 1, "ExecutionRole": "%s", "InstanceStorageConfigs": [{"EbsVolumeConfig": {"VolumeSizeInGB": %s, "VolumeKmsKeyId": "alias/%s"}}]}]' "$role" "$1" "$2"
  }
  refusal=$(sm update-cluster --cluster-name eks --instance-groups "$(vault 1 nothing)" 2>&1) && fail 'a key that is not there'
  [[ $refusal == *'VolumeKmsKeyId: Alias'*'is not found'* ]] || fail "of a key that is not there: $refusal"
  sm update-cluster --cluster-name eks --instance-groups "$(vault 1 scenario)" > /dev/null
  of_vault() { sm list-cluster-nodes --cluster-name eks --instance-group-name-contains Vault --query 'ClusterNodeSummaries[].[InstanceId,InstanceStatus.Status,InstanceStatus.Message]' --output text; }
  until_true 90 'an instance with an encrypted volume runs' says Running of_vault
  vaulted=$(of_vault | cut -f1)
  pod vault "hyperpod-$vaulted" default
  k -n tenants wait pod vault --for=condition=Ready --timeout=60s > /dev/null || fail 'the pod on it does not run'
  # shellcheck disable=SC2016
  inside vault 'i=0; while [ $i -lt 20000 ]; do echo "bytes that nobody is to find there"; i=$((i + 1)); done > /own/secret && sync' || fail 'its volume cannot be written to'
  sync -f "$folder/pool"
  same "Attached $key" k get attachment "$vaulted.hyperpod-$vaulted" -o 'jsonpath={.status.phase} {.spec.grant.key}' || fail 'its attachment has no grant'
  grep -qaF 'bytes that nobody' "$folder/pool.img" && fail 'what was written to its volume lies on the disk as it is'
  own=$(as ec2 describe-volumes --query 'Volumes[].[VolumeId,Attachments[0].AssociatedResource]' --output text | awk -v of="$vaulted" 'index($2, of) { print $1 }')
  same True as ec2 describe-volumes --volume-ids "$own" --query 'Volumes[0].Attachments[0].DeleteOnTermination' --output text || fail "DescribeVolumes does not tell whose it is: $(as ec2 describe-volumes --output json)"
  refusal=$(boto kim sagemaker detach_cluster_node_volume ClusterArn "$arn" NodeId "$vaulted" VolumeId "$own" 2>&1) && fail 'its own volume is detached'
  [[ $refusal == *OperationNotPermitted* ]] || fail "of its own volume: $refusal"
  as kms disable-key --key-id "$key"
  sm update-cluster --cluster-name eks --instance-groups "$(vault 2 scenario)" > "$folder/out" 2>&1 && fail 'an update by a disabled key'
  inside vault 'echo more >> /own/secret && sync' || fail 'a disabled key stops what is mounted'
  as kms enable-key --key-id "$key"
  sm update-cluster --cluster-name eks --instance-groups "$(vault 2 scenario)" > /dev/null
  is_larger() { [ "$(inside vault 'df -m /own' | awk 'END { print $2 }')" -gt 1900 ]; }
  until_true 60 'it grows with its group' is_larger
  same 20001 inside vault 'wc -l < /own/secret' || fail 'something is lost'
  sm update-cluster --cluster-name eks --instance-groups-to-delete Vault > /dev/null
  until_true 90 'the instance is gone' is_empty of_vault
  until_true 60 'its volume is gone' is_empty k get volumes,attachments -l fairlead.dev/instance-volume -o name
  k -n tenants delete pod vault --ignore-not-found --timeout=30s > /dev/null
  end_pool || fail 'the pool does not end'
  note "an instance's volume under a customer key: encrypted, grown, out of reach for others, gone with it"
fi

if [ -n "$storage" ]; then
  size=$(k -n tenants exec web -- df -m /own | awk 'END { print $2 }')
  [ "$size" -gt 900 ] && [ "$size" -lt 1024 ] || fail "its volume has $size MiB"
  k -n tenants exec web -- touch /own/kept || fail 'it cannot be written to'
  note 'a volume of its own at /opt/sagemaker'
fi
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
until_true 30 'its network interface is free' same Available k get networkinterface eni-0a1b2c3d -o 'jsonpath={.status.phase}'
note 'labels follow the group; DeleteCluster leaves nothing'
