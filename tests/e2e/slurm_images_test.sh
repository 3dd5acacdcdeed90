#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs in OCI images (srun --container-image) and in environments of the shared root, with the real daemons: what a task finds in the image, who it is there, what it may, what is told when an image cannot be entered, and
# that no node is drained for it.
# usage: slurm_images_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: slurm_images_test.sh BUILD_DIR}
# Here there is a network, in the test's own there is none.
[ -n "${FAIRLEAD_TEST_INSIDE:-}" ] || "$(dirname "$0")/../peers/conda/fetch.sh" > /dev/null || { echo "FAIL: the installer of conda's packages" >&2; exit 1; }
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"
told_pods=(demo-populate-jail "${told_pods[@]}")
slim_image "$FAIRLEAD_STATE_DIR/images" tools 1

site=$work/demo.yaml
sed 's/^  slurmNodes:$/  populateJail: {image: "tools:1", k8sNodeFilterName: no-gpu}\n&/' "$top/examples/demo.yaml" > "$site"
confined=no
[ ! -d /sys/fs/cgroup/memory ] || confined=yes
[ "$confined" = no ] || sed -i 's/cgroupVersion: v2/cgroupVersion: v1/' "$site"
grep -q populateJail "$site" || fail 'the site was not made'
run up -f "$site" --port 16446 --node-range 10.89.0.0/16 --pod-range 10.90.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
volume=$(dirname "$(find "$FAIRLEAD_STATE_DIR/volumes" -maxdepth 3 -name versions)")
note "a cluster with a shared root came up"

# An image of a few programs, in two layers: the second takes away, replaces, and adds.
images=$volume/home/images
root=$work/root
mkdir -p "$root"/{bin,etc,opt/emptied,work,tmp,usr/bin}
copy() {
  local name=$1 path
  path=$(type -P "$name")
  cp -L "$path" "$root/bin/$name"
  ldd "$path" | grep -o '/[^ ]*' | while read -r library; do mkdir -p "$root$(dirname "$library")"; cp -L "$library" "$root$library"; done
}
for name in sh cat id env sleep grep touch ls dd pwd stat hostname mkdir true; do copy "$name"; done
cp "$root/bin/id" "$root/bin/id-as-root"
chmod 4755 "$root/bin/id-as-root"
echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
echo one > "$root/etc/image-name"
touch "$root/opt/emptied/old" "$root/opt/removed"
umoci init --layout "$images"
umoci new --image "$images:mini"
umoci insert --image "$images:mini" "$root" / > /dev/null 2>&1
umoci unpack --image "$images:mini" "$work/bundle" > /dev/null 2>&1
rm -r "$work/bundle/rootfs/opt/emptied" "$work/bundle/rootfs/opt/removed"
mkdir "$work/bundle/rootfs/opt/emptied"
touch "$work/bundle/rootfs/opt/emptied/new"
echo two > "$work/bundle/rootfs/etc/image-name"
umoci repack --image "$images:mini" "$work/bundle" > /dev/null 2>&1
umoci config --image "$images:mini" --config.env PATH=/bin --config.env GREETING=hello --config.env KEPT=image --config.workingdir /work --config.entrypoint /bin/false > /dev/null 2>&1
umoci config --image "$images:mini" --tag arm --architecture arm64 > /dev/null 2>&1
chmod -R a+rX "$images"
image=--container-image=oci:/home/images:mini
ada() { login su - ada -c "$*"; }
jail() { worker worker-0 chroot /mnt/jail "$@"; }
login adduser ada > /dev/null
# srun through a user's shell, which knows nothing of quotes twice: scripts lie in the home.
script() { cat > "$volume/home/ada/$1"; chmod 755 "$volume/home/ada/$1"; }

expect "srun tells its options" "--container-image" login srun --help
expect "a task lives in the image, its layers applied in order" $'two\nnew' login srun -w worker-0 "$image" sh -c 'cat /etc/image-name; ls /opt/emptied; [ ! -e /opt/removed ] || echo removed is there'
expect "the image is told to be unpacked once for each node" "unpacking image oci:/home/images:mini on worker-1" login srun -N2 "$image" true
if login srun -N2 "$image" true 2>&1 | grep -q unpacking; then fail 'an image was unpacked twice'; fi
expect "its environment and its folder are the image's, and Slurm's stay" $'hello image /work 0' login env KEPT=job srun -N1 "$image" sh -c 'echo $GREETING $KEPT $(pwd) $SLURM_PROCID'
expect "but for the names that the user keeps" "job" login env KEPT=job srun -N1 "$image" --container-env=KEPT sh -c 'echo $KEPT'
expect "two nodes, four tasks" $'worker-0\nworker-0\nworker-1\nworker-1' bash -c "'$fairlead' exec -n demo login-0 -- srun -N2 -n4 -O $image sh -c 'exec hostname' | sort"
expect "the task is its user" $'ada' ada srun -N1 "$image" id -un
expect "set-user-id programs of the image raise nothing" "$(login id -u ada | tr -d '[:space:]')" ada srun -N1 "$image" id-as-root -u
expect "nor does anything else" "NoNewPrivs:	1" ada srun -N1 "$image" grep NoNewPrivs /proc/self/status
expect "the image cannot be written to" "Read-only" ada srun -N1 "$image" touch /etc/x
expect "/tmp and the node's devices are there" "fine" ada srun -N1 "$image" sh -c "'touch /tmp/of-ada && [ -c /dev/null ] && [ -r /proc/1/stat ] && echo fine'"
expect "a step has its GPU" "/dev/fairlead-gpu0 0" login srun -N1 --gres=gpu:1 "$image" sh -c 'ls /dev/fairlead-gpu0 | { read -r a; echo $a $CUDA_VISIBLE_DEVICES; }'
[ "$confined" = no ] || expect "a step beyond its memory is killed and told so" "Out Of Memory" login srun -N1 --mem=100 "$image" dd if=/dev/zero of=/dev/null bs=300M count=1
status=0
login srun -N1 "$image" sh -c 'exit 7' > /dev/null 2>&1 || status=$?
[ "$status" = 7 ] || fail "exit status $status, not 7"
note "exit codes are kept"

