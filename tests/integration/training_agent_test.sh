#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One suite (src/training/agents_test.cpp) on what stands in for the agent of training jobs in scenarios, and on hyperpodrun of hyperpod-elastic-agent itself, where it was made (tests/peers/hyp/hyp.sh agent) and under FAIRLEAD_FULL=1.
#   training_agent_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: training_agent_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# hyperpodrun writes to /opt/ml whatever one says: here into a /opt of its own.
suite() { # NAME COMMAND
  FAIRLEAD_AGENT=$2 unshare --mount --propagation private sh -c 'mount -t tmpfs none /opt && exec "$@"' sh "$build/training_test" --gtest_brief=1 --gtest_filter='*AgentSuite*' > "$work/out" 2>&1 || { cat "$work/out"; echo "FAIL: $1"; exit 1; }
  if grep -q SKIPPED "$work/out"; then echo "FAIL: the suite did not run $1"; exit 1; fi
  echo "ok    $1"
}
python=$(command -v python3)
suite 'the stand-in' "$python $PWD/tests/training_agent.py --server-host=127.0.0.1 --server-port=PORT --nnodes=1 --nproc-per-node=1 $python SCRIPT"
[ "${FAIRLEAD_FULL:-0}" = 1 ] || export FAIRLEAD_ONLY_THERE=1
if agent=$(tests/peers/hyp/hyp.sh agent); then
  suite 'hyperpodrun' "$agent/bin/hyperpodrun --server-host=127.0.0.1 --server-port=PORT --nnodes=1 --nproc-per-node=1 SCRIPT"
else
  echo 'ok    (hyperpodrun was not made here: tests/peers/hyp/hyp.sh agent)'
fi
