#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The AWS face of a real server by clients as they are: boto3, the AWS CLI and the SDK for JavaScript run one scenario; then identities and keys as administrators use them, what no client should send, and kill -9.
#   aws_clients_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: aws_clients_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
here=tests/peers/aws
# shellcheck source=tests/lib.sh
. tests/lib.sh
# shellcheck source=tests/e2e/kubectl_lib.sh
. tests/e2e/kubectl_lib.sh
clients=$("$here/clients.sh") || { [ $? != 77 ] || { echo "skipped: AWS's clients cannot be had here"; exit 77; }; fail "AWS's clients"; }
hyp=$(tests/peers/hyp/hyp.sh) || hyp=''
export HOME=$work XDG_STATE_HOME=$work/home

fairlead() { "$build/bin/fairlead" "$@"; }
try() { # STATUS TEXT COMMAND...: no text is nothing that it must say
  local want=$1 text=$2
  shift 2
  status=0
  "$@" < /dev/null > "$work/out" 2>&1 || status=$?
  [ "$status" = "$want" ] && { [ -z "$text" ] || grep -qF -- "$text" "$work/out"; }
}
says() { # WHAT STATUS TEXT COMMAND...
  local what=$1
  shift
  try "$@" || fail "$what: status $status, not $1 with \"$2\""
  echo "ok    $what"
}
comes() { # WHAT STATUS TEXT COMMAND...: what the server's controllers have yet to do
  local what=$1
  shift
  wait_until 20 "$what" try "$@"
  echo "ok    $what"
}
site() { fairlead "$@" --state-dir "$work/state"; }
as_ada() { fairlead aws run --state-dir "$work/state" ada -- "$@"; }

serve --no-cluster-machines --notify-local --node-range 10.187.0.0/16 --pod-range 10.188.0.0/16 --service-range 10.189.0.0/16
cat > "$work/site.yaml" << 'YAML'
apiVersion: v1
kind: Node
metadata: {name: g0, labels: {node.kubernetes.io/instance-type: ml.g5.xlarge}}
---
apiVersion: v1
kind: Node
metadata: {name: p0, labels: {node.kubernetes.io/instance-type: ml.p5.4xlarge, fairlead.dev/spare: "true"}}
---
apiVersion: v1
kind: Node
metadata: {name: p1, labels: {node.kubernetes.io/instance-type: ml.p5.4xlarge, fairlead.dev/spare: "true"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: demo}
YAML
# Its cluster cannot come up (it has no machines), which is what clients then see: Creating.
sed -n '/^kind: SlurmCluster/,/^---/p' examples/demo.yaml | sed '/^---/d' > "$work/rest.yaml"
{ echo 'apiVersion: slurm.nebius.ai/v1'; cat "$work/rest.yaml"; } > "$work/cluster.yaml"
site apply -f "$work/site.yaml" > /dev/null
site apply -f "$work/cluster.yaml" > /dev/null
# Nodes that give what machines of these types have.
python3 - "$admin" << 'PY'
import base64, json, ssl, sys, tempfile, urllib.request
text = open(sys.argv[1]).read()
field = lambda name: next(line.split(':', 1)[1].strip() for line in text.splitlines() if line.strip().startswith(name + ':'))
files = []
for name in ('client-certificate-data', 'client-key-data', 'certificate-authority-data'):
    file = tempfile.NamedTemporaryFile()
    file.write(base64.b64decode(field(name)))
    file.flush()
    files.append(file)
context = ssl.create_default_context(cafile=files[2].name)
context.load_cert_chain(files[0].name, files[1].name)
for node, cpu, memory in (('g0', '4', '16Gi'), ('p0', '16', '256Gi'), ('p1', '16', '256Gi')):
    amounts = {'cpu': cpu, 'memory': memory, 'nvidia.com/gpu': '1', 'pods': '14'}
    patch = {'status': {'capacity': amounts, 'allocatable': amounts, 'conditions': [{'type': 'Ready', 'status': 'True', 'reason': 'Test', 'message': '', 'lastHeartbeatTime': '2035-01-01T00:00:00Z', 'lastTransitionTime': '2026-01-01T00:00:00Z'}]}}
    request = urllib.request.Request(field('server') + f'/api/v1/nodes/{node}/status', json.dumps(patch).encode(), {'Content-Type': 'application/merge-patch+json'}, method='PATCH')
    urllib.request.urlopen(request, context=context).read()
PY

echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "sts:AssumeRole", "iam:*", "eks:*", "secretsmanager:GetSecretValue", "logs:*", "sns:*"], "Resource": "*"}}' > "$work/all.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:Describe*", "sagemaker:List*"], "Resource": "*"}}' > "$work/read.json"
account=$(site aws env -o json | python3 -c 'import json, re, sys; print(re.search(r"aws-ca-(\d+)", json.load(sys.stdin)["AWS_CA_BUNDLE"]).group(1))')
printf '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::%s:user/ada", "Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' "$account" > "$work/trust.json"