jail install -d -o ada /srv/data
expect "a folder is mounted" $'from ada' ada srun -N1 "$image" --container-mounts=/srv/data:/data sh -c "'echo from ada > /data/x; cat /data/x'"
expect "or only to be read" "Read-only" ada srun -N1 "$image" --container-mounts=/srv/data:/data:ro touch /data/y
expect "the home is not there unless asked for" "no home" ada srun -N1 "$image" sh -c "'[ -e /home/ada/.profile ] || echo no home'"
expect "and then it is" "/home/ada" ada srun -N1 "$image" --container-mount-home --container-workdir=/home/ada pwd
jail install -d -m 0700 /srv/secret /srv/secret/inner
expect "what the user may not reach is not mounted" "--container-mounts: /srv/secret/inner: Permission denied" ada srun -N1 "$image" --container-mounts=/srv/secret/inner:/x true

# Nothing is made in what is shared with the rights of root: a place to mount upon that a mounted folder lacks is refused.
expect "no file is made below a mounted folder" "/x/nologin is not there" ada srun -N1 "$image" --container-mounts=/etc:/x,/etc/hosts:/x/nologin true
[ ! -e "$volume/current/etc/nologin" ] || fail 'a user made a file in /etc of the shared root'

# Jobs.
script job.sh << 'TEXT'
#!/bin/sh
#SBATCH --container-image=oci:/home/images:mini
#SBATCH -o job.out
#SBATCH -N1
cat /etc/image-name
echo job $SLURM_JOB_ID in $(pwd)
TEXT
ended() { [ -z "$(login squeue -h)" ]; }
ada sbatch job.sh > /dev/null
until_true 60 'the batch job ends' ended
expect "a batch script lives in an image, its output in the shared root" $'two' cat "$volume/home/ada/job.out"
expect "variables give defaults" "two" login env PYXIS_CONTAINER_IMAGE=oci:/home/images:mini srun -N1 cat /etc/image-name
script signal.sh << 'TEXT'
#!/bin/sh
#SBATCH -o signal.out
#SBATCH -N1
srun --container-image=oci:/home/images:mini sh -c 'trap "echo got it; exit 0" USR1; echo ready; while :; do sleep 0.1; done'
TEXT
job=$(ada sbatch --parsable signal.sh | tr -d '[:space:]')
until_true 60 'the step runs' grep -q ready "$volume/home/ada/signal.out"
login scancel -s USR1 "$job"
until_true 30 'the signal arrives' grep -q 'got it' "$volume/home/ada/signal.out"
note "signals are delivered"
until_true 30 'the job ends' ended

