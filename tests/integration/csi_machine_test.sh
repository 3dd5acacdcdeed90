#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CSI driver on a kernel that lets an ext4 grow while it is mounted, which needs CAP_SYS_RESOURCE: in a virtual machine where this one lacks it (tests/machine.sh). Elsewhere csi_test.sh has tried it already.
#   csi_machine_test.sh BUILD_DIR     as root; with qemu-system-x86 and kmod (tools/packages-full.txt), and Debian's kernel, which is fetched once
set -euo pipefail
build=$(realpath "${1:?usage: csi_machine_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'needs root'
effective=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
(((0x$effective >> 24 & 1) == 0)) || skip 'CAP_SYS_RESOURCE is here: csi_test.sh grows an ext4 while it is mounted'
log=$(mktemp /var/tmp/fairlead-csi_machine-XXXXXX)
trap 'rm -f "$log"' EXIT
status=0
# On the embedded engine: what is tried is the driver and its kernel, and a kube-apiserver needs more than the two minutes it is given where processors are emulated.
env -u FAIRLEAD_KUBERNETES "$top/tests/machine.sh" bash "$top/tests/integration/csi_test.sh" "$build" growth 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
[ "$status" != 77 ] || skip 'there is no virtual machine to be had (above)'
[ "$status" = 0 ] || exit "$status"
grep -q 'ext4: NodeExpandVolume grows the file system under the writer' "$log" || { echo 'FAIL: the machine did not grow an ext4 while it was mounted' >&2; exit 1; }