says 'a user' 0 'identity/user-ada created' site identity create ada --policy "$work/all.json"
says 'again, nothing changes' 0 'identity/user-ada as it was' site identity create ada --policy "$work/all.json"
says 'a role' 0 'identity/role-reader created' site identity create --role reader --trust "$work/trust.json" --policy "$work/read.json"
says 'a role that nobody may assume' 1 'needs --trust' site identity create --role lonely
says 'a policy that is none' 1 'is no condition operator' site identity create bob --policy <(echo '{"Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringSounds":{"aws:username":"a"}}}]}')
says 'nobody without a key' 1 'fairlead identity key add ada' as_ada true
says 'a key' 0 'aws_access_key_id = AKIA' site identity key add ada
says 'her own name' 0 ":user/ada" as_ada "$clients/bin/aws" sts get-caller-identity
! tr '\0' '\n' < "/proc/$server/cmdline" | grep -q AKIA || fail 'a key is in the arguments of the server'

run() { # NAME COMMAND...
  local name=$1
  shift
  as_ada "$@" > "$work/out" 2>&1 || fail "the scenario by $name"
  grep -c '^ok ' "$work/out" | sed "s/^/ok    the scenario by $name: steps /"
  # The API has no way to end one: an administrator does.
  site get trainingplans > "$work/plans" && grep -q 'spring' "$work/plans" || fail "the scenario by $name left no training plan"
  site delete trainingplan "$(awk '/spring/ { print $1 }' "$work/plans")" > /dev/null
}
# No kubelet is on the machines that plans are about: their leases are renewed here.
renew() {
  while kill -0 "$$" 2> /dev/null; do
    for node in p0 p1; do
      printf -- '---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: %s, namespace: kube-node-lease}\nspec: {holderIdentity: %s, leaseDurationSeconds: 40, renewTime: "%s"}\n' "$node" "$node" "$(date -u +%FT%T.%6NZ)"
    done > "$work/leases.yaml"
    site apply -f "$work/leases.yaml" > /dev/null 2>&1 || true
    sleep 5
  done
}
renew &
renewer=$!
run boto3 "$clients/bin/python" "$here/scenario.py" boto3 "$here/scenario.json" "$account"
run 'the AWS CLI' "$clients/bin/python" "$here/scenario.py" cli "$here/scenario.json" "$account"
if [ -d "$clients/js/node_modules" ]; then run 'JavaScript' node "$here/scenario.mjs" "$clients/js" "$here/scenario.json" "$account"; else echo 'ok    (no Node.js: left out JavaScript)'; fi

# Plans by file: the same controller decides.
by_file() { # NAME MACHINES END
  printf 'apiVersion: fairlead.dev/v1alpha1\nkind: TrainingPlan\nmetadata: {name: %s}\nspec: {instanceType: ml.p5.4xlarge, instanceCount: %s, endTime: "%s"}\n' "$@" | site apply -f -
}
says 'a plan by a file' 0 'created' by_file hand 1 2035-01-01T00:00:00Z
comes 'it is granted' 0 'Active' site get trainingplan hand
says 'more than there is left' 0 'created' by_file greedy 2 2035-01-01T00:00:00Z
comes 'is refused' 0 '2 can be promised, and 1 of them are' site get trainingplan greedy
says 'a plan does not change' 1 'a plan does not change' by_file hand 2 2035-01-01T00:00:00Z
says 'the API tells of it' 0 'hand' as_ada "$clients/bin/aws" sagemaker list-training-plans --filters Name=Status,Value=Active --query 'TrainingPlanSummaries[].TrainingPlanName'
says 'whose machine it is stands at the machine' 0 'p0' site get nodes -l fairlead.dev/training-plan=hand
says 'plans are deleted' 0 'deleted' site delete trainingplan hand greedy
kill "$renewer"

