#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What durable acknowledgement costs: submissions to stock slurmctld and to ours (docs/design/004), in turns on one machine, the state on an XFS of its own on this machine's disk.
#   slurm_submit.sh BUILD_DIR [ROUNDS]   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_submit.sh BUILD_DIR [ROUNDS]}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../tests/slurm_machine.sh"
own_machine "$0" "$build" "${2:-3}"
make_machine "$build"
# submit CLIENTS JOBS: seconds until all are confirmed.
submit() {
  local client from=$EPOCHREALTIME clients=()
  for ((client = 0; client < $1; ++client)); do
    inside bash -c "for ((i = 0; i < $(($2 / $1)); ++i)); do sbatch -H --parsable -o /dev/null --wrap true > /dev/null || exit 1; done" &
    clients+=($!)
  done
  for client in "${clients[@]}"; do wait "$client" || fail 'a submission failed'; done
  awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'
}
echo 'slurmctld queued clients submissions/s'
for ((round = 1; round <= ${2:-3}; ++round)); do
  for kind in off on; do
    rm -f "$work/disk"
    truncate -s 1G "$work/disk"
    mkfs.xfs -q "$work/disk"
    mount -o loop "$work/disk" "$state"
    chown "$(inside id -u slurm):$(inside id -g slurm)" "$state"
    start_controller FAIRLEAD_DURABLE=$kind
    name=$([ $kind = on ] && echo durable || echo stock)
    for clients in 1 8; do echo "$name 0 $clients $(submit $clients 400 | awk '{ printf "%.0f", 400 / $1 }')"; done
    submit 8 3200 > "$work/filled"
    for clients in 1 8; do echo "$name 4000 $clients $(submit $clients 400 | awk '{ printf "%.0f", 400 / $1 }')"; done
    kill_controller
    umount "$state"
  done
done
