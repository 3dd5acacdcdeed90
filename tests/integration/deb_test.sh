#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages in a root of their own: install, run without root, upgrade and roll back under a running Job that finishes afterwards, remove, purge.
#   deb_test.sh BUILD_DIR
# FAIRLEAD_PREVIOUS_DEBS: a folder with the packages of the previous release, to upgrade from and to roll back to. Without it, FAIRLEAD_FULL=1 builds them (packaging/build-previous.sh);
# else the same programs stand in under the next version's number, and the store is set back by one schema before they meet it.
set -euo pipefail
build=$(realpath "${1:?usage: deb_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
export LC_ALL=C
((EUID == 0)) || { echo 'skipped: needs root'; exit 77; }
for tool in dpkg-shlibdeps lintian; do command -v $tool > /dev/null || { echo "skipped: $tool is missing (tools/packages-test.txt)"; exit 77; }; done
work=$(mktemp -d "$build/deb-XXXXXX")
holder=''
clean_up() {
  [[ -z $holder ]] || { kill -KILL "$holder" 2> /dev/null || true; wait "$holder" 2> /dev/null || true; }
  # Cgroups of the test's site, which outlive its processes; those end a little after their first one.
  local until=$((SECONDS + 10))
  while [[ -n ${site_id:-} && -n $(find /sys/fs/cgroup -depth -type d -path "*/fairlead-$site_id*" ! -exec rmdir {} \; -print 2> /dev/null) ]] && ((SECONDS < until)); do read -rt 0.3 <> <(:) || true; done
  rm -rf --one-file-system "$work" || true
}
trap clean_up EXIT
trap 'exit 1' INT TERM
fail() {
  echo "FAILED: $*" >&2
  for log in "$work"/log "$work"/*.service.log; do [[ ! -s $log ]] || { echo "-- $log" >&2; tail -n 25 "$log" >&2; }; done
  exit 1
}
ok() { echo "ok: $*"; }
eventually() { # SECONDS COMMAND...
  local until=$((SECONDS + $1 * ${FAIRLEAD_PATIENCE:-2}))
  shift
  until "$@" > "$work/eventually" 2>&1; do ((SECONDS < until)) || { cp "$work/eventually" "$work/log"; fail "did not come true in time: $*"; }; read -rt 0.3 <> <(:) || true; done
}

# ---- the release before: the newest release that leads here and is not this one, else the commit that is written down

release_before() (
  mkdir -p "$work/tree/packaging"
  cd "$work/tree"
  cp "$OLDPWD/packaging/build-previous.sh" packaging/
  export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@localhost GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@localhost
  record() { git commit -q --allow-empty -m "$1" && git rev-parse HEAD; }
  before() { [[ $(packaging/build-previous.sh --print) == "$1" ]] || fail "$2: the release before is $(packaging/build-previous.sh --print), not $1"; }
  git init -q -b main .
  first=$(record first) second=$(record second) third=$(record third)
  printf '# why\n%s\n' "$first" > packaging/previous
  git tag v0.9.0 # of this very commit
  before "$first" 'no release but this'
  git tag -a -m release v0.10.0 "$second" && git tag v0.2.0 "$first"
  before "$second" 'two releases before'
  git tag v0.11.0-rc1 "$first" && git tag vendor-20 "$first"
  before "$second" 'a candidate, and a tag that is no release'
  git checkout -q -b aside "$first" && git tag v3.0.0 "$(record aside)" && git checkout -q main
  before "$second" 'a release of another branch'
  record fourth > "$work/log"
  git tag -d v0.10.0 > "$work/log"
  before "$third" 'a release that was this commit'
)
if command -v git > /dev/null; then
  release_before
  rm -rf "$work/tree"
  ok 'the release before is the newest that leads here'
else
  echo 'no git here: which release is the one before was not tried'
fi

# ---- the packages

base=$(images/build.sh packaging/test-root /var/lib/fairlead/images 2> "$work/log" | tail -n 1) || fail 'the root for the test'
[[ -f /var/lib/fairlead/images/busybox/1/image.json ]] || images/build.sh images/busybox /var/lib/fairlead/images > "$work/log" 2>&1 || fail 'the image busybox'
version=$(sed -nE 's/^project\(fairlead VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
IFS=. read -r major minor _ <<< "$version"
packaging/build-deb.sh "$build" "$work/built" > "$work/log" 2>&1 || fail 'building the packages'
mkdir "$work/other"
previous=${FAIRLEAD_PREVIOUS_DEBS:-}
if [[ -z $previous && -n ${FAIRLEAD_FULL:-} ]]; then
  status=0
  previous=$(packaging/build-previous.sh 2> "$work/log" | tail -n 1) || status=${PIPESTATUS[0]}
  [[ $status == 0 || $status == 77 ]] || fail 'building the packages of the previous release'
  [[ $status == 0 ]] || { previous=''; tail -n 1 "$work/log"; }
fi
if [[ -n $previous ]]; then
  cp "$previous"/*.deb "$work/other/"
  old_debs=$work/other new_debs=$work/built new=$version
  old=$(dpkg-deb -f "$(find "$work/other" -name 'fairlead_*.deb' | head -n 1)" Version)
  if ! dpkg --compare-versions "$new" gt "$old"; then
    # Nobody has raised the number since: the next minor one, as its release will have.
    new=$(cut -d. -f1 <<< "$old").$(($(cut -d. -f2 <<< "$old") + 1)).0
    rm -rf "$work/built"
    packaging/build-deb.sh "$build" "$work/built" --version "$new" > "$work/log" 2>&1 || fail 'building the packages'
  fi
else
  # The same programs under the next version's number.
  old_debs=$work/built new_debs=$work/other old=$version new=$major.$((minor + 1)).0
  for package in "$work"/built/*.deb; do
    rm -rf "$work/tree"
    dpkg-deb --raw-extract "$package" "$work/tree"
    sed -i -E "s/^Version: .*/Version: $new/; s/\(= $old\)/(= $new)/" "$work/tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$work/tree" "$work/other/$(basename "${package/_$old/_$new}")" > "$work/log" 2>&1 || fail 'packing the next version'
  done
fi
(cd "$work/built" && sha256sum --quiet -c SHA256SUMS) || fail 'checksums'
ceph=()  # of a build that had Ceph's libraries
[ ! -x "$build/bin/fairlead-rbd" ] || ceph=(fairlead-volumes-ceph)
lintian --allow-root --fail-on error --tag-display-limit 0 "$work"/built/*.deb > "$work/log" 2>&1 || fail 'lintian'
ok "packages $old and $new, lintian"

# ---- a root, with its own processes and network. The folder of the site lies elsewhere: everything on a machine is named after its real path.

mkdir -p "$work"/{upper,overlay,root,site/images}
mount_root='
  set -e
  work=$1 base=$2 site=$3
  mount --make-rprivate /
  mount -t overlay overlay -o "lowerdir=$base/rootfs,upperdir=$work/upper,workdir=$work/overlay" "$work/root"
  mount -t proc proc "$work/root/proc"
  mount --rbind /sys "$work/root/sys"
  mount --rbind /dev "$work/root/dev"
  mount -t tmpfs tmpfs "$work/root/run"
  mkdir -p "$work/root$site" "$work/root/debs/old" "$work/root/debs/new"
  mount --bind "$work/site" "$work/root$site"
  mount --bind /var/lib/fairlead/images "$work/root$site/images"
  mount --bind "$4" "$work/root/debs/old"
  mount --bind "$5" "$work/root/debs/new"
  ln -sfn "$site" "$work/root/var/lib/fairlead"
  ip link set lo up
  # Not chroot: who joins a container, as exec does, begins at the root of its mounts, and would see this machine there.
  cd "$work/root"
  pivot_root . mnt
  umount --lazy /mnt
  echo ready
  # Not exec: the first process reaps what others leave, as bash does.
  sleep 3600 & wait'
site=/srv/site-${work##*-}
site_id=$(printf '%s' "$site" | sha256sum | cut -c1-6)
unshare --mount --pid --net --ipc --uts --fork --kill-child bash -c "$mount_root" mount_root "$work" "$base" "$site" "$old_debs" "$new_debs" < /dev/null > "$work/log" 2>&1 &
holder=$!
eventually 20 grep -qx ready "$work/log"
first=$(pgrep -P "$holder" | head -n 1)
in_root() { nsenter --target "$first" --mount --pid --net --ipc --uts -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
installed() { in_root dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2> /dev/null; }
install_debs() { in_root sh -c "dpkg --install $2 /debs/$1/*.deb" > "$work/log" 2>&1 || fail "dpkg --install of $1"; }

install_debs old ''
[[ $(installed fairlead-server) == "installed $old" ]] || fail "fairlead-server is $(installed fairlead-server)"
in_root dpkg --verify fairlead fairlead-server fairlead-machines fairlead-agent fairlead-volumes "${ceph[@]}" fairlead-slurm > "$work/log" 2>&1
[[ ! -s $work/log ]] || fail 'dpkg --verify finds differences'
[[ $(in_root stat -L -c '%U %a' /var/lib/fairlead) == 'fairlead 755' ]] || fail "state folder: $(in_root stat -L -c '%U %a' /var/lib/fairlead)"
for unit in fairlead-server fairlead-machines fairlead-volumes; do
  [[ -L $work/upper/etc/systemd/system/multi-user.target.wants/$unit.service ]] || fail "$unit.service is not enabled"
done
ok 'install: files as packed, user, units enabled'

for unit in fairlead-server fairlead-machines fairlead-agent fairlead-volumes; do
  in_root cat /usr/lib/systemd/system/$unit.service > "$work/$unit.service"
  # Its programs are not on this machine; every other complaint counts.
  systemd-analyze verify --recursive-errors=no "$work/$unit.service" 2>&1 | grep -F "$unit.service" | grep -vE 'is not executable|not found' > "$work/log" || true
  [[ ! -s $work/log ]] || fail "systemd-analyze verify $unit"
done
exposure=$(systemd-analyze security --offline=true "$work/fairlead-server.service" 2> /dev/null | sed -nE 's/.*Overall exposure level for .*: ([0-9.]+) .*/\1/p')
awk -v level="$exposure" 'BEGIN { exit !(level != "" && level < 2.0) }' || fail "fairlead-server.service is exposed more than planned: $exposure"
ok "units; exposure of fairlead-server $exposure of 10"

# ---- run as the units say, without systemd: ExecStart with the unit's user and capabilities

run_unit() { # NAME WRAPPER...
  local name=$1 line
  shift
  line=$(in_root sed -n 's/^ExecStart=//p' "/usr/lib/systemd/system/$name.service" | sed -E 's/ \$[A-Z_]+//')
  # shellcheck disable=SC2086
  in_root "$@" $line >> "$work/$name.service.log" 2>&1 < /dev/null &
}
process_of() { in_root pgrep -o -x "$1"; } # its number in the root
start_site() {
  in_root mkdir -p /run/fairlead
  run_unit fairlead-machines env
  eventually 10 in_root test -S /run/fairlead/machines.sock
  run_unit fairlead-server setpriv --reuid fairlead --regid fairlead --init-groups --no-new-privs --bounding-set=-all --inh-caps=-all
  eventually 30 in_root fairlead get namespaces
}
stop_site() {
  local name
  for name in fairlead-server fairlead-machin; do in_root pkill -TERM -o -x "$name" || true; done # names of processes have 15 letters
  eventually 20 bash -c "! nsenter --target $first --pid --mount -- pgrep -x 'fairlead-server|fairlead-machin'"
}
get() { in_root fairlead get "$@"; }
json() { /usr/bin/python3 -c 'import json, sys; print(eval(sys.argv[1], {"o": json.load(sys.stdin)}))' "$1"; }
node_ready() { get nodes node-0 -o json | json '[c["status"] for c in o["status"]["conditions"] if c["type"] == "Ready"][0]' | grep -qx True; }
container() { get pods "$1" -n default -o json | json 'o["metadata"]["uid"] + " " + str(o["status"]["containerStatuses"][0]["restartCount"]) + " " + o["status"]["containerStatuses"][0]["containerID"]'; }
# A Job whose pod counts until it finds a file. It would be given another pod for one that is lost: of none, and of one only, is to be known.
job() { # NAME
  in_root sh -c 'cat > /tmp/job.yaml && fairlead apply -f /tmp/job.yaml' << YAML > "$work/log" 2>&1 || fail "apply job $1"
apiVersion: batch/v1
kind: Job
metadata: {name: $1, namespace: default}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: "busybox:1", command: [sh, -c, "n=0; until [ -e /tmp/finish ]; do sleep 1; n=\$((n+1)); echo \$n; done; echo finished at \$n"]}]
YAML
}
# Its uid, then how many of its pods are at work, have succeeded, have failed, and its conditions that are true.
job_is() { get jobs "$1" -n default -o json | json '" ".join([o["metadata"]["uid"]] + [str(o.get("status", {}).get(n, 0)) for n in ("active", "succeeded", "failed")] + [c["type"] for c in o.get("status", {}).get("conditions", []) if c["status"] == "True"])'; }
pods_of() { get pods -n default -o json | json '" ".join(p["metadata"]["name"] for p in o["items"] if any(r["kind"] == "Job" and r["uid"] == "'"$1"'" for r in p["metadata"].get("ownerReferences", [])))'; } # UID
made_for() { get events -n default -o json | json '" | ".join(str(e.get("count", 1)) + " " + e["message"] for e in o["items"] if e["involvedObject"].get("uid") == "'"$1"'" and e["reason"] == "SuccessfulCreate")'; } # UID
running() { get pods "$1" -n default -o json | json 'o["status"]["phase"]' | grep -qx Running; }
pod() { # NAME
  in_root sh -c 'cat > /tmp/pod.yaml && fairlead apply -f /tmp/pod.yaml' << YAML > "$work/log" 2>&1 || fail "apply pod $1"
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "busybox:1", command: [sh, -c, "n=0; while sleep 1; do n=\$((n+1)); echo \$n; done"]}]
YAML
}