# What is told when it does not work. Each step fails, and no more than that.
expect "an image that is not there" "image oci:/home/nothing: /home/nothing: No such file or directory" login srun -N1 --container-image=oci:/home/nothing true
expect "a folder that is no image" "holds no index.json" login srun -N1 --container-image=/srv/data true
expect "a tag that is not there" 'has no tag "other"; there are: arm, mini' login srun -N1 --container-image=oci:/home/images:other true
expect "an image of another architecture" "it is for linux/arm64; this node is linux/" login srun -N1 --container-image=oci:/home/images:arm true
expect "a mount whose source is not there" "--container-mounts: /nowhere: No such file or directory" login srun -N1 "$image" --container-mounts=/nowhere:/x true
expect "a mount that is none" "is not SRC:DST" login srun -N1 "$image" --container-mounts=/a:/b:ro:x true
expect "a folder to start in that is not there" "--container-workdir=/nowhere" login srun -N1 "$image" --container-workdir=/nowhere true
expect "a registry without skopeo" "apt-get install skopeo" login srun -N1 --container-image=registry.test#a:1 true
cat > "$volume/current/usr/local/bin/skopeo" << 'TEXT'
#!/bin/sh
echo "proxy $HTTPS_PROXY, called by $(tr '\0' ' ' < /proc/$PPID/cmdline)" >&2
exit 1
TEXT
chmod 0755 "$volume/current/usr/local/bin/skopeo"
told=$(login env HTTPS_PROXY=http://ada:pass1@proxy.test:1 srun -N1 --container-image=registry.test#a:1 true 2>&1 || true)
rm "$volume/current/usr/local/bin/skopeo"
[[ $told == *"proxy http://ada:pass1@proxy.test:1, called by"*"image=registry.test#a:1"* ]] && [ "$(grep -o pass1 <<< "$told" | wc -l)" = 1 ] || fail "a proxy's password: $told"
note "a proxy's password reaches skopeo, and is not where everybody sees it"
expect "a name that is none" "is no name of an image" login srun -N1 --container-image='a b' true
ada install -d -m 0700 private
cp -r "$images" "$volume/home/ada/private/images"
chown -R --reference="$volume/home/ada" "$volume/home/ada/private"
login adduser eve > /dev/null
expect "an image that others may not read is not theirs, though it is unpacked" "Permission denied" login su - eve -c 'srun -N1 --container-image=oci:/home/ada/private/images:mini true'
# Another configuration makes another image: what is unpacked already would not be read again.
cp -r "$images" "$volume/home/damaged"
umoci config --image "$volume/home/damaged:mini" --config.env OTHER=1 > /dev/null 2>&1
chmod -R a+rX "$volume/home/damaged"
largest=$(find "$volume/home/damaged/blobs" -type f -size +1M -print -quit)
printf 'x' | dd of="$largest" bs=1 seek=500000 conv=notrunc status=none
expect "a damaged image" "image oci:/home/damaged:mini: " login srun -N1 --container-image=oci:/home/damaged:mini true
if login srun -N1 --container-image=oci:/home/damaged:mini true > /dev/null 2>&1; then fail 'a damaged image ran'; fi
if login srun -N1 --container-image=oci:/home/nothing true > /dev/null 2>&1; then fail 'a step ran without its image'; fi
expect "no node is drained for all that" $'idle\nidle' login sinfo -h -N -o %T
expect "nothing is left mounted on the node" "clean" worker worker-0 sh -c 'grep -q fairlead/container /proc/self/mountinfo || echo clean'

if [ -z "${FAIRLEAD_SKIP_ENVIRONMENTS:-}" ]; then
  # An environment of Python: made once in the shared root, used on all nodes.
  expect "an environment is made on one node" "made" jail sh -c 'python3 -m venv --without-pip --system-site-packages /opt/env && echo "VALUE = 42" > "$(echo /opt/env/lib/python3*/site-packages)/fairlead_example.py" && echo made'
  script env.sh << 'TEXT'
#!/bin/bash
#SBATCH -o env.out
#SBATCH -N2
. /opt/env/bin/activate
srun python -c 'import sys, fairlead_example; print(sys.prefix, fairlead_example.VALUE)'
TEXT
  ada sbatch env.sh > /dev/null
  until_true 60 'the job in the environment ends' ended
  expect "a script that activates it has it in the steps of all nodes" $'/opt/env 42\n/opt/env 42' cat "$volume/home/ada/env.out"
  expect "and without activation by its path" "42" ada srun -N1 /opt/env/bin/python -c "'import fairlead_example; print(fairlead_example.VALUE)'"

  # One of conda: packages in its format, solved and linked by an installer that a user put into the shared root with pip3.
  wheel=$("$top/tests/peers/conda/fetch.sh") || fail "the installer of conda's packages"
  mkdir "$volume/home/tools"
  cp "$wheel" "$top/tests/peers/conda/"{channel,create}.py "$volume/home/tools/"
  chmod -R a+rX "$volume/home/tools"
  expect "a user makes an environment of conda on one node" "greeting-1.0 python-3.11" ada srun -N1 -w worker-0 sh -c "'python3 -m venv installer && installer/bin/pip3 install -q --no-index /home/tools/$(basename "$wheel") && python3 /home/tools/channel.py ~/channel && installer/bin/python /home/tools/create.py ~/channel ~/train setting'"
  script conda.sh << 'TEXT'
#!/bin/bash
#SBATCH -o conda.out
#SBATCH -N2
. ~/train/activate.sh
srun sh -c 'greet; where; command -v python'
TEXT
  ada sbatch conda.sh > /dev/null
  until_true 60 'the job in the environment of conda ends' ended
  expect "a script that activates it has its Python, programs and variables on all nodes" "$(printf '%s\n' '/home/ada/train/bin/python' '/home/ada/train/bin/python' 'hello from /home/ada/train activated' 'hello from /home/ada/train activated' 'made for /home/ada/train' 'made for /home/ada/train')" sort "$volume/home/ada/conda.out"
  expect "and a program of it works by its path" "hello from /home/ada/train None" ada srun -N1 -w worker-1 /home/ada/train/bin/greet
fi
printf 'slurm images: %d checks passed\n' "$passed"
