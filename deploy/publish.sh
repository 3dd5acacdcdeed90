#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs the charts into DIR and writes the index.yaml that `helm repo add` reads; DIR can be served by any web server as it is.
#
#   publish.sh DIR [--url URL]      URL: where DIR will be found, if the index shall hold whole addresses
#
# Versions that are in DIR stay in the index. A version is published once: the same content again changes nothing, other content under its number is refused. Needs `helm` in PATH (or $HELM).
set -euo pipefail
export LC_ALL=C
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
helm=${HELM:-helm}
die() { printf 'publish: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '5s/^#   \([^ ]* DIR \[--url URL\]\).*/usage: \1/p' "${BASH_SOURCE[0]}" >&2; exit 2; }

dir='' url=()
while (($#)); do
  case $1 in
    --url) (($# > 1)) || usage; url=(--url "$2"); shift ;;
    -*) usage ;;
    *) [[ -z $dir ]] || usage; dir=$1 ;;
  esac
  shift
done
[[ -n $dir ]] || usage
command -v "$helm" > /dev/null || die 'the program helm is missing: put Helm 3 into PATH, or name it by $HELM'
mkdir -p "$dir"
work=$(mktemp -d "$dir/.publish-XXXXXX")
trap 'rm -rf "$work"' EXIT

for chart in "$here"/helm/*/; do
  name=$(basename "$chart")
  mkdir "$work/$name"
  "$helm" package "$chart" --destination "$work/$name" > "$work/log" 2>&1 || die "$name: $(tail -n 1 "$work/log")"
  package=$(basename "$work/$name"/*.tgz)
  # Helm writes the time of packing into the archive; packed again without it, equal charts are equal files.
  tar -C "$work/$name" -xmzf "$work/$name/$package"
  tar -C "$work/$name" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s --mtime=@315532800 --format=gnu -cf - "$name" | gzip -n -9 > "$work/$package"
  if [[ -e $dir/$package ]]; then
    cmp -s "$dir/$package" "$work/$package" ||
      die "$package is published already with other content: raise the version in deploy/helm/$name/Chart.yaml"
    echo "$package: is there"
  else
    mv "$work/$package" "$dir/$package"
    echo "$package: new"
  fi
done
merge=()
[[ ! -e $dir/index.yaml ]] || merge=(--merge "$dir/index.yaml")
mkdir "$work/index"
ln "$dir"/*.tgz "$work/index/"
"$helm" repo index "$work/index" ${url[@]+"${url[@]}"} ${merge[@]+"${merge[@]}"} > "$work/log" 2>&1 || die "index: $(tail -n 1 "$work/log")"
mv "$work/index/index.yaml" "$dir/index.yaml"
