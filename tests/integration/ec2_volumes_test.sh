#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# EC2's calls about volumes by boto3 and the AWS CLI as they are, over a real pool.
#   ec2_volumes_test.sh BUILD_DIR [--ceph]     as root; --ceph: a pool in a Ceph that is started for it
set -euo pipefail
build=$(realpath "${1:?usage: ec2_volumes_test.sh BUILD_DIR [--ceph]}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# What is mounted here goes with this script, however it ends.
[ -n "${FAIRLEAD_EC2_INSIDE:-}" ] || FAIRLEAD_EC2_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$build" "${@:2}"
clients=$("$top/tests/peers/aws/clients.sh") || { [ $? != 77 ] || { echo "skipped: AWS's clients cannot be had here"; exit 77; }; exit 1; }
clients=${clients##*$'\n'}
# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
# shellcheck source=tests/ceph_lib.sh
. "$top/tests/ceph_lib.sh"
place=(--image "$work/pool.img" --size 20Gi --sparse)
after_end() { if [ -d "$work/ceph" ]; then ceph_stop; else "$build/bin/fairlead-volumes" destroy --folder "$work/pool" --image "$work/pool.img" --yes; fi; }
if [ "${2:-}" = --ceph ]; then
  ceph_start "$work/ceph" 30G || fail 'Ceph does not start'
  export POOL_OF_ENGINES=yes
  place=(--ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --size 20Gi)
fi
export HOME=$work XDG_STATE_HOME=$work/home
fairlead() { "$build/bin/fairlead" "$@" --state-dir "$work/state"; }

serve
start volumes.log "$build/bin/fairlead-volumes" run --folder "$work/pool" "${place[@]}" --name here --kubeconfig "$admin"
pool_is_known() { fairlead get volumepool here -o json | grep -q '"heard"'; }
wait_until 20 'the pool is known' pool_is_known
echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}}' > "$work/all.json"
fairlead identity create ada --policy "$work/all.json" > "$work/out" 2>&1 || fail 'make the user'
fairlead identity key add ada > "$work/key" 2>&1 || fail 'make the key'
"$build/bin/fairlead" aws run --state-dir "$work/state" ada -- "$clients/bin/python3" "$top/tests/peers/aws/volumes.py" > "$work/out" 2>&1 || fail 'boto3'
grep '^ok' "$work/out"
ada() { "$build/bin/fairlead" aws run --state-dir "$work/state" ada -- "$clients/bin/aws" ec2 "$@"; }
volume=$(ada create-volume --availability-zone here --size 1 --query VolumeId --output text)
ada wait volume-available --volume-ids "$volume"
[ "$(ada describe-volumes --volume-ids "$volume" --query 'Volumes[0].[Size,State]' --output text)" = $'1\tavailable' ] || fail 'the CLI sees it'
fairlead volume list | grep -q "^$volume " || fail 'fairlead volume list has it'
ada delete-volume --volume-id "$volume"
echo 'ok    the AWS CLI'
