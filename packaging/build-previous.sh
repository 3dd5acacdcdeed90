#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the packages of the release before this tree, once per commit, to upgrade from and to roll back to. Takes minutes; with the compiler cache of this checkout, fewer.
#   build-previous.sh [--print] [REF]     REF: a commit; without it the newest release (tag vN.N.N) that leads here and is not this commit, else the one in packaging/previous
# The last line printed is the folder with the .deb files; with --print the commit, and nothing is built. Exit status: 77: the commit is not in this checkout; 1: it does not build.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
git() { command git -c safe.directory='*' -C "$root" "$@"; }
git rev-parse -q --verify HEAD > /dev/null 2>&1 || { echo 'build-previous: needs a git checkout' >&2; exit 77; }
only_print=''
[[ ${1:-} != --print ]] || { only_print=yes; shift; }
ref=${1:-}
# Candidates (v1.0.0-rc1) are no releases: a version sort puts them behind the release that they become.
[[ -n $ref ]] || ref=$(git tag --list 'v*' --sort=-version:refname --no-contains HEAD --merged HEAD | awk '/^v[0-9]+(\.[0-9]+)*$/ && !n++')
[[ -n $ref ]] || ref=$(grep -v '^#' "$root/packaging/previous")
commit=$(git rev-parse -q --verify "$ref^{commit}") || { echo "build-previous: $ref is not in this checkout (git fetch --unshallow --tags)" >&2; exit 77; }
[[ -z $only_print ]] || { echo "$commit"; exit 0; }
out=${FAIRLEAD_DEBS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/debs}/$commit
mkdir -p "$out"
exec 8> "$out/.lock"
flock 8
if [[ ! -e $out/SHA256SUMS ]]; then
  echo "building the packages of $ref ($(git show -s --format=%cs "$commit"))" >&2
  work=$(mktemp -d "$out/.work-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  git archive "$commit" | tar -x -C "$work"
  SOURCE_DATE_EPOCH=$(git show -s --format=%ct "$commit")
  export SOURCE_DATE_EPOCH
  jobs=$(awk -v cores="$(nproc)" '/MemAvailable/ { fit = int($2 / 700000); print fit < 1 ? 1 : fit < cores ? fit : cores }' /proc/meminfo)
  {
    cmake -S "$work" --preset release -DFAIRLEAD_TESTS=OFF -B "$work/build/release" &&
      cmake --build "$work/build/release" -j "$jobs" --target fairlead fairlead-server fairlead-machines fairlead-agent fairlead-slurm &&
      "$work/packaging/build-deb.sh" "$work/build/release" "$work/debs"
  } > "$out/log" 2>&1 8>&- || { tail -n 30 "$out/log" >&2; echo "build-previous: $ref does not build (whole log: $out/log)" >&2; exit 1; }
  mv "$work"/debs/*.deb "$out/"
  mv "$work/debs/SHA256SUMS" "$out/"
fi
echo "$out"
