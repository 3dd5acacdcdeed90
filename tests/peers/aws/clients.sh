#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the pinned clients of AWS once and prints their folder: bin/python and bin/aws in it, js/node_modules where there is Node.js.
#   clients.sh       exit status 77: no Python with venv, or its packages cannot be had
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
"$python" -c 'import venv, ensurepip' 2> /dev/null || python=$(command -v python3 || true)
{ [ -n "$python" ] && "$python" -c 'import venv, ensurepip' 2> /dev/null; } || { echo 'clients.sh: no Python with venv (package python3-venv)' >&2; exit 77; }
stamp=$({ cat "$here/requirements.txt" "$here/package-lock.json"; "$python" --version; node --version 2> /dev/null || true; } | sha256sum | cut -c1-12)
home=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}/aws-$stamp
if [ ! -e "$home/ready" ]; then
  mkdir -p "$(dirname "$home")"
  exec 8> "$home.lock"
  flock 8
  if [ ! -e "$home/ready" ]; then
    rm -rf "$home"
    "$python" -m venv "$home" >&2
    "$home/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: -r "$here/requirements.txt" >&2 || { echo 'clients.sh: boto3 and the AWS CLI cannot be installed here' >&2; rm -rf "$home"; exit 77; }
    if command -v npm > /dev/null; then
      mkdir "$home/js"
      cp "$here/package.json" "$here/package-lock.json" "$home/js/"
      (cd "$home/js" && npm ci --no-audit --no-fund --loglevel=error >&2) || { echo 'clients.sh: the SDK for JavaScript cannot be installed here: left out' >&2; rm -rf "$home/js"; }
    fi
    touch "$home/ready"
  fi
  exec 8>&-
fi
echo "$home"
