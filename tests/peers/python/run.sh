#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the Python probe against a cluster in an environment of its own, made once from the pinned requirements.
#   run.sh KUBECONFIG [REGEX]        exit status 77: no Python with venv
#   run.sh --prepare                 makes the environment only
# FAIRLEAD_PYTHON_CLIENT=VERSION takes another version of the client: clients/VERSION.txt.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
"$python" -c 'import venv, ensurepip' 2> /dev/null || python=$(command -v python3 || true)
{ [ -n "$python" ] && "$python" -c 'import venv, ensurepip' 2> /dev/null; } || { echo 'run.sh: no Python with venv (package python3-venv)' >&2; exit 77; }
requirements=$here/requirements.txt
if [ -n "${FAIRLEAD_PYTHON_CLIENT:-}" ]; then
  other=$here/clients/$FAIRLEAD_PYTHON_CLIENT.txt
  [ -e "$other" ] || { echo "run.sh: no $other" >&2; exit 2; }
  requirements=$(mktemp)
  trap 'rm -f "$requirements"' EXIT
  { sed '/^kubernetes==/,/--hash=/d' "$here/requirements.txt" && cat "$other"; } > "$requirements"
fi
stamp=$({ cat "$requirements"; "$python" --version; } | sha256sum | cut -c1-12)
home=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}/python-$stamp
if [ ! -e "$home/ready" ]; then
  mkdir -p "$(dirname "$home")"
  exec 8> "$home.lock"
  flock 8
  if [ ! -e "$home/ready" ]; then
    rm -rf "$home"
    "$python" -m venv "$home"
    "$home/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: -r "$requirements" >&2
    touch "$home/ready"
  fi
  exec 8>&-
fi
[ "${1:-}" != --prepare ] || exit 0
status=0
"$home/bin/python" "$here/probe.py" "$@" || status=$?
exit "$status"
