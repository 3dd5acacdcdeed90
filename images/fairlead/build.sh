#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the OCI images of our programs, without a container engine: Debian's packages below (images/build.sh), the programs above, umoci and skopeo to put them into shape.
#
#   build.sh BUILD_DIR OUT_DIR [--only NAME] [--store DIR]
#
# For each of fairlead-server, fairlead-agent, fairlead-volumes and fairlead there is afterwards in OUT_DIR: NAME/ (an OCI layout whose reference is the version), NAME.docker.tar (what
# `docker load`, `ctr images import` and `skopeo` read) and NAME.spdx.json (its Debian packages); and sha256sums over all. Equal programs, packages and commit give equal bytes; the time
# written inside is SOURCE_DATE_EPOCH, the commit SOURCE_REVISION, else those of the checkout. Exit status: 0 done, 1 failed (one sentence says why), 2 wrong usage.
set -euo pipefail
export LC_ALL=C
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root uid=65532
die() { printf 'image build: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '5s/^#   /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2; }

build='' out='' store=/var/lib/fairlead/images names=(fairlead-server fairlead-agent fairlead-volumes fairlead)
while (($#)); do
  case $1 in
    --only) (($# > 1)) || usage; names=("$2"); shift ;;
    --store) (($# > 1)) || usage; store=$2; shift ;;
    -*) usage ;;
    *) if [[ -z $build ]]; then build=$1; elif [[ -z $out ]]; then out=$1; else usage; fi ;;
  esac
  shift
done
[[ -n $build && -n $out ]] || usage
((EUID == 0)) || die "must run as root, because files in images belong to root: run it with sudo"
for tool in umoci skopeo strip python3; do command -v "$tool" > /dev/null || die "the program $tool is missing: apt-get install umoci skopeo binutils python3"; done
version=$(sed -nE 's/^project\(fairlead VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")
[[ -n $version ]] || die "no version in CMakeLists.txt"
epoch=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' -C "$root" log -1 --format=%ct 2> /dev/null || true)}
[[ -n $epoch ]] || die "the time of the sources is not known outside of a git checkout: set SOURCE_DATE_EPOCH"
revision=${SOURCE_REVISION:-$(git -c safe.directory='*' -C "$root" rev-parse HEAD 2> /dev/null || echo unknown)}
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)

mkdir -p "$out"
work=$(mktemp -d "$out/.work-XXXXXX")
trap 'rm -rf "$work"' EXIT

# What lies below the programs of an image: sets `base`, the packages' image in the store, and `files`, what of it goes into ours.
take_base() { # NAME
  local recipe=base
  [[ $1 != fairlead-volumes ]] || recipe=volumes
  base=$("$root/images/build.sh" "$here/$recipe" "$store" | tail -n 1)
  files=$base/rootfs
  [[ -z $(find "$files" -type f -perm /6000 -print -quit) ]] && return
  # Debian's mount is set-uid; here it is root that calls it.
  files=$work/files-$1
  cp -a "$base/rootfs" "$files"
  find "$files" -type f -perm /6000 -exec chmod ug-s {} +
}

# The layer above the packages: programs, the two accounts, the authorities' certificates in one file.
stage_programs() { # NAME FOLDER
  local name=$1 to=$2 programs=("$1") program
  [[ $name != fairlead-agent ]] || programs+=(fairlead-slurm)      # the agent puts the companion on its node
  [[ $name != fairlead-volumes ]] || programs+=(fairlead-csi fairlead-disk)      # they run beside each other
  mkdir -p "$to"/usr/bin "$to"/etc/ssl/certs "$to"/usr/share/doc/fairlead "$to"/usr/lib/fairlead "$to"/tmp "$to"/var/lib/fairlead
  for program in "${programs[@]}"; do
    [[ -x $build/bin/$program ]] || die "$build/bin/$program is not built"
    strip --strip-unneeded -o "$to/usr/bin/$program" "$build/bin/$program"
    chmod 0755 "$to/usr/bin/$program"
  done
  printf 'root:x:0:0:root:/:/usr/sbin/nologin\nfairlead:x:%s:%s:Fairlead:/var/lib/fairlead:/usr/sbin/nologin\n' $uid $uid > "$to/etc/passwd"
  printf 'root:x:0:\nfairlead:x:%s:\n' $uid > "$to/etc/group"
  printf 'hosts: files dns\n' > "$to/etc/nsswitch.conf"
  find "$files/usr/share/ca-certificates" -name '*.crt' | sort | xargs cat > "$to/etc/ssl/certs/ca-certificates.crt"
  cp "$root"/{LICENSE,NOTICE,THIRD_PARTY.md} "$to/usr/share/doc/fairlead/"
  [[ $name != fairlead-agent ]] || cp "$root"/gpl/LICENSE "$to/usr/share/doc/fairlead/LICENSE.fairlead-slurm"
  chmod 1777 "$to/tmp"
  chown -R 0:0 "$to"
  chown $uid:$uid "$to/var/lib/fairlead"
  chmod 0700 "$to/var/lib/fairlead"
  find "$to" -exec touch -h -d "@$epoch" {} +
}

# Every library that a program names is in the image, and it starts.
try_programs() { # FOLDER-OF-LAYER
  local together=$work/together program
  rm -rf "$together"
  mkdir "$together"
  cp -a "$files/." "$together"
  cp -a "$1/." "$together"
  for program in "$1"/usr/bin/*; do
    unshare --mount --net --pid --fork chroot --userspec=$uid:$uid "$together" "/usr/bin/${program##*/}" --help > "$work/log" 2>&1 ||
      die "${program##*/} does not start in its image: $(tail -n 1 "$work/log")"
  done
  for program in "$files"/{bin,sbin,usr/sbin}/*; do # Debian's: 127 where a library is missing; some end with 1 after they have told their version
    [[ -x $program ]] || continue
    unshare --mount --net --pid --fork chroot "$together" "${program#"$files"}" -V > "$work/log" 2>&1 || (($? < 126)) || die "${program##*/} does not start in its image: $(tail -n 1 "$work/log")"
  done
  rm -rf "$together"
}

sbom() { # NAME
  python3 - "$1" "$version" "$created" "$base/image.json" << 'PYTHON'
import json, sys
name, version, created, path = sys.argv[1:]
base = json.load(open(path))
def package(number, of, licence="NOASSERTION", purl=None):
    entry = {"SPDXID": f"SPDXRef-{number}", "name": of["name"], "versionInfo": of["version"], "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
             "licenseConcluded": "NOASSERTION", "licenseDeclared": licence, "copyrightText": "NOASSERTION"}
    if purl:
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return entry
packages = [package(name, {"name": name, "version": version}, "Apache-2.0")]
packages += [package("deb-" + p["name"].replace("+", "-plus-").replace("_", "-"), p, purl=f"pkg:deb/debian/{p['name']}@{p['version']}?arch={base['architecture']}&distro=bookworm") for p in base["packages"]]
if name == "fairlead-agent":
    packages.append(package("fairlead-slurm", {"name": "fairlead-slurm", "version": version}, "GPL-3.0-or-later"))
relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": f"SPDXRef-{name}"}]
relations += [{"spdxElementId": f"SPDXRef-{name}", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": p["SPDXID"]} for p in packages[1:]]
print(json.dumps({"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{name}-{version}",
                  "documentNamespace": f"https://fairlead.dev/spdx/{name}-{version}-{base['digest'][7:19]}",
                  "creationInfo": {"created": created, "creators": ["Tool: fairlead-images"]}, "packages": packages, "relationships": relations}, indent=1))
PYTHON
}

build_image() { # NAME
  local name=$1 layout=$work/$1 layer=$work/layer-$1 image title user=$uid:$uid path=/usr/bin
  case $name in
    fairlead-server) title='Fairlead: controllers of AI training clusters' ;;
    fairlead-agent) title='Fairlead: the program on every node' user=0:0 ;;      # writes below the node's own /var/lib/fairlead
    fairlead-volumes) title='Fairlead: block volumes, pool and CSI driver' user=0:0 path=/usr/sbin:/usr/bin:/sbin:/bin ;;
    fairlead) title='Fairlead: command line' ;;
    *) die "no image is called $name" ;;
  esac
  take_base "$name"
  stage_programs "$name" "$layer"
  try_programs "$layer"
  image=$layout:$version
  umoci init --layout "$layout"
  umoci new --image "$image"
  umoci insert --history.created "$created" --history.created_by "Debian packages: $(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["digest"])' "$base/image.json")" \
    --image "$image" "$files" / > "$work/log" 2>&1 || die "umoci: $(tail -n 1 "$work/log")"
  umoci insert --history.created "$created" --history.created_by "programs of $name $version" --image "$image" "$layer" / > "$work/log" 2>&1 || die "umoci: $(tail -n 1 "$work/log")"
  umoci config --no-history --image "$image" --created "$created" --os linux --architecture "$(dpkg --print-architecture)" --config.user "$user" --config.workingdir / \
    --config.env "PATH=$path" --config.entrypoint "/usr/bin/$name" --config.label "org.opencontainers.image.title=$title" --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.revision=$revision" --config.label "org.opencontainers.image.created=$created" \
    --config.label "org.opencontainers.image.licenses=$([[ $name == fairlead-agent ]] && echo 'Apache-2.0 AND GPL-3.0-or-later' || echo Apache-2.0)" \
    --config.label "org.opencontainers.image.base.name=debian:bookworm"
  umoci gc --layout "$layout" > /dev/null
  rm -f "$work/$name.tar"
  skopeo copy --quiet "oci:$image" "docker-archive:$work/$name.tar:fairlead.dev/$name:$version" > "$work/log" 2>&1 || die "skopeo: $(tail -n 1 "$work/log")"
  sbom "$name" > "$work/$name.spdx.json"
  rm -rf "${out:?}/$name" "$out/$name.docker.tar"
  mv "$layout" "$out/$name"
  mv "$work/$name.tar" "$out/$name.docker.tar"
  mv "$work/$name.spdx.json" "$out/$name.spdx.json"
  rm -rf "$layer" "$work/files-$name"
  printf '%s %s: %s MB\n' "$name" "$version" "$(($(du -sk "$out/$name" | cut -f1) / 1000))" >&2
}

for name in "${names[@]}"; do build_image "$name"; done
rm -f "$out/sha256sums"
(cd "$out" && find . -type f ! -path './.work*' | sort | sed 's|^\./||' | xargs sha256sum) > "$work/sha256sums"
mv "$work/sha256sums" "$out/sha256sums"
