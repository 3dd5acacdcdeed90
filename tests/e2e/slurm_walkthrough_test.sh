#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a new user of a cluster types, line by line, over SSH and in a terminal: a package is installed once, a user is made, GPUs of two nodes are listed, an interactive allocation, a training job over two nodes that needs the package.
# usage: slurm_walkthrough_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: slurm_walkthrough_test.sh BUILD_DIR}
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"
told_pods=(demo-populate-jail "${told_pods[@]}")

# A root that all share, and workers on which a job may have 4 GB.
site=$work/demo.yaml
sed -e 's/^  slurmNodes:$/  populateJail: {image: "slurm:22.05", k8sNodeFilterName: no-gpu}\n&/' -e 's/memory: 3Gi, resources/memory: 7Gi, resources/' -e 's/cpu: "1", memory: 2Gi, nvidia/cpu: "1", memory: 6Gi, nvidia/' "$top/examples/demo.yaml" > "$site"
[ "$(grep -c -e 'memory: 7Gi' -e 'memory: 6Gi' -e populateJail "$site")" = 4 ] || fail 'the site was not made'
[ ! -d /sys/fs/cgroup/memory ] || sed -i 's/cgroupVersion: v2/cgroupVersion: v1/' "$site"
run up -f "$site" --port 16445 --node-range 10.83.0.0/16 --pod-range 10.84.0.0/16 --timeout 180 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
note 'the cluster came up with a shared root'
typed() { run ssh demo -- "$@"; }

# A package from a file: this test has no way out to a mirror.
# shellcheck disable=SC2016
typed 'mkdir -p /srv/pkg/DEBIAN /srv/pkg/usr/lib/python3/dist-packages && cd /srv &&
  printf "Package: python3-walkthrough\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody\nDescription: test\n" > pkg/DEBIAN/control &&
  printf "WORD = \"installed once\"\n" > pkg/usr/lib/python3/dist-packages/walkthrough.py && dpkg-deb -b pkg python3-walkthrough.deb' > "$work/deb.log" 2>&1 || { cat "$work/deb.log" >&2; fail 'the package'; }
typed 'apt-get install -y /srv/python3-walkthrough.deb' > "$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; fail 'apt-get install'; }
expect 'apt-get install once, and every node has it' $'installed once\ninstalled once' typed "srun --nodes=2 python3 -c 'import walkthrough; print(walkthrough.WORD)'"
typed 'adduser --disabled-password --gecos "" ada' > "$work/adduser.log" 2>&1 || { cat "$work/adduser.log" >&2; fail 'adduser'; }

typed 'srun --nodes=2 --gres=gpu:1 nvidia-smi -L' > "$work/gpus" 2>&1 || { cat "$work/gpus" >&2; fail 'srun on two nodes'; }
[ "$(grep -c '^GPU 0: Fairlead Mock GPU' "$work/gpus")" = 2 ] || { cat "$work/gpus" >&2; fail 'not a GPU of each node'; }
note 'srun --nodes=2 --gres=gpu:1 nvidia-smi -L lists a GPU of each node'

# In a terminal, as a person: salloc gives a shell, a step of it runs on the node that was given, its memory is what was asked for.
# Where salloc is kept from the processor between starting its shell and giving it the terminal, the shell finds it taken and stops for ever (Slurm 22.05, salloc.c): a person would type it again.
# shellcheck disable=SC2016
salloc_by_hand() {
  TERMINAL_LIMIT=20 "$top/tests/terminal.py" 40x200 '<# ' '>salloc --nodes=1 --ntasks=1 --mem=4G --time=00:20:00 --gres=gpu:1' '<Granted job allocation [0-9]+[\s\S]*# ' '>srun hostname' '<worker-[01]\s[\s\S]*# ' \
    '>scontrol show job $SLURM_JOB_ID | grep -E "TRES=|TimeLimit"' '<TimeLimit=00:20:00[\s\S]*mem=4G[\s\S]*# ' '>exit' '<Relinquishing job allocation[\s\S]*# ' '>exit' -- "$fairlead" ssh demo > "$work/salloc" 2>&1
}
salloc_by_hand || salloc_by_hand || salloc_by_hand || { cat "$work/salloc" >&2; fail 'salloc'; }
until_true 30 'nothing is allocated any more' bash -c "[ -z \"\$('$fairlead' ssh demo -- squeue -h)\" ]"
note 'salloc --nodes=1 --ntasks=1 --mem=4G --time=00:20:00 --gres=gpu:1 gives a shell with a node'

# The job, as its user.
run exec -i -n demo login-0 -- tar -C /home/ada -x < <(tar -C "$top/examples" -c train-gpt)
typed 'chown -R ada: /home/ada/train-gpt && sed -i "s/^import argparse$/import argparse\n\nimport walkthrough/; s/^THREADS = /print(walkthrough.WORD, flush=True)\n&/" /home/ada/train-gpt/train_gpt.py' || fail 'the script'
job=$(typed 'su - ada -c "cd train-gpt && sbatch --parsable --gres=gpu:1 train.sbatch --steps 60 --print-every 10"' | tr -d '[:space:]')
until_true 60 'the job runs' bash -c "'$fairlead' ssh demo -- squeue | grep -E '^ +$job +main +train-gp +ada +R +[0-9:]+ +2 worker-\[0-1\]'"
note 'squeue shows the job on both nodes'
expect 'scontrol show job tells of it' 'JobName=train-gpt' typed "scontrol show job $job"
until_true 180 'the job completes' bash -c "'$fairlead' ssh demo -- scontrol show job $job | grep -q JobState=COMPLETED"
typed "cat /home/ada/train-gpt/train-gpt-$job.out" > "$work/out"
# Python writes the end of a line on its own: the words of both may come before either end.
[ "$(grep -o 'installed once' "$work/out" | wc -l)" = 2 ] || { cat "$work/out" >&2; fail 'not both processes had the package'; }
python3 - "$work/out" << 'PY' || { cat "$work/out" >&2; fail 'the loss did not fall'; }
import re, sys
losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", open(sys.argv[1]).read())]
sys.exit(0 if len(losses) >= 5 and losses[0] - losses[-1] > 0.5 else 1)
PY
note 'a small GPT was trained over two nodes, and its loss fell'
run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; fail "down"; }
echo "$passed passed"
