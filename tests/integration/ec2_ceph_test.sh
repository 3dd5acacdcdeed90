#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ec2_volumes_test.sh on a pool in a real Ceph.
#   ec2_ceph_test.sh BUILD_DIR     as root
# shellcheck source=tests/ceph_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../ceph_lib.sh"
build=${1:?usage: ec2_ceph_test.sh BUILD_DIR}
missing=$(ceph_missing)
[ -z "$missing" ] || { echo "skipped: there is no $missing here (tools/packages-test.txt)"; exit 77; }
[ -x "$build/bin/fairlead-rbd" ] || { echo 'skipped: fairlead-rbd is not built: librbd-dev or libradospp-dev was not there'; exit 77; }
exec "$(dirname "${BASH_SOURCE[0]}")/ec2_volumes_test.sh" "$build" --ceph