start_site
server=$(process_of fairlead-server)
[[ $(in_root awk '/^Uid:|^CapEff:|^NoNewPrivs:/ {print $2}' "/proc/$server/status" | tr '\n' ' ') == "$(in_root id -u fairlead) 0000000000000000 1 " ]] || fail 'the server has more than its user'
in_root sh -c 'cat > /tmp/machine.yaml && fairlead apply -f /tmp/machine.yaml' << 'YAML' > "$work/log" 2>&1 || fail 'apply a machine'
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: node-0}
spec: {local: {cpu: "1", memory: 512Mi}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: written-by-old, namespace: default}
data: {a: b}
YAML
eventually 60 node_ready
in_root ip link show "fl$site_id" > "$work/log" 2>&1 || fail "the site's network is not fl$site_id"
job before
at_work() { [[ $(job_is before) == *' 1 0 0' ]]; }
eventually 60 at_work
job_uid=$(job_is before | cut -d' ' -f1)
job_pod=$(pods_of "$job_uid")
eventually 60 running "$job_pod"
before=$(container "$job_pod")
[[ $(cut -d' ' -f2 <<< "$before") == 0 ]] || fail "the Job's container was restarted before anything happened: $before"
one_pod_only() {
  [[ $(pods_of "$job_uid") == "$job_pod" ]] || fail "pods of the Job: $(pods_of "$job_uid"), not $job_pod alone"
  [[ $(made_for "$job_uid") == "1 Created pod: $job_pod" ]] || fail "pods made for the Job: $(made_for "$job_uid")"
}
one_pod_only
ok "the server without any capability, a node by the helper, a Job on it"
in_root setpriv --reuid nobody --clear-groups /usr/lib/fairlead/fairlead --help > /dev/null
if in_root setpriv --reuid nobody --clear-groups python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect("/run/fairlead/machines.sock")' 2> "$work/log"; then fail 'anybody may ask the helper'; fi
grep -q PermissionError "$work/log" || fail 'refused for another reason'
ok 'nobody else may ask the helper'

