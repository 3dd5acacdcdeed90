#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A cluster of its own whose nodes live in a shared root: a pod fills it; what apt-get, pip3 and adduser put into it on one node is on every node; a step lives in an OCI image; a new version keeps what people added, a running
# job keeps the old one, and the way back is a flip. Beside it, what only a cluster of its own can try: a state volume that is nearly full.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_PROVIDE:?}"

field() { k -n shared get slurmcluster shared -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
on() { k -n shared exec login-0 -c sshd -- "$@"; }
in_jail() { k -n shared exec -i worker-0 -c slurmd -- chroot /mnt/jail "$@"; }
state() { on scontrol show job "$1" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p' | head -n 1; }
version() { k -n shared get slurmcluster shared -o 'jsonpath={.status.jail.version}'; }
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || {
    k -n shared get slurmcluster shared -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
    k -n shared get pods,pvc
    k -n shared logs shared-populate-jail --tail=15
    k -n shared logs worker-0 -c slurmd --tail=15
  } >&2 || true
  for name in shared adopted; do
    k -n $name delete slurmcluster $name --ignore-not-found --timeout=120s > /dev/null || status=1
    k delete namespace $name --ignore-not-found --timeout=120s > /dev/null || status=1
  done
  exit "$status"
}
trap clean_up EXIT

k create namespace shared > /dev/null
shared_claim shared jail 40Gi
# The state lies in memory, whose room is bounded: see below.
workers=2 memory=384Mi jail='persistentVolumeClaim: {claimName: jail}' state='emptyDir: {medium: Memory, sizeLimit: 64Mi}' more='populateJail: {image: "slim:1", k8sNodeFilterName: cpu}' small_cluster shared
until_true 180 'the shared root is whole' same True field JailReady status
note 'a pod filled the shared root'
until_true 180 'the cluster' same Available k -n shared get slurmcluster shared -o 'jsonpath={.status.phase}'
both_idle() { same $'idle\nidle' on sinfo -h -N -o %t; }
until_true 60 'two workers' both_idle
first=$(version)
[ -n "$first" ] || fail 'the version of the shared root is not told'
same 'image 1' on srun -w worker-1 cat /usr/share/image-of || fail 'steps do not live in the shared root'
note "the cluster is up and steps live in it (version $first)"

# ---- what is put into it on one node is on every node. There is no network: package and wheel are made here.
in_jail sh -se > "$SCENARIO_WORK/made" 2>&1 << 'TEXT' || fail "the package and the wheel: $(cat "$SCENARIO_WORK/made")"
mkdir -p /srv/hello/DEBIAN /srv/hello/usr/bin
printf 'Package: fairlead-hello\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: test\n' > /srv/hello/DEBIAN/control
printf '#!/bin/sh\necho hello from $(hostname)\n' > /srv/hello/usr/bin/hello
chmod 755 /srv/hello/usr/bin/hello
dpkg-deb -b /srv/hello /srv/hello.deb
python3 - << 'PYTHON'
import zipfile
with zipfile.ZipFile("/srv/hello_pip-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("hello_pip.py", "where = __file__\n")
    wheel.writestr("hello_pip-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello-pip\nVersion: 1.0\n")
    wheel.writestr("hello_pip-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("hello_pip-1.0.dist-info/RECORD", "")
PYTHON
TEXT
on srun -w worker-0 apt-get install -y /srv/hello.deb > "$SCENARIO_WORK/apt" 2>&1 || fail "apt-get install in a step: $(cat "$SCENARIO_WORK/apt")"
same 'hello from worker-1' on srun -w worker-1 hello || fail 'the package is not on the other worker'
in_jail pip3 install -q --no-index --root-user-action ignore /srv/hello_pip-1.0-py3-none-any.whl > "$SCENARIO_WORK/pip" 2>&1 || fail "pip3 install on a node: $(cat "$SCENARIO_WORK/pip")"
says dist-packages/hello_pip.py on srun -w worker-1 python3 -c 'import hello_pip; print(hello_pip.where)' || fail 'what pip3 installed is not on the other worker'
on adduser eve > "$SCENARIO_WORK/adduser" 2>&1 || fail "adduser: $(cat "$SCENARIO_WORK/adduser")"
same $'eve\neve' on su - eve -c 'srun --nodes=2 id -un' || fail 'the user is not known on both workers'
note 'a package of apt-get, one of pip3 and a user, each made on one node, are on every node'

# ---- a step in an OCI image: a shell and its libraries
in_jail python3 - > "$SCENARIO_WORK/made" 2>&1 << 'PYTHON' || fail "the image: $(cat "$SCENARIO_WORK/made")"
import hashlib, io, json, os, platform, shutil, subprocess, tarfile
root, out = "/srv/mini", "/home/images"
os.makedirs(out + "/blobs/sha256")
files = {"/bin/sh", "/bin/cat"}
for program in sorted(files):
    files |= {word for word in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split() if word.startswith("/")}
for name in files:
    os.makedirs(root + os.path.dirname(name), exist_ok=True)
    shutil.copy(os.path.realpath(name), root + name)
os.makedirs(root + "/etc")
open(root + "/etc/image-name", "w").write("mini\n")
packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w") as tar:
    for name in sorted(os.listdir(root)):
        tar.add(root + "/" + name, arcname=name)
def blob(kind, data):
    digest = hashlib.sha256(data).hexdigest()
    open(out + "/blobs/sha256/" + digest, "wb").write(data)
    return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data)}
layer = blob("layer.v1.tar", packed.getvalue())
machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
config = blob("config.v1+json", json.dumps({"architecture": machine, "os": "linux", "config": {"Env": ["PATH=/bin"]}, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}).encode())
manifest = blob("manifest.v1+json", json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer]}).encode())
manifest["annotations"] = {"org.opencontainers.image.ref.name": "mini"}
json.dump({"schemaVersion": 2, "manifests": [manifest]}, open(out + "/index.json", "w"))
json.dump({"imageLayoutVersion": "1.0.0"}, open(out + "/oci-layout", "w"))
PYTHON
same mini on srun -w worker-1 --container-image=oci:/home/images:mini sh -c '[ ! -e /usr/bin/hello ] && cat /etc/image-name' || fail "a step in an OCI image: $(on srun -w worker-1 --container-image=oci:/home/images:mini cat /etc/image-name 2>&1)"
same 'hello from worker-1' on srun -w worker-1 hello || fail 'a step after it is not in the shared root'
note 'a step lives in an OCI image, the next one in the shared root again'

