#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the Python probe against a cluster in an environment of its own, made once from the pinned requirements.
#   run.sh KUBECONFIG [REGEX]        exit status 77: no Python with venv
#   run.sh --prepare                 makes the environment only
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
"$python" -c 'import venv, ensurepip' 2> /dev/null || python=$(command -v python3 || true)
{ [ -n "$python" ] && "$python" -c 'import venv, ensurepip' 2> /dev/null; } || { echo 'run.sh: no Python with venv (package python3-venv)' >&2; exit 77; }
stamp=$({ cat "$here/requirements.txt"; "$python" --version; } | sha256sum | cut -c1-12)
home=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}/python-$stamp
if [ ! -e "$home/ready" ]; then
  mkdir -p "$(dirname "$home")"
  exec 8> "$home.lock"
  flock 8
  if [ ! -e "$home/ready" ]; then
    rm -rf "$home"
    "$python" -m venv "$home"
    "$home/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: -r "$here/requirements.txt" >&2
    touch "$home/ready"
  fi
  exec 8>&-
fi
[ "${1:-}" != --prepare ] || exit 0
exec "$home/bin/python" "$here/probe.py" "$@"