# Secrets that somebody has marked for it, by the CLI and boto3.
site apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Secret
metadata: {name: prod-db, namespace: fairlead-system, labels: {fairlead.dev/secrets-manager: "true"}, annotations: {fairlead.dev/secret-name: prod/db}}
stringData: {username: lab, password: correct horse}
YAML
secret() { as_ada "$clients/bin/aws" secretsmanager get-secret-value --secret-id "$1" --query SecretString --output text; }
says 'a secret by the AWS CLI' 0 '"password":"correct horse"' secret prod/db
says 'by its ARN, by boto3' 0 'lab' as_ada "$clients/bin/python" -c 'import boto3, json, sys; c = boto3.client("secretsmanager"); print(json.loads(c.get_secret_value(SecretId=c.get_secret_value(SecretId="prod/db")["ARN"])["SecretString"])["username"])'
says 'one that is not there' 255 'ResourceNotFoundException' secret prod/none
says 'keys of identities are none' 255 'ResourceNotFoundException' secret fairlead-aws-sessions

# Logs, topics and managed policies, by boto3 and the CLI. Without machines nothing prints: a pod that waits has a stream without lines.
site apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: talker, namespace: demo, labels: {fairlead.dev/slurm-cluster: demo, fairlead.dev/slurm-role: visitor}}
spec: {containers: [{name: main, image: none}]}
YAML
as_ada "$clients/bin/python" "$here/services.py" "$account" > "$work/out" 2>&1 || fail 'services by boto3'
grep -c '^ok ' "$work/out" | sed 's/^/ok    logs, SNS and managed policies by boto3: steps /'
says 'log groups by the AWS CLI' 0 '/aws/sagemaker/Clusters/demo/' as_ada "$clients/bin/aws" logs describe-log-groups --query 'logGroups[].logGroupName'
says 'a topic by the AWS CLI' 0 ":$account:by-cli" as_ada "$clients/bin/aws" sns create-topic --name by-cli
says 'a message by the AWS CLI' 0 'MessageId' as_ada "$clients/bin/aws" sns publish --topic-arn "arn:aws:sns:fairlead-1:$account:by-cli" --message hello
site apply -f - > /dev/null << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: ManagedPolicy
metadata: {name: policy-taggers}
spec: {name: Taggers, document: {Version: "2012-10-17", Statement: {Effect: Allow, Action: "sagemaker:AddTags", Resource: "*"}}}
YAML
says 'a policy of a file is attached by the AWS CLI' 0 '' as_ada "$clients/bin/aws" iam attach-role-policy --role-name reader --policy-arn "arn:aws:iam::$account:policy/Taggers"
says 'and is taken into account where permissions are tried' 0 "by attached policy arn:aws:iam::$account:policy/Taggers" site policy simulate --identity role/reader --action sagemaker:AddTags --resource "arn:aws:sagemaker:fairlead-1:$account:cluster/abcdefabcdef"
says 'one that is not there takes all rights' 1 'is not there' bash -c '"$0" delete managedpolicy policy-taggers --state-dir "$1" > /dev/null && "$0" policy simulate --identity role/reader --action sagemaker:ListClusters --state-dir "$1"' "$build/bin/fairlead" "$work/state"
as_ada "$clients/bin/aws" iam detach-role-policy --role-name reader --policy-arn "arn:aws:iam::$account:policy/Taggers"

