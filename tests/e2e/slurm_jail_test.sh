#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The shared root of a Slurm cluster ("jail"): filled by a pod; what is put into it on one node is there in the steps of another; steps, sessions and node shells live in it;
# two nodes install packages and make users at once; a step whose root is gone fails with a word and drains nothing; a new version is built beside the old one with what people changed, running jobs keep theirs, and
# the way back is a flip.
# usage: slurm_jail_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: slurm_jail_test.sh BUILD_DIR}
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"
told_pods=(demo-populate-jail "${told_pods[@]}")
# Two versions: one file that people will have changed, too, and one that they will not.
for n in 1 2; do
  slim_image "$FAIRLEAD_STATE_DIR/images" tools $n
  rootfs=$FAIRLEAD_STATE_DIR/images/tools/$n/rootfs
  rm -f "$rootfs/etc/issue" "$rootfs/etc/motd"
  echo "issue of image $n" > "$rootfs/etc/issue"
  echo "motd of both" > "$rootfs/etc/motd"
done

site=$work/demo.yaml
sed 's/^spec:$/&/; s/^  slurmNodes:$/  populateJail: {image: "tools:1", k8sNodeFilterName: no-gpu}\n&/' "$top/examples/demo.yaml" > "$site"
confined=no
[ ! -d /sys/fs/cgroup/memory ] || confined=yes
[ "$confined" = no ] || sed -i 's/cgroupVersion: v2/cgroupVersion: v1/' "$site"
# A volume mounted into the jail, too.
sed -i -e 's/^  volumeSources:$/&\n  - {name: data, persistentVolumeClaim: {claimName: data-pvc}}/' -e 's/volumes: {jail: {volumeSourceName: jail}\(, shared[^}]*\)\?}$/volumes: {jail: {volumeSourceName: jail}, jailSubMounts: [{name: data, mountPath: \/mnt\/data, volumeSourceName: data}]\1}/' "$site"
cat >> "$site" << 'TEXT'
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-pvc, namespace: demo}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
TEXT
[ "$(grep -c jailSubMounts "$site")" = 2 ] || fail 'the site has no sub-mounts'
grep -q populateJail "$site" || fail 'the site was not made'

