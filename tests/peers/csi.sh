#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs that storage drivers are tried with, from pinned Go modules with the ordinary Go client, once per pin into a cache folder.
#   csi.sh [--print] [NAME...]     names: csi-sanity csi-provisioner csi-attacher csi-resizer csi-snapshotter snapshot-controller crds; without names all
#                                  crds: the definitions of snapshots and of snapshots of groups, in a folder of that name beside the programs
#   --print                        builds nothing missing; prints the folder of programs
# The last line of output is the folder that holds the programs. Exit status 77: there is no Go client, or a module cannot be had here.
set -euo pipefail
cache=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}

# Module, version, its checksum (of go.sum's kind), and the programs of its cmd folder that we want. The module's own go.mod and go.sum pin all that it is built from.
# csi-sanity speaks CSI 1.13, as the sidecars do.
# Not served as modules, so left out (asked: @v/list, @latest and the branches):
#   node-driver-registrar and livenessprobe: the driver registers itself, and is asked by `fairlead-csi call Probe` (csi_kubelet_test.sh);
#   csi-driver-host-path: bench/csi_peer.sh is given a program that was built from its repository.
pins='
github.com/kubernetes-csi/csi-test/v5                     v5.6.0   h1:fQgB/CRoqTEAtlHwfD0Y785LjQJ/OxNGUE7AHw68VLg=  csi-sanity
github.com/kubernetes-csi/external-provisioner/v6         v6.4.0   h1:zU5e23gjdbT4j23E2het91Nalzj/bwZbt7yAAoYz/2g=  csi-provisioner
github.com/kubernetes-csi/external-attacher/v4            v4.13.0  h1:lvr4pjyBc6TV57EB78mNrsg/KgaGFL5wc4Xe/i9Y+bM=  csi-attacher
github.com/kubernetes-csi/external-resizer/v2             v2.3.0   h1:dsdHhB3s4BJUkO7Jaemd6hw3YEms1ZlMF/bksbDE+bw=  csi-resizer
github.com/kubernetes-csi/external-snapshotter/v8         v8.7.0   h1:sYxyBXffG+pc2QfvFkP6uJqtYVFVRvkrxAHi8WjD5fU=  csi-snapshotter snapshot-controller
github.com/kubernetes-csi/external-snapshotter/client/v8  v8.7.0   h1:HVaSUeRRHPu49aSiL8eXOjS9Re9G6pM0NzdTGI7mM14=  crds
'
# The folder's name is the pins, so that a changed one is built anew and an old one stays usable.
folder=$cache/csi-$(echo "$pins" | sha256sum | cut -c1-12)

if [ "${1:-}" = --print ]; then
  echo "$folder"
  exit 0
fi
[ $# -gt 0 ] || set -- csi-sanity csi-provisioner csi-attacher csi-resizer csi-snapshotter snapshot-controller crds
mkdir -p "$folder"

# As many compilers at once as memory holds, two at most: others work on the machine too.
jobs=$(awk -v cores="$(nproc)" '/MemAvailable/ { fit = int($2 / 1500000); most = (cores < 2) ? cores : 2; print (fit < 1) ? 1 : (fit < most) ? fit : most }' /proc/meminfo)
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS='' GOTOOLCHAIN=local GOWORK=off

module_of() { # NAME: its line of the pins
  awk -v name="$1" '{ for (i = 4; i <= NF; ++i) if ($i == name) { print $1, $2, $3; exit } }' <<< "$pins"
}
download() { # NAME: the folder of its module in Go's cache, its contents as pinned
  local module version sum told
  read -r module version sum <<< "$(module_of "$1")"
  told=$(cd "$work" && go mod download -json "$module@$version") || { echo "csi.sh: $module@$version cannot be had here: $(sed -nE 's/.*"Error": "(.*)",?$/\1/p' <<< "$told")" >&2; return 77; }
  [ "$(sed -nE 's/.*"Sum": "(.*)",$/\1/p' <<< "$told")" = "$sum" ] || { echo "csi.sh: $module@$version is not what was pinned" >&2; return 1; }
  sed -nE 's/.*"Dir": "(.*)",$/\1/p' <<< "$told"
}
copy() { # FOLDER TARGET: Go's cache is read-only, the copy is not
  cp -R "$1" "$2" && chmod -R u+w "$2"
}
make_program() { # NAME
  local name=$1 module version sum source variable=version
  read -r module version sum <<< "$(module_of "$name")"
  # `go install` refuses modules with replacements, and a build must not run inside Go's cache: a copy, gone afterwards.
  source=$(download "$name") || return
  copy "$source" "$work/source" || return
  if [[ $module == */external-snapshotter/* ]]; then # replaced by its folder ./client, which is a module of its own and so not in the copy
    source=$(download crds) || return
    copy "$source" "$work/source/client" || return
  fi
  [ "$name" != csi-sanity ] || variable=VERSION
  # Fetches what the program is built from, so that a module that is missing can be told from a build that fails.
  (cd "$work/source" && go list -mod=readonly -deps "./cmd/$name") 2> "$work/log" > /dev/null || { echo "csi.sh: what $name is built from cannot be had here:" >&2; tail -n 3 "$work/log" >&2; return 77; }
  (cd "$work/source" && nice go build -mod=readonly -buildvcs=false -trimpath -p "$jobs" -ldflags "-s -w -X main.$variable=$version" -o "$work/$name" "./cmd/$name") > "$work/log" 2>&1 ||
    { echo "csi.sh: $name could not be built:" >&2; tail -n 30 "$work/log" >&2; return 1; }
  mv -f "$work/$name" "$folder/$name"
}
make_definitions() {
  local source
  source=$(download crds) || return
  mkdir "$work/crds" && install -m 644 "$source"/config/crd/*.storage.k8s.io_*.yaml "$work/crds/" && mv "$work/crds" "$folder/crds"
}
for name in "$@"; do
  [ -n "$(module_of "$name")" ] || { echo "csi.sh: unknown program $name (see the head of this file)" >&2; exit 2; }
  [ ! -e "$folder/$name" ] || continue
  command -v go > /dev/null || { echo "csi.sh: $name is not in $folder and there is no Go client to build it" >&2; exit 77; }
  # Two callers at once: the second waits, then finds the program there.
  exec 8> "$folder/.$name.lock"
  flock 8
  if [ ! -e "$folder/$name" ]; then
    began=$SECONDS
    echo "building $name"
    work=$(mktemp -d "$folder/.$name.XXXXXX")
    if [ "$name" = crds ]; then make_definitions || exit; else make_program "$name" || exit; fi
    rm -rf "$work"
    work=
    echo "built $name in $((SECONDS - began)) s, $(($(du -sk "$folder/$name" | cut -f1) / 1000)) MB"
  fi
  exec 8>&-
done
echo "$folder"