# ---- the volume of Slurm's state has next to no room: it is told, jobs run, and it is over when there is room again
on_head() { k -n shared exec controller-0 -c slurmctld -- "$@"; }
look() { k -n shared patch slurmcluster shared --type=merge -p "{\"spec\":{\"extensions\":{\"scaleDown\":$1}}}" > /dev/null; } # a cluster at rest is looked at every five minutes, and at each edit
same True field StateVolumeHasRoom status || fail "StateVolumeHasRoom: $(field StateVolumeHasRoom message)"
on_head fallocate -l 52M /var/spool/slurmctld/fill || fail 'the volume cannot be filled'
look '{"policy":"wait"}'
until_true 90 'a state volume that is nearly full is told' same NearlyFull field StateVolumeHasRoom reason
says '% of 64 MiB are free on the volume of Slurm'"'"'s state: make room or a larger claim' field StateVolumeHasRoom message || fail "StateVolumeHasRoom: $(field StateVolumeHasRoom message)"
same worker-0 on srun -w worker-0 printenv SLURMD_NODENAME || fail 'no job runs'
on_head rm /var/spool/slurmctld/fill || fail 'no room is made'
look null
until_true 90 'there is room again' same Room field StateVolumeHasRoom reason
note 'a state volume that is nearly full is told with how much is free, and jobs run'

