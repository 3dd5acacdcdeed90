#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of the pinned wheel of requirements.txt, fetched once into the cache. Exit status 77: no Python with venv.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
"$python" -c 'import venv, ensurepip' 2> /dev/null || { echo 'fetch.sh: no Python with venv (package python3-venv)' >&2; exit 77; }
home=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}/conda-$(sha256sum < "$here/requirements.txt" | cut -c1-12)
mkdir -p "$home"
exec 8> "$home/lock"
flock 8
if [ ! -e "$home/ready" ]; then
  "$python" -m venv "$home/env"
  "$home/env/bin/pip" download -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: -d "$home" -r "$here/requirements.txt" >&2
  rm -rf "$home/env"
  touch "$home/ready"
fi
ls "$home"/*.whl
