#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds real programs that tests compare with or run against, from pinned Go modules with the ordinary Go client, once per version into a cache folder.
#   build.sh [--print] [NAME...]     names: kube-apiserver kube-controller-manager kube-scheduler etcd helm kubectl kubelet probe probe-VERSION; without names all but kubelet and the latter
#                                    probe-VERSION is the probe with another client-go: probe/go.VERSION.mod
#   build.sh [--print] jobset        the controller of JobSets with its definition (jobsets.yaml), in a folder of its own
#   --print                          builds nothing missing; prints the folder of programs
# The last line of output is the folder that holds the programs. Exit status 77: there is no Go client.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}

# The folder's name is the pinned contents, so that a changed pin (or probe) is built anew and an old one stays usable.
stamp=$(cd "$here" && sha256sum kubernetes/go.mod kubernetes/go.sum etcd/go.mod etcd/go.sum helm/go.mod helm/go.sum | sha256sum | cut -c1-12)
version_of() { sed -nE "s,^(require )?[[:space:]]*$2 (v[0-9.]+)( // indirect)?\$,\2,p" "$here/$1/go.mod" | head -1; } # FOLDER MODULE
kubernetes=$(version_of kubernetes k8s.io/kubernetes)
etcd=$(version_of etcd go.etcd.io/etcd/server/v3)
helm=$(version_of helm helm.sh/helm/v3)
[ -n "$kubernetes" ] && [ -n "$etcd" ] && [ -n "$helm" ] || { echo 'build.sh: a go.mod does not name its version' >&2; exit 1; }
folder=$cache/kubernetes-$kubernetes-$stamp

if [ "$*" = jobset ] || [ "$*" = '--print jobset' ]; then
  jobset=$(version_of jobset sigs.k8s.io/jobset)
  [ -n "$jobset" ] || { echo 'build.sh: a go.mod does not name its version' >&2; exit 1; }
  folder=$cache/jobset-$jobset-$(cd "$here/jobset" && sha256sum go.mod go.sum | sha256sum | cut -c1-12)
fi

if [ "${1:-}" = --print ]; then
  echo "$folder"
  exit 0
fi
[ $# -gt 0 ] || set -- etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm probe
mkdir -p "$folder"

# As many compilers at once as memory holds: linking kube-apiserver takes about 2 GB.
jobs=$(awk -v cores="$(nproc)" '/MemAvailable/ { fit = int($2 / 1500000); print fit < 1 ? 1 : fit < cores ? fit : cores }' /proc/meminfo)

make_one() { # NAME MODULE-FOLDER PACKAGE LDFLAGS [OPTION]
  local name=$1 module=$2 package=$3 flags=$4 began=$SECONDS log
  echo "building $name"
  log=$(mktemp "$folder/.$name.log.XXXXXX")
  (cd "$here/$module" && CGO_ENABLED=0 GOFLAGS='' GOTOOLCHAIN=local GOWORK=off go build -mod=readonly ${5:+"$5"} -buildvcs=false -trimpath -p "$jobs" -ldflags "-s -w $flags" -o "$folder/.$name.new" "$package") \
    > "$log" 2>&1 || { echo "build.sh: $name could not be built:" >&2; tail -n 30 "$log" >&2; rm -f "$log" "$folder/.$name.new"; return 1; }
  rm -f "$log"
  mv -f "$folder/.$name.new" "$folder/$name"
  echo "built $name in $((SECONDS - began)) s, $(($(stat -c %s "$folder/$name") / 1000000)) MB"
}
version_flags() { # VERSION: what `version` and GET /version answer
  local minor=${1#v1.} package flags=''
  minor=${minor%%.*}
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags="$flags -X $package.gitVersion=$1 -X $package.gitMajor=1 -X $package.gitMinor=$minor -X $package.gitTreeState=clean -X $package.buildDate=2025-01-01T00:00:00Z"
  done
  echo "$flags"
}
for name in "$@"; do
  if [[ $name == probe* ]]; then # our own small program: the Go client decides whether anything is to do
    :
  elif [ -x "$folder/$name" ]; then
    continue
  fi
  command -v go > /dev/null || { echo "build.sh: $name is not in $folder and there is no Go client to build it" >&2; exit 77; }
  # Two callers at once: the second waits, then finds the program there.
  exec 8> "$folder/.$name.lock"
  flock 8
  if [[ $name == probe* ]] || [ ! -x "$folder/$name" ]; then
    case $name in
      kube-apiserver | kube-controller-manager | kube-scheduler | kubectl | kubelet) make_one "$name" kubernetes "k8s.io/kubernetes/cmd/$name" "$(version_flags "$kubernetes")" ;;
      etcd) make_one etcd etcd go.etcd.io/etcd/server/v3 '' ;;
      helm) make_one helm helm helm.sh/helm/v3/cmd/helm "-X helm.sh/helm/v3/internal/version.version=$helm -X helm.sh/helm/v3/internal/version.metadata= -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=33 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=33" ;;
      jobset)
        [ -n "${jobset:-}" ] || { echo 'build.sh: jobset is built alone' >&2; exit 2; }
        make_one jobset jobset sigs.k8s.io/jobset ''
        module=$(cd "$here/jobset" && GOFLAGS='' GOTOOLCHAIN=local GOWORK=off go list -mod=readonly -m -f '{{.Dir}}' sigs.k8s.io/jobset)
        install -m 644 "$module/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml" "$folder/jobsets.yaml"
        ;;
      probe) [ ! -e "$here/probe/go.mod" ] || make_one probe probe . '' ;;
      probe-*)
        [ -e "$here/probe/go.${name#probe-}.mod" ] || { echo "build.sh: no probe/go.${name#probe-}.mod" >&2; exit 2; }
        make_one "$name" probe . '' "-modfile=go.${name#probe-}.mod"
        ;;
      *) echo "build.sh: unknown program $name (see the head of this file)" >&2; exit 2 ;;
    esac
  fi
  exec 8>&-
done
echo "$folder"