# ---- another version, while a job of the old one runs
enters() { same "$2" k -n shared exec "$1" -c slurmd -- cat /run/fairlead/jail-version; }
job=$(on sbatch --parsable -D /home -o /home/old.out -w worker-1 --wrap 'until [ -e /home/go ]; do sleep 0.2; done; [ -e /etc/of-two ] || hello; touch /etc/written-late' | tr -d '[:space:]')
until_true 60 'the job of the old version runs' same RUNNING state "$job"
f jail update -n shared --version two --timeout 120 > "$SCENARIO_WORK/update" 2>&1 || fail "jail update: $(cat "$SCENARIO_WORK/update")"
same two version || fail "another version serves: $(cat "$SCENARIO_WORK/update")"
for worker in worker-0 worker-1; do until_true 30 "$worker enters the new version" enters "$worker" two; done
same $'hello from worker-0\neve' on srun -w worker-0 sh -c 'touch /etc/of-two; hello; id -un eve' || fail 'the new version lacks what people added'
says dist-packages/hello_pip.py on srun -w worker-0 python3 -c 'import hello_pip; print(hello_pip.where)' || fail "the new version lacks pip3's package"
same RUNNING state "$job" || fail 'the job of the old version does not run any more'
in_jail touch /home/go
until_true 60 'the job of the old version ends' same COMPLETED state "$job"
same 'hello from worker-1' on cat /home/old.out || fail 'the job that ran did not keep the old root'
is_empty on srun -w worker-1 find /etc -name written-late || fail 'the job of the old version wrote into the new one'
note 'a new version has what people added, and the job that ran kept the old one'

f jail rollback -n shared --timeout 120 > "$SCENARIO_WORK/rollback" 2>&1 || fail "jail rollback: $(cat "$SCENARIO_WORK/rollback")"
same "$first" version || fail "the way back: $(cat "$SCENARIO_WORK/rollback")"
for worker in worker-0 worker-1; do until_true 30 "$worker is back in the old version" enters "$worker" "$first"; done
same /etc/written-late on srun -w worker-0 find /etc -name of-two -o -name written-late || fail 'steps are not back in the old version'
says 'kept      two' f jail status -n shared || fail 'the newer version is not kept'
note 'the way back is a flip'

# ---- with --full: a root file system that somebody else made is used as it is
[ -n "${FAIRLEAD_FULL:-}" ] || exit 0
k -n shared delete slurmcluster shared --timeout=120s > /dev/null || fail 'the cluster is not deleted'
k create namespace adopted > /dev/null
shared_claim adopted jail 40Gi
k -n adopted apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: unpack}
spec:
  restartPolicy: Never
  nodeSelector: {example.com/pool: cpu}
  containers:
  - name: main
    image: "slim:1"
    command: [sh, -ec, 'cd /root-of-all; for folder in bin sbin lib lib64 etc usr var root opt srv home; do cp -a /$folder . ; done; mkdir -p proc sys dev run tmp mnt; chmod 1777 tmp; echo mine > etc/made-elsewhere']
    volumeMounts: [{name: root, mountPath: /root-of-all}]
  volumes: [{name: root, persistentVolumeClaim: {claimName: jail}}]
YAML
until_true 180 'a root file system lies on the volume' same Succeeded k -n adopted get pod unpack -o 'jsonpath={.status.phase}'
k -n adopted delete pod unpack > /dev/null
jail='persistentVolumeClaim: {claimName: jail}' more='populateJail: {image: "slim:1", k8sNodeFilterName: cpu}' small_cluster adopted
adopted() { k -n adopted get slurmcluster adopted -o "jsonpath={.status.conditions[?(@.type==\"JailReady\")].$1}"; }
here() { k -n adopted exec login-0 -c sshd -- "$@"; }
until_true 180 'it is adopted' same Adopted adopted reason
until_true 180 'the cluster' same Available k -n adopted get slurmcluster adopted -o 'jsonpath={.status.phase}'
until_true 60 'a worker' same idle here sinfo -h -N -o %t
same mine here srun cat /etc/made-elsewhere || fail 'steps do not live in it'
here adduser ada > /dev/null 2>&1 || fail 'adduser in it'
same ada here su - ada -c 'srun id -un' || fail 'a user made in it is not known on the worker'
if f jail update -n adopted --version two --timeout 60 > "$SCENARIO_WORK/update" 2>&1; then fail 'an adopted root was given a version'; fi
grep -q 'there are no versions of it' "$SCENARIO_WORK/update" || fail "jail update says: $(cat "$SCENARIO_WORK/update")"
same mine here srun cat /etc/made-elsewhere || fail 'it was written over'
note 'a root file system that was there is used as it is, and never written over'