# Into Kubernetes by AWS's tools: `aws eks update-kubeconfig`, and a token that is a presigned question of STS.
as_ada "$clients/bin/aws" eks update-kubeconfig --name fairlead --kubeconfig "$work/ada.kubeconfig" > /dev/null
by_token() { PATH=$clients/bin:$PATH as_ada "$build/bin/fairlead" get nodes --kubeconfig "$work/ada.kubeconfig"; }
says 'no access entry, no way in' 1 'Unauthorized' by_token
as_ada "$clients/bin/aws" eks create-access-entry --cluster-name fairlead --principal-arn "arn:aws:iam::$account:user/ada" --kubernetes-groups node-watchers > /dev/null
known() { ! by_token > "$work/out" 2>&1 && grep -q 'cannot list' "$work/out"; }
wait_until 10 'who has an entry is known' known
site apply -f - > /dev/null << 'YAML'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-watchers}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-watchers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-watchers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: node-watchers}]
YAML
says 'what her group may' 0 'g0' by_token
secrets_by_token() { PATH=$clients/bin:$PATH as_ada "$build/bin/fairlead" get secrets -A --kubeconfig "$work/ada.kubeconfig"; }
says 'and nothing else' 1 'cannot list' secrets_by_token
# The same for a kube-apiserver, by its webhook.
review() { # TOKEN
  printf '{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "%s"}}' "$1" | as_ada sh -c 'curl -sS --cacert "$AWS_CA_BUNDLE" -H "Content-Type: application/json" --data-binary @- "$AWS_ENDPOINT_URL/kubernetes/token-review"'
}
token=$(as_ada "$clients/bin/aws" eks get-token --cluster-name fairlead | python3 -c 'import json, sys; print(json.load(sys.stdin)["status"]["token"])')
says 'a webhook says who that is' 0 '"groups":["node-watchers"]' review "$token"
says 'and that a changed token is nobody' 0 '"authenticated":false' review "${token%???}AAA"
# hyp, the fourth client: clusters, a way into one by its access entry, jobs in it.
if [ -n "$hyp" ] && kubectl=$(any_kubectl) && [ -n "$kubectl" ]; then
  mkdir -p "$work/hyp"
  ln -sf "$kubectl" "$work/hyp/kubectl"
  hyp() { HOME=$work/hyp KUBECONFIG=$work/hyp/kubeconfig PATH=$work/hyp:$clients/bin:$PATH PYTHONWARNINGS=ignore as_ada "$hyp/bin/hyp" "$@"; }
  site apply -f - > /dev/null << 'YAML'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: trainers}
rules:
- {apiGroups: [sagemaker.amazonaws.com], resources: [hyperpodpytorchjobs], verbs: ["*"]}
- {apiGroups: [""], resources: [pods, pods/log, namespaces, nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: trainers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trainers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: node-watchers}]
YAML
  eks=$(as_ada "$clients/bin/aws" eks describe-cluster --name fairlead --query cluster.arn --output text)
  as_ada "$clients/bin/aws" sagemaker create-cluster --cluster-name hypnosis --node-provisioning-mode Continuous --orchestrator "Eks={ClusterArn=$eks}" --vpc-config SecurityGroupIds=sg-12345678,Subnets=subnet-12345678 \
    --instance-groups "[{\"InstanceGroupName\": \"Workers\", \"InstanceType\": \"ml.c5.large\", \"InstanceCount\": 1, \"ExecutionRole\": \"arn:aws:iam::$account:role/reader\"}]" > /dev/null
  says 'hyp list-cluster' 0 '"Cluster": "hypnosis"' hyp list-cluster
  says 'a cluster of Slurm is refused by hyp' 1 'not EKS-orchestrated' hyp set-cluster-context --cluster-name demo
  says 'hyp set-cluster-context' 0 '' hyp set-cluster-context --cluster-name hypnosis
  says 'hyp get-cluster-context' 0 'cluster/fairlead' hyp get-cluster-context
  says 'hyp describe cluster' 0 'hypnosis' hyp describe cluster hypnosis
  says 'hyp update cluster' 0 'has been updated' hyp update cluster --cluster-name hypnosis --node-recovery None --instance-groups "[{\"instance_group_name\": \"Workers\", \"instance_type\": \"ml.c5.large\", \"instance_count\": 1, \"execution_role\": \"arn:aws:iam::$account:role/reader\", \"kubernetes_config\": {\"labels\": {\"team\": \"vision\"}}}]"
  says 'and it is so' 0 $'None\tvision' as_ada "$clients/bin/aws" sagemaker describe-cluster --cluster-name hypnosis --query '[NodeRecovery, InstanceGroups[0].KubernetesConfig.DesiredLabels.team]' --output text
  says 'hyp create' 0 'Successfully submitted' hyp create hyp-pytorch-job --job-name one --namespace demo --image busybox:1 --replica-count 2 --command '[hyperpodrun, train.py]'
  comes 'hyp list' 0 'Created' hyp list hyp-pytorch-job --namespace demo
  comes 'hyp describe' 0 'Replicas: 2' hyp describe hyp-pytorch-job --job-name one --namespace demo
  comes 'hyp list-pods' 0 'one-pod-1' hyp list-pods hyp-pytorch-job --job-name one --namespace demo
  says 'hyp of a job that is not there' 1 'not found' hyp describe hyp-pytorch-job --job-name two --namespace demo
  says 'hyp delete' 0 'Successful deleted' hyp delete hyp-pytorch-job --job-name one --namespace demo
  comes 'and nothing is left of it' 0 'No jobs found' hyp list hyp-pytorch-job --namespace demo
  as_ada "$clients/bin/aws" sagemaker delete-cluster --cluster-name hypnosis > /dev/null
