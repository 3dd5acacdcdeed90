#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may do what, by real kubectls: roles and bindings, questions about rights, acting as somebody else, tokens of service accounts, the audit log. No node is needed.
#   access_test.sh BUILD_DIR
set -eu
build=$(realpath "${1:?the build folder}")
here=$(cd "$(dirname "$0")" && pwd)
server_program=$build/bin/fairlead-server
[ -x "$server_program" ] || { echo "access_test.sh: $server_program is not built" >&2; exit 1; }
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
# shellcheck source=tests/e2e/kubectl_lib.sh
. "$here/kubectl_lib.sh"

serve --log-level debug --audit-log "$work/audit.log"

kubectls=$(kubectls_here)
if [ -z "$kubectls" ] && [ -n "$(any_kubectl)" ]; then kubectls="other=$(any_kubectl)"; fi
[ -n "$kubectls" ] || { echo 'SKIP access_test.sh: no kubectl here'; exit 77; }

suite() {
  k() { "$kubectl" --kubeconfig "$admin" --cache-dir "$work/cache-$version" "$@"; }
  n() { k -n "$space" "$@"; }
  does 'a namespace' k create namespace "$space"
  has 'default roles are there' '^cluster-admin ' k get clusterroles
  # The rules come by aggregation.
  does 'view is aggregated' eventually sh -c "'$kubectl' --kubeconfig '$admin' get clusterrole view -o yaml | grep -q configmaps"
  has 'describe a cluster role' 'Non-Resource URLs|\*\.\*' k describe clusterrole cluster-admin
  does 'create role' n create role reader --verb=get,list,watch --resource=pods,pods/log
  does 'create role for one name' n create role one --verb=get --resource=configmaps --resource-name=mine
  does 'create rolebinding' n create rolebinding reader --role=reader --user=ann --group=team --serviceaccount="$space:bot"
  does 'create rolebinding of a cluster role' n create rolebinding viewer --clusterrole=view --user=vic
  has 'wide columns of a binding' 'ROLE +AGE +USERS +GROUPS +SERVICEACCOUNTS' n get rolebindings -o wide
  has 'a binding names its subjects' "reader +Role/reader +.* ann +team +$space/bot" n get rolebindings reader -o wide
  has 'columns of a role' 'NAME +CREATED AT' n get roles
  has 'describe a role' 'pods/log +\[\] +\[\] +\[get list watch\]' n describe role reader
  does 'create clusterrole by labels' k create clusterrole "more-$space" --aggregation-rule="$space=yes"
  refuses 'a binding keeps its role' 'cannot change roleRef|Invalid value' n patch rolebinding reader --type=merge -p '{"roleRef":{"name":"other"}}'
  refuses 'a role needs verbs' 'verbs must contain at least one value|at least one verb' n apply --validate=false -f - << 'YAML'
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: bad}
rules: [{apiGroups: [""], resources: [pods], verbs: []}]
YAML

  has 'can-i: admin' '^yes' k auth can-i '*' '*'
  has 'can-i as ann' '^yes' n auth can-i list pods --as=ann
  refuses 'can-i: not secrets' '^no' n auth can-i list secrets --as=ann
  has 'can-i by group' '^yes' n auth can-i get pods --subresource=log --as=bob --as-group=team
  refuses 'can-i elsewhere' '^no' k -n default auth can-i list pods --as=ann
  has 'can-i: one name' '^no' sh -c "'$kubectl' --kubeconfig '$admin' -n '$space' auth can-i get configmaps/mine --as=ann || true"
  has 'can-i --list' 'pods/log +\[\] +\[\] +\[get list watch\]' n auth can-i --list --as=ann
  has 'can-i --list: paths' '\[/api/\*\] +\[\] +\[get\]' n auth can-i --list --as=ann
  has 'can-i: a path' '^yes' k auth can-i get /api --as=ann
  refuses 'can-i: another path' '^no' k auth can-i get /metrics --as=ann
  has 'whoami' 'fairlead-admin' k auth whoami
  has 'whoami as ann' '^Username +ann' k auth whoami --as=ann
  has 'whoami: groups and extra' 'team system:authenticated|team, system:authenticated|\[team system:authenticated\]' k auth whoami --as=ann --as-group=team
  does 'get as ann' n get pods --as=ann
  refuses 'get secrets as ann' "secrets is forbidden: User \"ann\" cannot list resource \"secrets\" in API group \"\" in the namespace \"$space\"" n get secrets --as=ann
  does 'get as vic' n get configmaps --as=vic
  refuses 'view sees no secrets' 'forbidden' n get secrets --as=vic
  refuses 'ann grants nothing' 'forbidden' n create role x --verb=get --resource=secrets --as=ann
  does 'ann may write roles' n create rolebinding writer --clusterrole=admin --user=ann
  refuses 'yet not beyond her rights' 'attempting to grant RBAC permissions not currently held' n create role x --verb=get --resource=nodes --as=ann
  does 'but within them' n create role fine --verb=get --resource=secrets --as=ann
  refuses 'nor bind more' 'attempting to grant RBAC permissions not currently held' n create rolebinding x --clusterrole=cluster-admin --user=ann --as=ann
  does 'auth reconcile' n auth reconcile -f - << YAML
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: $space}
rules:
- {apiGroups: [""], resources: [pods, pods/log, services], verbs: [get, list, watch]}
YAML
  has 'reconciled' 'services' n describe role reader

  does 'create serviceaccount' n create serviceaccount bot
  token=$(n create token bot --duration=10m 2> "$work/out") || true
  if [ -n "$token" ]; then tell ok 'create token'; else tell FAIL 'create token'; show; fi
  # A kubeconfig with the certificate alone: the token is then what identifies.
  k config view --raw --minify -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d > "$work/ca.crt"
  url=$(k config view --raw --minify -o jsonpath='{.clusters[0].cluster.server}')
  t() { "$kubectl" --kubeconfig /dev/null --cache-dir "$work/cache-t-$version" --server "$url" --certificate-authority "$work/ca.crt" --token "$1" "${@:2}"; }
  has 'a token tells who it is' "system:serviceaccount:$space:bot" t "$token" auth whoami
  does 'a token gives the rights of its account' t "$token" -n "$space" get pods
  refuses 'and no more' 'forbidden' t "$token" -n "$space" get secrets
  refuses 'a forged token' 'Unauthorized|must be logged in' t "${token%?????}AAAAA" -n "$space" get pods
  has 'OpenID discovery' '"issuer"' t "$token" get --raw /.well-known/openid-configuration
  has 'its keys' '"ES256"' t "$token" get --raw /openid/v1/jwks
  refuses 'too short a token' 'may not specify a duration less than 10 minutes' n create token bot --duration=5m
  refuses 'a token of nobody' 'not found' n create token nobody
  does 'a secret to bind to' n create secret generic anchor
  bound=$(n create token bot --bound-object-kind=Secret --bound-object-name=anchor 2> /dev/null) || true
  does 'a bound token works' t "$bound" -n "$space" get pods
  does 'its secret goes' n delete secret anchor
  refuses 'a bound token dies with it' 'Unauthorized|must be logged in' t "$bound" -n "$space" get pods
  does 'the account goes' n delete serviceaccount bot
  refuses 'and its tokens with it' 'Unauthorized|must be logged in' t "$token" -n "$space" get pods

  does 'the certificate is in the namespace' eventually sh -c "'$kubectl' --kubeconfig '$admin' -n '$space' get configmap kube-root-ca.crt -o yaml | grep -q 'BEGIN CERTIFICATE'"
  refuses 'a pod of a missing account' 'error looking up service account' n run lost --image=x --overrides='{"spec":{"serviceAccountName":"gone"}}'
  has 'priority classes' 'system-node-critical +2000001000 +false' k get priorityclasses
  does 'create priorityclass' k create priorityclass "high-$space" --value=1000
  does 'a pod of it' n run fast --image=x --overrides="{\"spec\":{\"priorityClassName\":\"high-$space\"}}"
  has 'has its priority' '^1000 PreemptLowerPriority$' n get pod fast -o jsonpath='{.spec.priority} {.spec.preemptionPolicy}{"\n"}'
  refuses 'an unknown class' 'no PriorityClass with name none was found' n run none --image=x --overrides='{"spec":{"priorityClassName":"none"}}'
  does 'the namespace goes' k delete namespace "$space" --timeout=30s
  k delete priorityclass "high-$space" > /dev/null
  k delete clusterrole "more-$space" > /dev/null
}