options=(--port 16444 --node-range 10.85.0.0/16 --pod-range 10.86.0.0/16)
condition() { run get slurmclusters -n demo demo -o json | python3 -c 'import json, sys
print(next((c["status"] + " " + c["message"] for c in json.load(sys.stdin)["status"]["conditions"] if c["type"] == sys.argv[1]), "absent"))' "$1"; }
says() { [[ $(condition "$1") == *"$2"* ]]; }
jail_is_ready() { [[ $(condition JailReady) == True* ]]; }
ready() { [ "$(run get pods -n demo "$1" -o json | python3 -c 'import json, sys
pod = json.load(sys.stdin)
print(all(c["ready"] for c in pod["status"]["containerStatuses"]) and any(e["name"] == "FAIRLEAD_JAIL" for c in pod["spec"]["containers"] for e in c.get("env", [])))')" = True ]; }
# With --full a cluster that runs without a jail gets one: its job and its steps go on, its users stay, and the pod that fills the volume is killed in the middle. Else the jail is there from the start.
if [ -n "${FAIRLEAD_FULL:-}" ]; then
  sed '/populateJail/d' "$site" > "$work/without.yaml"
  run up -f "$work/without.yaml" "${options[@]}" > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up without a jail"; }
  login adduser old > /dev/null
  job=$(login sbatch --parsable -o /dev/null -w worker-0 --wrap 'sleep 1000' | tr -d '[:space:]')
  until_true 60 'the job runs' bash -c "'$fairlead' exec -n demo login-0 -- squeue -h -j $job -o %T | grep -qx RUNNING"
  running() { [ "$(login squeue -h -j "$job" -o '%T')" = RUNNING ] || fail "the job does not run any more: $(login squeue -h)"; }
  run apply -f "$site" > /dev/null
  killed=no
  end=$((SECONDS + 120))
  while ((SECONDS < end)); do
    half=$(find "$FAIRLEAD_STATE_DIR/volumes" -maxdepth 5 -path '*/versions/*.tmp/usr' 2> /dev/null | head -n 1 || true)
    if [ -n "$half" ]; then
      for victim in $(pgrep -f '^/opt/fairlead/bin/fairlead-slurm populate' || true); do
        # The one of this site, should another test have one.
        if grep -qF "$work" "/proc/$victim/mountinfo" && kill -9 "$victim"; then killed=yes; break 2; fi
      done
    fi
    read -rt 0.05 <> <(:) || true
  done
  [ "$killed" = yes ] || fail 'the filling was not seen'
  [ ! -e "${half%/versions/*}/current" ] || fail 'a root that was not whole became current'
  running
  expect "the filling was killed; nothing half is current, and steps run on as before" "worker-1" login srun -w worker-1 hostname
  until_true 90 'another pod fills the jail' jail_is_ready
  until_true 60 'the head is renewed' ready controller-0
  until_true 60 'the conditions name the workers of before' says WorkersAvailable 'worker-0, worker-1 run an older template'
  expect "a worker of before goes on in its own image" "/mnt/jail/home" login srun -w worker-1 readlink /home
  running
  run delete --no-wait pod -n demo login-0 > /dev/null
  until_true 60 'login-0 lives in the jail' ready login-0
  expect "users of before are there" "/home/old" login su - old -c pwd
  running
  run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; fail "down"; }
  note "a running cluster was given a jail, and no job ended for it"
  trap - EXIT
  rm -rf "$work"
  # The rest on a cluster that has a jail from the start.
  exec env -u FAIRLEAD_FULL FAIRLEAD_LONG=1 bash "$0" "$build"
else
  run up -f "$site" "${options[@]}" > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
fi
volume=$(dirname "$(find "$FAIRLEAD_STATE_DIR/volumes" -maxdepth 3 -name versions)")
[ -e "$volume/current/bin/sh" ] || fail 'current leads nowhere'
note "a pod filled the jail and the cluster came up"
expect "the condition tells it" "is the shared root" condition JailReady

worker worker-0 chroot /mnt/jail sh -c 'printf "#!/bin/sh\necho hello from \$(hostname)\n" > /usr/local/bin/hello && chmod 755 /usr/local/bin/hello'
expect "a program put into the jail on one node runs on another" "hello from worker-1" login srun -w worker-1 hello
expect "a step sees nothing but the jail" "current root" login srun -w worker-0 sh -c '[ ! -e /mnt/jail-volume/current ] && [ -e /usr/local/bin/hello ] && [ ! -e /proc/self/root/mnt/jail/usr ] && echo current root'
expect "a step has its GPU" "GPU 0: Fairlead Mock GPU" login srun --gres=gpu:1 nvidia-smi -L
expect "a volume of jailSubMounts is where it belongs" "seen" login srun --nodes=1 sh -c 'echo seen > /mnt/data/note; cat /mnt/data/note'
expect "and is the same in a session" "seen" run ssh demo cat /mnt/data/note
[ "$confined" = no ] || expect "a step beyond its memory is killed and told so" "Out Of Memory" login srun --nodes=1 --mem=100 python3 -c 'bytearray(300 << 20)'
expect "Slurm's client works in a chroot on a node" "worker-0" worker worker-0 chroot /mnt/jail sinfo -h -N -o %N
expect "and in a step" "worker-1" login srun -w worker-0 sinfo -h -N -o %N
expect "a session is in the jail" "hello from login-0" run ssh demo hello
expect "adduser in the jail makes a user of every node" $'ada\nada' run ssh demo "adduser --disabled-password --gecos '' ada > /dev/null 2>&1; su - ada -c 'srun --nodes=2 whoami'"
expect "and adduser on a node, as without a jail" $'eve\neve\n/home/eve' login sh -c 'adduser eve > /dev/null && su - eve -c "srun --nodes=2 sh -c whoami; srun -n1 pwd"'
job=$(run ssh demo "mkdir -p /srv/results && chown ada /srv/results && su - ada -c 'cd /srv/results && sbatch --parsable -w worker-1 --wrap \"pwd; hello; id -un\"'" | tr -d '[:space:]')
expect "a batch job's folder and output are in the jail" $'/srv/results\nhello from worker-1\nada' run ssh demo "for i in \$(seq 100); do grep -q ada /srv/results/slurm-$job.out 2> /dev/null && break; sleep 0.1; done; cat /srv/results/slurm-$job.out"

# What pip3 installs: by root for every node, in an environment for who made it. From a wheel of our own, since there is no network here.
cat > "$work/wheel.py" << 'TEXT'
import zipfile
for name in ("hello_pip", "pip_one", "pip_two"):
    with zipfile.ZipFile(f"/srv/{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "where = __file__\n")
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
TEXT
worker worker-0 chroot /mnt/jail python3 -c "$(cat "$work/wheel.py")"
seen="python3 -c 'import hello_pip; print(hello_pip.where)'"
expect "pip3 install on one node is seen on all" "dist-packages/hello_pip.py" run ssh demo "pip3 install -q --no-index --root-user-action ignore /srv/hello_pip-1.0-py3-none-any.whl && srun -w worker-1 $seen"
expect "an environment of a user's own works in jobs" "/home/ada/env/lib/python3" run ssh demo "su - ada -c 'python3 -m venv env && env/bin/pip3 install -q --no-index /srv/hello_pip-1.0-py3-none-any.whl && srun -w worker-1 env/bin/python -c \"import hello_pip; print(hello_pip.where)\"'"
expect "sudo -i on a node gives a Slurm client" "worker-0" worker worker-0 sudo -n -i sinfo -h -N -o %N
expect "and so it does for a user who may" "worker-1" run ssh demo "adduser ada sudo > /dev/null && su - ada -c 'sudo -n -i srun -w worker-1 hostname'"

# Two nodes install at once.
cat > "$work/build.sh" << 'TEXT'
set -e
for name in one two; do
  mkdir -p /srv/$name/DEBIAN /srv/$name/usr/bin
  printf 'Package: fairlead-%s\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: test\n' $name > /srv/$name/DEBIAN/control
  printf '#!/bin/sh\necho package %s\n' $name > /srv/$name/usr/bin/package-$name
  chmod 755 /srv/$name/usr/bin/package-$name
  dpkg-deb -b /srv/$name /srv/$name.deb > /dev/null
done
TEXT
worker worker-0 chroot /mnt/jail sh -c "$(cat "$work/build.sh")"
at_once() { # COMMAND: its $0 is "one" on worker-0 and "two" on worker-1
  login srun -w worker-0 sh -c "$1" one > "$work/one.log" 2>&1 &
  local first=$!
  login srun -w worker-1 sh -c "$1" two > "$work/two.log" 2>&1 || fail "on worker-1: $(cat "$work/two.log")"
  wait $first || fail "on worker-0: $(cat "$work/one.log")"
}
at_once 'apt-get install -y "/srv/$0.deb"'
expect "two nodes installed packages at once and both have both" $'package one\npackage two' login srun -w worker-0 sh -c 'package-one; package-two'
expect "and the other node, too" $'package one\npackage two' login srun -w worker-1 sh -c 'package-one; package-two'
at_once 'pip3 install -q --no-index --root-user-action ignore "/srv/pip_$0-1.0-py3-none-any.whl"'
for node in 0 1; do expect "what pip3 installed on two nodes at once is on worker-$node" "dist-packages/pip_one.py /usr/local/lib/python3" login srun -w "worker-$node" python3 -c 'import pip_one, pip_two; print(pip_one.where, pip_two.where)'; done

for node in 0 1; do login srun -w "worker-$node" sh -c "for i in 1 2 3; do adduser --disabled-password --gecos '' n$node-\$i || exit 1; done" > "$work/users-$node.log" 2>&1 & done
wait || true
expect "two nodes made users at once, each with a number of its own" $'6\n6' login srun -w worker-0 sh -c 'grep -c ^n[01]- /etc/passwd; grep ^n[01]- /etc/passwd | cut -d: -f3 | sort -u | wc -l'

# A node whose jail is not whole: the step fails with a word, the node stays in service.
worker worker-1 mv /run/fairlead/jail /run/fairlead/jail.away
expect "a step without its root is not started" "cannot be entered" login srun -w worker-1 true
if login srun -w worker-1 true > /dev/null 2>&1; then fail 'a step ran outside of the jail'; fi
worker worker-1 mv /run/fairlead/jail.away /run/fairlead/jail
expect "no node is drained for it" $'idle\nidle' login sinfo -h -N -o %T
expect "and it takes steps again" "hello from worker-1" login srun -w worker-1 hello

# Another version. A job runs on in the old one all the while.
login srun -w worker-0 sh -c 'echo "motd of people" > /etc/motd; echo "issue of people" > /etc/issue; rm /etc/debian_version'
job=$(login sbatch --parsable -D /home -o /home/old.out -w worker-1 --wrap 'until [ -e /home/go ]; do sleep 0.2; done; cat /usr/share/image-of; hello; touch /etc/written-late' | tr -d '[:space:]')
until_true 30 'the job of the old version runs' bash -c "'$fairlead' exec -n demo login-0 -- squeue -h -j $job -o %T | grep -qx RUNNING"
if [ -n "${FAIRLEAD_LONG:-}" ]; then
  run ssh demo "su - ada -c 'sleep 6543'" > /dev/null 2>&1 &
  until_true 20 'a session of the old version runs' login pgrep -u ada -x sleep
fi
sed -i 's/tools:1/tools:2/' "$site"
run apply -f "$site" > /dev/null
[ "$(condition JailUpdated)" = absent ] || fail 'a changed image alone asked for a version'
old=$(readlink "$volume/current")
run jail update --timeout 60 > "$work/update.log" 2>&1 || fail "jail update: $(cat "$work/update.log")"
note "a version of another image was built and made current"
[ "$(readlink "$volume/current")" != "$old" ] || fail 'current leads to the old version'
grep -q '/etc/issue: changed here and in the new image' "$work/update.log" || fail "the conflict is not told: $(cat "$work/update.log")"
for node in worker-0 worker-1; do until_true 20 "$node enters the new version" bash -c "'$fairlead' exec -n demo $node -c slurmd -- chroot /mnt/jail cat /usr/share/image-of | grep -qx 'image 2'"; done
expect "steps live in it, with the packages, users, changes and removals of people" $'image 2\nmotd of people\npackage one\npackage two\nada\nno' login srun -w worker-0 sh -c 'cat /usr/share/image-of /etc/motd; package-one; package-two; id -un ada; [ -e /etc/debian_version ] || echo no'
expect "dpkg knows the packages there" "fairlead-two" login srun -w worker-0 dpkg -l fairlead-one fairlead-two
expect "what both had changed is the image's, the other copy is kept" $'issue of image 2\nissue of people' login srun -w worker-0 sh -c 'cat /etc/issue /var/lib/fairlead/jail-conflicts/*/etc/issue'
until_true 20 'login-0 enters the new version' bash -c "'$fairlead' ssh demo cat /usr/share/image-of 2> /dev/null | grep -q 'image 2'"
note "and so do sessions"
touch "$volume/home/go"
until_true 30 'the job of the old version ends' bash -c "grep -q 'hello from worker-1' '$volume/home/old.out'"
expect "the job that ran kept the old root" "image 1" cat "$volume/home/old.out"
until_true 10 'its last write is in the old version' test -e "$volume/$old/etc/written-late"
[ ! -e "$volume/current/etc/written-late" ] || fail 'a running job wrote into the new version'
uses() { grep -qx "${old#versions/}" "$volume/.fairlead-jail.nodes/$1"; }
if [ -n "${FAIRLEAD_LONG:-}" ]; then
  free() { ! uses "$1"; }
  until_true 60 'the workers take the old version down when nothing runs in it' free worker-0
  until_true 60 'also the one whose job has ended' free worker-1
  uses login-0 || fail 'login-0 has a session in the old version and says that it does not use it'
  login pkill -u ada -x sleep
  until_true 60 'login-0, when the session has ended' free login-0
  [ "$(login ls /mnt/jail-versions)" = "$(basename "$(readlink "$volume/current")")" ] || fail 'old mounts are left on login-0'
  note "each node says which versions it uses, and takes an old one down when no process lives in it"
  run jail update --version three --timeout 60 > "$work/three.log" 2>&1 || fail "jail update: $(cat "$work/three.log")"
  grep -q "not removed ${old#versions/}: .* /etc/written-late" "$work/three.log" || fail "what was written late in the old version is not told: $(cat "$work/three.log")"
  [ -e "$volume/$old/etc/written-late" ] || fail 'what a job wrote in the old version is gone'
  rm "$volume/$old/etc/written-late"
  run jail update --version four --timeout 60 > "$work/four.log" 2>&1 || fail "jail update: $(cat "$work/four.log")"
  [ ! -e "$volume/$old" ] || fail "a version that nobody uses is still there: $(cat "$work/four.log")"
  note "the version before the last one is removed with the next update"
  run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; fail "down"; }
  trap - EXIT
  rm -rf "$work"
  echo "$passed passed, 0 failed"
  exit 0
fi
run jail rollback --timeout 60 > "$work/rollback.log" 2>&1 || fail "jail rollback: $(cat "$work/rollback.log")"
[ "$(readlink "$volume/current")" = "$old" ] || fail 'the way back did not lead to the old version'
until_true 20 'worker-0 is back in the old version' bash -c "'$fairlead' exec -n demo worker-0 -c slurmd -- chroot /mnt/jail cat /usr/share/image-of | grep -qx 'image 1'"
expect "and steps live in the old version again" $'image 1\nissue of people' login srun -w worker-0 cat /usr/share/image-of /etc/issue
run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; fail "down"; }
note "down left nothing mounted"
trap - EXIT
rm -rf "$work"
echo "$passed passed, 0 failed"