else
  echo 'ok    (hyp or kubectl cannot be had here: left out)'
fi
as_ada "$clients/bin/aws" eks delete-access-entry --cluster-name fairlead --principal-arn "arn:aws:iam::$account:user/ada" > /dev/null
out_again() { ! by_token > "$work/out" 2>&1 && grep -q Unauthorized "$work/out"; }
wait_until 10 'without her entry she is out again' out_again
echo 'ok    who has no entry any more is out'

# Pods with roles: what a new pod is given, and what unmodified SDKs make of it.
issuer=$(as_ada "$clients/bin/aws" eks describe-cluster --name fairlead --query cluster.identity.oidc.issuer --output text)
issuer=${issuer#https://}
printf '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Federated": "arn:aws:iam::%s:oidc-provider/%s"}, "Action": "sts:AssumeRoleWithWebIdentity", "Condition": {"StringEquals": {"%s:sub": "system:serviceaccount:demo:train", "%s:aud": "sts.amazonaws.com"}}}}' "$account" "$issuer" "$issuer" "$issuer" > "$work/web.json"
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}}' > "$work/pods.json"
site identity create --role web --trust "$work/web.json" --policy "$work/read.json" > /dev/null
site identity create --role pods --trust "$work/pods.json" --policy "$work/read.json" > /dev/null
site apply -f - > /dev/null << YAML
apiVersion: v1
kind: ServiceAccount
metadata: {name: train, namespace: demo, annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::$account:role/web"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: serve, namespace: demo}
YAML
associate() { as_ada "$clients/bin/aws" eks create-pod-identity-association --cluster-name fairlead --namespace demo --service-account serve --role-arn "arn:aws:iam::$account:role/$1" --query association.associationId --output text; }
comes 'a role that does not trust pods' 255 'Trust policy of role is not valid for EKS Pod Identity' associate web
comes 'an association by the AWS CLI' 0 'a-' associate pods
id=$(cat "$work/out")
says 'of an account once' 255 'ResourceInUseException' associate pods
says 'described and listed by boto3' 0 "$id serve role/pods" as_ada "$clients/bin/python" -c 'import boto3, sys; c = boto3.client("eks"); one, = c.list_pod_identity_associations(clusterName="fairlead", namespace="demo")["associations"]; print(one["associationId"], one["serviceAccount"], c.describe_pod_identity_association(clusterName="fairlead", associationId=sys.argv[1])["association"]["roleArn"].split(":")[-1])' "$id"
pod() { printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: demo}\nspec: {schedulerName: nobody, serviceAccountName: %s, containers: [{name: c, image: "busybox:1"}]}\n' "$1" "$2" | site apply -f - > /dev/null && site get pod "$1" -n demo -o json; }
says 'a pod of an annotated account' 0 '"AWS_WEB_IDENTITY_TOKEN_FILE"' pod with-role train
says 'a pod of an associated account' 0 'http://169.254.170.23/v1/credentials' pod with-association serve
pod without default > "$work/out" && ! grep -q AWS_ "$work/out" || fail 'a pod of another account is given something'
site delete pod with-role with-association without -n demo > /dev/null
# Tokens as the kubelet has them for these pods.
cat > "$work/token.py" << 'PY'
import base64, json, ssl, sys, tempfile, urllib.request
text = open(sys.argv[1]).read()
field = lambda name: next(line.split(':', 1)[1].strip() for line in text.splitlines() if line.strip().startswith(name + ':'))
files = []
for name in ('client-certificate-data', 'client-key-data', 'certificate-authority-data'):
    file = tempfile.NamedTemporaryFile()
    file.write(base64.b64decode(field(name)))
    file.flush()
    files.append(file)
context = ssl.create_default_context(cafile=files[2].name)
context.load_cert_chain(files[0].name, files[1].name)
request = urllib.request.Request(field('server') + f'/api/v1/namespaces/demo/serviceaccounts/{sys.argv[2]}/token', json.dumps({'apiVersion': 'authentication.k8s.io/v1', 'kind': 'TokenRequest', 'spec': {'audiences': [sys.argv[3]], 'expirationSeconds': 3600}}).encode(), {'Content-Type': 'application/json'})
sys.stdout.write(json.load(urllib.request.urlopen(request, context=context))['status']['token'])
PY
token() { python3 "$work/token.py" "$admin" "$@"; }
me='import boto3; print(boto3.client("sts").get_caller_identity()["Arn"])'
bare() { # COMMAND...: with what a pod has, and no key
  (eval "$(site aws env)" && env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_EC2_METADATA_DISABLED=true "$@")
}
token train sts.amazonaws.com > "$work/token"
web() { bare env AWS_ROLE_ARN="arn:aws:iam::$account:role/web" AWS_WEB_IDENTITY_TOKEN_FILE="$work/token" "$@"; }
says 'boto3 with a token file' 0 ':assumed-role/web/' web "$clients/bin/python" -c "$me"
says 'the AWS CLI, too, within what the role may' 255 'assumed-role/web/' web "$clients/bin/aws" sagemaker delete-cluster --cluster-name none
token serve sts.amazonaws.com > "$work/token"
says 'the token of another account' 1 'Not authorized to perform sts:AssumeRoleWithWebIdentity' web "$clients/bin/python" -c "$me"
# The endpoint on a node is a relay; here loopback stands for it, which SDKs take as well.
token serve pods.eks.amazonaws.com > "$work/token"
eval "$(site aws env)"
"$clients/bin/python" - "$AWS_ENDPOINT_URL" "$AWS_CA_BUNDLE" > "$work/relay" << 'PY' &
import http.server, ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2])
class Relay(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            answer = urllib.request.urlopen(urllib.request.Request(sys.argv[1] + self.path, headers={'Authorization': self.headers['Authorization']}), context=context)
        except urllib.error.HTTPError as refused:
            answer = refused
        self.send_response(answer.status if hasattr(answer, 'status') else answer.code)
        self.end_headers()
        self.wfile.write(answer.read())
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Relay)
print(server.server_port, flush=True)
server.serve_forever()
PY
relay=$!
wait_until 10 'the relay listens' test -s "$work/relay"
container() { bare env AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:$(cat "$work/relay")/v1/credentials" AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE="$work/token" "$@"; }
says 'boto3 with container credentials' 0 ':assumed-role/pods/eks-fairlead-serve-' container "$clients/bin/python" -c "$me"
if [ -d "$clients/js/node_modules" ]; then
  js='const { STSClient, GetCallerIdentityCommand } = require(process.argv[1] + "/node_modules/@aws-sdk/client-sts"); new STSClient({}).send(new GetCallerIdentityCommand({})).then((a) => console.log(a.Arn), (e) => { console.error(e); process.exit(1); });'
  says 'the SDK for JavaScript with container credentials' 0 ':assumed-role/pods/' container node -e "$js" "$clients/js"
fi
as_ada "$clients/bin/aws" eks delete-pod-identity-association --cluster-name fairlead --association-id "$id" > /dev/null
fetch() { curl -sS -H "Authorization: $(cat "$work/token")" "http://127.0.0.1:$(cat "$work/relay")/v1/credentials"; }
says 'who is associated no more gets nothing' 0 'has no pod identity association' fetch
kill "$relay"
unset AWS_ENDPOINT_URL AWS_REGION AWS_DEFAULT_REGION AWS_CA_BUNDLE NODE_EXTRA_CA_CERTS

# A key is changed without an outage: the second one works before the first one ends.
old=$(site identity key list ada -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["AccessKeyId"])')
site aws env ada > "$work/old.env"
new=$(site identity key add ada -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["AccessKey"]["AccessKeyId"])')
says 'a third key' 1 'the most there may be' site identity key add ada
with_old() { (. "$work/old.env" && "$clients/bin/aws" sts get-caller-identity); }
says 'the old key still works' 0 ':user/ada' with_old
says 'and is put out of use' 0 'is refused from now on' site identity key deactivate "$old"
refused() { ! with_old > "$work/out" 2>&1 && grep -q InvalidClientTokenId "$work/out"; }
wait_until 5 'the old key is refused' refused
says 'the new one works' 0 ':user/ada' as_ada "$clients/bin/aws" sts get-caller-identity
says 'which it says' 0 'Inactive' site identity key list ada
says 'it is deleted' 0 "$old deleted" site identity key delete "$old"
says 'twice' 1 'there is no access key' site identity key delete "$old"
says 'who is off' 0 'disabled' site identity disable ada
off() { ! as_ada "$clients/bin/aws" sts get-caller-identity > "$work/out" 2>&1 && grep -q 'is disabled' "$work/out"; }
wait_until 5 'a disabled user is refused' off
says 'and on again' 0 'enabled' site identity enable ada
on() { as_ada "$clients/bin/aws" sts get-caller-identity; }
wait_until 5 'an enabled user is served' on

# What no client should send: each gets an answer, and the server goes on.
as_ada "$clients/bin/python" "$here/bad_input.py" || fail 'bad input'
echo 'ok    what no client should send'

# Nothing secret is written anywhere.
secrets=$(as_ada sh -c 'echo "$AWS_SECRET_ACCESS_KEY"')
! grep -qF -- "$secrets" "$work/server.log" "$work/state/aws-audit.log" || fail 'a secret is in a log'
grep -q '"eventName":"CreateComputeQuota"' "$work/state/aws-audit.log" || fail 'the audit does not tell of a call'
[ "$(stat -c %a "$work/state/aws-audit.log")" = 600 ] || fail 'others may read the audit'
if grep -aqF -- "$secrets" "$work/state/store.db" "$work/state/store.db-wal"; then fail 'a secret is in the store as it is'; fi
echo 'ok    nothing secret is in logs or in the store'

# kill -9: who had a key has it, ARNs are the same, sessions go on, and a message that was published is delivered.
hook=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
as_ada "$clients/bin/aws" sns subscribe --topic-arn "arn:aws:sns:fairlead-1:$account:by-cli" --protocol http --notification-endpoint "http://127.0.0.1:$hook/" > /dev/null
message=$(as_ada "$clients/bin/aws" sns publish --topic-arn "arn:aws:sns:fairlead-1:$account:by-cli" --message 'it outlives' --query MessageId --output text)
session=$(as_ada "$clients/bin/aws" sts assume-role --role-arn "arn:aws:iam::$account:role/reader" --role-session-name night --duration-seconds 900)
{ kill -9 "$server" && wait "$server"; } 2> /dev/null || true
serve --no-cluster-machines --notify-local --node-range 10.187.0.0/16 --pod-range 10.188.0.0/16 --service-range 10.189.0.0/16
start hook.log python3 -u -c '
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()' "$hook"
hooked=$last
says 'the same account after kill -9' 0 "$account" as_ada "$clients/bin/aws" sts get-caller-identity
read -r id secret token <<< "$(python3 -c 'import json, sys; c = json.loads(sys.argv[1])["Credentials"]; print(c["AccessKeyId"], c["SecretAccessKey"], c["SessionToken"])' "$session")"
eval "$(site aws env)"
says 'a session goes on' 0 'assumed-role/reader/night' env AWS_ACCESS_KEY_ID="$id" AWS_SECRET_ACCESS_KEY="$secret" AWS_SESSION_TOKEN="$token" "$clients/bin/aws" sts get-caller-identity
says 'a user with an active key is not deleted by mistake' 1 'has an active access key' site identity delete ada
says 'but with it' 0 'with 1 access keys' site identity delete ada --with-keys
wait_until 20 'a message is delivered after kill -9' grep -q "\"MessageId\":\"$message\".*\"Message\":\"it outlives\"" "$work/hook.log"
echo 'ok    a message that was published before is delivered'
stop "$hooked" || true
stop_server || fail 'the server did not end well'
status=0
timeout 60 "$build/bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:0 --aws-account 111122223333 > "$work/out" 2>&1 || status=$?
if [ "$status" != 1 ] || ! grep -q 'all ARNs would change' "$work/out"; then fail 'another account is refused'; fi
echo 'ok    another account is refused'
