#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the pinned `hyp`, or hyperpodrun, once and prints its folder: bin/hyp, bin/hyperpodrun in it.
#   hyp.sh [agent]       exit status 77: no Python with venv, or its packages cannot be had; with FAIRLEAD_ONLY_THERE=1: it was not made before
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
what=${1:-hyp}
python=/usr/bin/python3
"$python" -c 'import venv, ensurepip' 2> /dev/null || python=$(command -v python3 || true)
{ [ -n "$python" ] && "$python" -c 'import venv, ensurepip' 2> /dev/null; } || { echo 'hyp.sh: no Python with venv (package python3-venv)' >&2; exit 77; }
case $what in
hyp) lists=(requirements.txt) more=() ;;
agent) lists=(requirements-agent.txt requirements-agent-itself.txt) more=(--no-build-isolation) ;;
*) echo 'usage: hyp.sh [agent]' >&2; exit 2 ;;
esac
stamp=$({ (cd "$here" && cat "${lists[@]}"); "$python" --version; } | sha256sum | cut -c1-12)
home=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}/$what-$stamp
[ -e "$home/ready" ] || [ -z "${FAIRLEAD_ONLY_THERE:-}" ] || exit 77
if [ ! -e "$home/ready" ]; then
  mkdir -p "$(dirname "$home")"
  exec 8> "$home.lock"
  flock 8
  if [ ! -e "$home/ready" ]; then
    rm -rf "$home"
    "$python" -m venv "$home" >&2
    for list in "${lists[@]}"; do
      "$home/bin/pip" install -q --disable-pip-version-check --no-deps "${more[@]}" --require-hashes -r "$here/$list" >&2 || { echo "hyp.sh: $what cannot be installed here" >&2; rm -rf "$home"; exit 77; }
    done
    touch "$home/ready"
  fi
  exec 8>&-
fi
echo "$home"