# ---- upgrade, roll back, each with the Job running, at first with the agent of before, then with its own

state=$work/site # /var/lib/fairlead in the root
schema() { /usr/bin/python3 -c 'import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("SELECT value FROM meta WHERE name = ?", ["schema"]).fetchone()[0])' "$state/store.db"; } # of a server that is stopped
store_sql() { /usr/bin/python3 -c 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit(); c.close()' "$state/store.db" "$1"; }
printed() { in_root fairlead logs "default/$job_pod" | tail -n 1; }
agent() { in_root pgrep -o -f 'fairlead-agent run'; }
agent_program() { in_root readlink "/proc/$(agent)/exe"; } # as the host sees it; "... (deleted)" once another was installed over it
agent_is_current() { [[ $(agent_program) == */usr/lib/fairlead/fairlead-agent ]]; }
goes_on() { [[ $(printed) -gt $1 ]]; }
settled() { # NAME: all is as before, and new pods start
  local count
  [[ $(get configmaps written-by-old -n default -o json | json 'o["data"]["a"]') == b ]] || fail 'what was written before is gone'
  eventually 60 node_ready
  [[ $(container "$job_pod") == "$before" ]] || fail "the Job's pod did not outlive it: $(container "$job_pod"), was $before"
  [[ $(job_is before) == "$job_uid 1 0 0" ]] || fail "the Job is not at work with one pod: $(job_is before)"
  one_pod_only
  count=$(printed)
  eventually 20 goes_on "$count"
  pod "$1"
  eventually 60 running "$1"
}
renew_agent() { # VERSION: as its own unit's restart does; the node's first process starts what is installed now
  agent_program | grep -q deleted || fail "the agent is not that of before: $(agent_program)"
  in_root kill -TERM "$(agent)"
  eventually 30 agent_is_current
}

stop_site
install_debs new ''
[[ $(installed fairlead-server) == "installed $new" ]] || fail "not $new: $(installed fairlead-server)"
known=$(schema)
if [[ -z $previous ]]; then
  # What a program one schema older would have left.
  store_sql "DROP TABLE programs; UPDATE meta SET value = $((known - 1)) WHERE name = 'schema'"
fi
from=$(schema)
start_site
settled with-new
ok "upgrade to $new: the store, the node and its Job go on, new pods start by the agent of before"
renew_agent
settled new-agent
ok "the agent of $new takes over the containers of the one before"
copy=/var/lib/fairlead/store.db.schema-$from
stop_site
to=$(schema)
if ((to > from)); then
  in_root test -s "$copy" || fail "the store was brought from schema $from to $to without a copy"
  [[ $(in_root stat -c '%U %a' "$copy") == 'fairlead 600' ]] || fail "the copy of the store: $(in_root stat -c '%U %a' "$copy")"
  ok "the store was brought from schema $from to $to; a copy of before is kept"
elif [[ -z $previous ]]; then
  fail "the store stays at schema $from"
fi

install_debs old --force-downgrade
[[ $(installed fairlead-server) == "installed $old" ]] || fail "not $old: $(installed fairlead-server)"
if ((to > from)); then
  [[ -n $previous ]] || store_sql "INSERT INTO programs VALUES($((to + 1)), '$new'); UPDATE meta SET value = $((to + 1)) WHERE name = 'schema'"
  sum=$(sha256sum < "$state/store.db")
  line=$(in_root sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/fairlead-server.service | sed -E 's/ \$[A-Z_]+//')
  # shellcheck disable=SC2086
  if in_root timeout 20 setpriv --reuid fairlead --regid fairlead --init-groups $line > "$work/log" 2>&1; then fail 'an older server takes a newer store'; fi
  grep -q 'written by a newer Fairlead' "$work/log" || fail 'an older server does not say why it refuses a newer store'
  [[ $(sha256sum < "$state/store.db") == "$sum" ]] || fail 'a store that was refused has changed'
  in_root sh -c "cd /var/lib/fairlead && mkdir /tmp/newer && mv store.db* /tmp/newer/ && cp -p /tmp/newer/${copy##*/} store.db" > "$work/log" 2>&1 || fail 'put the copy back'
  ok 'an older server refuses the newer store and leaves it alone'
fi
start_site
if ((to > from)) && get pods with-new -n default -o json > "$work/log" 2>&1; then fail 'the copy of before holds what came after'; fi
settled with-old
ok "roll-back to $old: what was there before goes on, its containers too, under the agent of $new"
renew_agent
settled old-agent
ok "the agent of $old takes over as well"

# ---- the Job that ran all the while ends, and the server of before sees it

count=$(printed)
in_root fairlead exec "default/$job_pod" -- touch /tmp/finish > "$work/log" 2>&1 || fail 'exec in the pod of the Job'
complete() { [[ $(job_is before) == "$job_uid 0 1 0 "* && " $(job_is before) " == *' Complete '* ]]; }
eventually 60 complete
[[ $(job_is before) != *Fail* ]] || fail "the Job is $(job_is before)"
[[ $(container "$job_pod") == "$before" ]] || fail "another container has finished: $(container "$job_pod"), was $before"
get pods "$job_pod" -n default -o json | json 'o["status"]["phase"], o["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]' | grep -qxF "('Succeeded', 0)" || fail "the pod of the Job did not succeed"
[[ $(printed) =~ ^finished\ at\ ([0-9]+)$ ]] && ((BASH_REMATCH[1] >= count)) || fail "the Job's last word is '$(printed)', after $count"
one_pod_only
ok "the Job that ran through upgrade and roll-back is complete, by its one pod and container"

# ---- remove, purge

in_root sh -c 'fairlead delete job before -n default && fairlead delete pod with-old old-agent -n default && fairlead delete machine node-0' > "$work/log" 2>&1 || fail 'delete the node'
eventually 60 bash -c "! nsenter --target $first --pid --mount -- pgrep -x fairlead-agent"
stop_site
in_root dpkg --remove fairlead fairlead-machines fairlead-server fairlead-agent fairlead-volumes "${ceph[@]}" fairlead-slurm > "$work/log" 2>&1 || fail 'remove'
in_root test -f /var/lib/fairlead/store.db || fail 'remove took the state'
in_root test ! -e /usr/lib/fairlead || fail "remove left $(in_root find /usr/lib/fairlead)"
in_root sh -c 'mkdir -p /var/lib/fairlead/volumes/x && echo precious > /var/lib/fairlead/volumes/x/file'
in_root dpkg --purge fairlead fairlead-machines fairlead-server fairlead-agent fairlead-volumes "${ceph[@]}" fairlead-slurm > "$work/log" 2>&1 || fail 'purge'
[[ -z $(in_root find /var/lib/fairlead/ -maxdepth 1 -name 'store.db*') ]] || fail 'purge left the store'
in_root test ! -e /var/lib/fairlead/pki || fail 'purge left keys'
in_root test -s /var/lib/fairlead/volumes/x/file || fail "purge deleted users' files"
! in_root getent passwd fairlead > /dev/null || fail 'purge left the user'
[[ -z $(find "$work/upper/etc" -name '*fairlead*') ]] || fail "purge left $(find "$work/upper/etc" -name '*fairlead*')"
ok 'remove keeps the state, purge deletes it, volumes stay'

# ---- a site that ran as root before is taken over

in_root sh -c 'mkdir -p /var/lib/fairlead/pki /var/lib/fairlead/volumes/ns/claim && touch /var/lib/fairlead/store.db /var/lib/fairlead/pki/ca.key && echo x > /var/lib/fairlead/volumes/ns/claim/users-file && chown -R root:root /var/lib/fairlead/pki /var/lib/fairlead/store.db /var/lib/fairlead/volumes && chown root:root /var/lib/fairlead/.'
in_root sh -c "dpkg --install /debs/old/fairlead-slurm_*.deb /debs/old/fairlead-server_*.deb" > "$work/log" 2>&1 || fail 'install over a site of root'
for path in . store.db pki/ca.key volumes/ns; do [[ $(in_root stat -c %U "/var/lib/fairlead/$path") == fairlead ]] || fail "$path is not the server's"; done
for path in volumes/ns/claim volumes/ns/claim/users-file; do [[ $(in_root stat -c %U "/var/lib/fairlead/$path") == root ]] || fail "$path changed hands"; done
ok "a site of root is taken over, users' files are not"