for entry in $kubectls; do
  version=${entry%%=*} kubectl=${entry#*=}
  space=access-$(echo "$version" | tr -d .)
  suite
done

# --- a new signing key: tokens of the old one hold while it is kept ---
version=rotation
k() { "$kubectl" --kubeconfig "$admin" --cache-dir "$work/cache-rotation" "$@"; }
old=$(k -n default create token default)
stop_server
mkdir "$work/state/pki/tokens-old"
mv "$work/state/pki/tokens.key" "$work/state/pki/tokens-old/1.pem"
serve --log-level debug --audit-log "$work/audit.log"
url=$(k config view --raw --minify -o jsonpath='{.clusters[0].cluster.server}')
t() { "$kubectl" --kubeconfig /dev/null --cache-dir "$work/cache-t" --server "$url" --certificate-authority "$work/ca.crt" --token "$1" "${@:2}"; }
new=$(k -n default create token default)
has 'an old token' 'system:serviceaccount:default:default' t "$old" auth whoami
has 'a new token' 'system:serviceaccount:default:default' t "$new" auth whoami
stop_server
rm "$work/state/pki/tokens-old/1.pem"
serve --log-level debug --audit-log "$work/audit.log"
url=$(k config view --raw --minify -o jsonpath='{.clusters[0].cluster.server}')
refuses 'an old token when its key is gone' 'Unauthorized|must be logged in' t "$old" auth whoami
has 'a new token still' 'system:serviceaccount:default:default' t "$new" auth whoami

# --- the audit log ---
version=audit
if grep -q '"verb":"create".*"resource":"serviceaccounts".*"subresource":"token"' "$work/audit.log"; then tell ok 'tokens that were made'; else tell FAIL 'tokens that were made'; fi
if grep -q '"impersonatedUser":{"username":"ann"' "$work/audit.log"; then tell ok 'who acted as whom'; else tell FAIL 'who acted as whom'; fi
if grep -qF -e "${old##*.}" -e "${new##*.}" "$work/audit.log"; then tell FAIL 'no token is in it'; else tell ok 'no token is in it'; fi
if command -v python3 > /dev/null; then
  does 'every line is JSON' python3 -c 'import json,sys
for line in open(sys.argv[1]): assert json.loads(line)["kind"] == "Event"' "$work/audit.log"
fi

all_passed
