#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same requests to a real kube-apiserver and to the embedded engine; the answers must be equal, but for what docs/kubernetes-subset.md explains and tests/peers/corpus/known.txt lists.
#   corpus_test.sh BUILD_DIR        exit status 77: the real programs are not built (tests/peers/build.sh builds them)
set -eu
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
build=$(cd "${1:?the build folder}" && pwd)
peers=$(cd "$(dirname "$0")/../peers" && pwd)
programs=$("$peers/build.sh" --print)
for name in etcd kube-apiserver kube-controller-manager kube-scheduler; do
  [ -x "$programs/$name" ] || { echo "skipped: $programs/$name is not built (tests/peers/build.sh)"; exit 77; }
done

# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
after_end() { "$peers/cluster.sh" down "$work/real" > /dev/null 2>&1; }
"$peers/cluster.sh" up "$work/real" > "$work/up.log" 2>&1
serve
/usr/bin/python3 "$peers/corpus/corpus.py" run --real "$work/real/admin.kubeconfig" --ours "$work/state/pki/admin.kubeconfig"
