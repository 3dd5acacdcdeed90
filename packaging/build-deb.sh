#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian packages from programs that are built: fairlead (command line), fairlead-server, fairlead-machines, fairlead-agent, fairlead-volumes (with fairlead-disk and fairlead-csi), fairlead-volumes-ceph (where fairlead-rbd is built), fairlead-slurm.
#
#   build-deb.sh BUILD_DIR OUT_DIR [--version VERSION]
#
# Afterwards OUT_DIR holds the .deb files and SHA256SUMS. Equal programs give equal bytes: the time inside is SOURCE_DATE_EPOCH, else that of the commit.
# Exit status: 0 done, 1 failed (one sentence says why), 2 wrong usage.
set -euo pipefail
export LC_ALL=C
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
die() { printf 'build-deb: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '5s/^#   /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2; }

build='' out='' version=''
while (($#)); do
  case $1 in
    --version) (($# > 1)) || usage; version=$2; shift ;;
    -*) usage ;;
    *) if [[ -z $build ]]; then build=$1; elif [[ -z $out ]]; then out=$1; else usage; fi ;;
  esac
  shift
done
[[ -n $build && -n $out ]] || usage
for tool in dpkg-deb dpkg-shlibdeps strip gzip; do command -v $tool > /dev/null || die "the program $tool is missing: apt-get install dpkg-dev binutils"; done
[[ -n $version ]] || version=$(sed -nE 's/^project\(fairlead VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+([~+][a-z0-9.+~]+)?$ ]] || die "version $version: MAJOR.MINOR.PATCH is expected"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' -C "$root" log -1 --format=%ct 2> /dev/null || true)}
[[ -n $SOURCE_DATE_EPOCH ]] || die 'the time of the sources is not known outside of a git checkout: set SOURCE_DATE_EPOCH'
architecture=$(dpkg --print-architecture)
IFS=. read -r major minor _ <<< "$version"
# Programs of one site may be one minor version apart, while it is being upgraded or rolled back.
oldest=$major.$((minor > 0 ? minor - 1 : 0))~
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d "$out/.work-XXXXXX")
trap 'rm -rf "$work"' EXIT

program() { # PACKAGE NAME
  local at=$build/bin/$2
  [[ -x $at ]] || die "$at is not built"
  mkdir -p "$work/$1/usr/lib/fairlead"
  strip --strip-unneeded -o "$work/$1/usr/lib/fairlead/$2" "$at"
  chmod 0755 "$work/$1/usr/lib/fairlead/$2"
}
link() { # PACKAGE NAME FOLDER
  mkdir -p "$work/$1/$3"
  ln -s ../lib/fairlead/"$2" "$work/$1/$3/$2"
}
unit() { # PACKAGE
  install -D -m 0644 "$here/units/$1.service" "$work/$1/usr/lib/systemd/system/$1.service"
  mkdir -p "$work/$1/etc/default"
  printf '# Options of %s beside those of its unit; see %s --help.\nFAIRLEAD_%s_OPTIONS=""\n' "$1" "$1" "$(tr a-z- A-Z_ <<< "${1#fairlead-}")" > "$work/$1/etc/default/$1"
  chmod 0644 "$work/$1/etc/default/$1"
}

# What debhelper writes into maintainer scripts of a package with a unit: start it at first, restart it at an upgrade, stop it before removal.
unit_script() { # NAME.service postinst|prerm|postrm
  case $2 in
    postinst) cat << SHELL
if [ "\$1" = configure ] || [ "\$1" = abort-upgrade ] || [ "\$1" = abort-deconfigure ] || [ "\$1" = abort-remove ]; then
  if deb-systemd-helper --quiet was-enabled '$1'; then deb-systemd-helper enable '$1' > /dev/null || true; else deb-systemd-helper update-state '$1' > /dev/null || true; fi
  if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload > /dev/null || true
    if [ -n "\$2" ]; then deb-systemd-invoke restart '$1' > /dev/null || true; else deb-systemd-invoke start '$1' > /dev/null || true; fi
  fi
fi
SHELL
      ;;
    prerm) cat << SHELL
if [ "\$1" = remove ] && [ -d /run/systemd/system ]; then deb-systemd-invoke stop '$1' > /dev/null || true; fi
SHELL
      ;;
    postrm) cat << SHELL
if [ "\$1" = remove ] && [ -d /run/systemd/system ]; then systemctl --system daemon-reload > /dev/null || true; fi
if [ "\$1" = remove ] && command -v deb-systemd-helper > /dev/null; then deb-systemd-helper mask '$1' > /dev/null || true; fi
if [ "\$1" = purge ] && command -v deb-systemd-helper > /dev/null; then
  deb-systemd-helper purge '$1' > /dev/null || true
  deb-systemd-helper unmask '$1' > /dev/null || true
fi
SHELL
      ;;
  esac
}
scripts() { # PACKAGE
  local kind text insert
  for kind in postinst prerm postrm; do
    text=$'#!/bin/sh\nset -e\n#UNITS#\n' insert=''
    [[ ! -f $here/scripts/$1.$kind ]] || text=$(cat "$here/scripts/$1.$kind")$'\n'
    [[ ! -f $work/$1/usr/lib/systemd/system/$1.service ]] || insert=$(unit_script "$1.service" $kind)
    [[ -n $insert || -f $here/scripts/$1.$kind ]] || continue
    # An enabled unit after a first installation is unmasked again.
    [[ $kind != postinst || -z $insert ]] || insert="deb-systemd-helper unmask '$1.service' > /dev/null || true"$'\n'$insert
    printf '%s' "${text/\#UNITS\#/"$insert"}" > "$work/$1/DEBIAN/$kind"
    chmod 0755 "$work/$1/DEBIAN/$kind"
  done
}

libraries() { # PACKAGE: its dependencies on libraries, from the symbols that its programs use
  local programs
  programs=$(find "$work/$1/usr/lib/fairlead" -maxdepth 1 -type f -name 'fairlead*' 2> /dev/null) || true
  [[ -n $programs ]] || return 0
  mkdir -p "$work/shlibs/debian"
  printf 'Source: fairlead\n\nPackage: %s\nArchitecture: %s\n' "$1" "$architecture" > "$work/shlibs/debian/control"
  # shellcheck disable=SC2086
  (cd "$work/shlibs" && dpkg-shlibdeps -O $(printf -- '-e%s ' $programs) 2> "$work/log") | sed -n 's/^shlibs:Depends=//p' || die "dpkg-shlibdeps: $(tail -n 1 "$work/log")"
}

finish() { # PACKAGE LICENCE DEPENDS OTHER-FIELDS SHORT LONG
  local package=$1 licence=$2 depends=$3 fields=$4 short=$5 long=$6 at=$work/$1 doc=$work/$1/usr/share/doc/$1 shared
  mkdir -p "$doc" "$at/DEBIAN"
  {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: fairlead\n\nFiles: *\nCopyright: 2026 The Fairlead authors\nLicense: %s\n' "$licence"
    case $licence in
      Apache-2.0) printf ' On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n' ;;
      GPL-3+) printf ' On Debian systems the text is in /usr/share/common-licenses/GPL-3.\n' ;;
    esac
  } > "$doc/copyright"
  printf 'fairlead (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- Fairlead <packages@fairlead.dev>  %s\n' "$version" "$(date -u -d "@$SOURCE_DATE_EPOCH" -R)" | gzip -n -9 > "$doc/changelog.gz"
  chmod 0644 "$doc"/*
  scripts "$package"
  ! compgen -G "$at/etc/default/*" > /dev/null || (cd "$at" && find etc -type f | sort | sed 's|^|/|') > "$at/DEBIAN/conffiles"
  shared=$(libraries "$package")
  {
    printf 'Package: %s\nSource: fairlead\nVersion: %s\nArchitecture: %s\nMaintainer: Fairlead <packages@fairlead.dev>\nSection: admin\nPriority: optional\n' "$package" "$version" "$architecture"
    printf 'Installed-Size: %s\n' "$(du -sk --exclude=DEBIAN "$at" | cut -f1)"
    [[ -z $depends$shared ]] || printf 'Depends: %s\n' "$(sed -E 's/^, |, $//g' <<< "$shared, $depends" | sed -E 's/, *$//')"
    [[ -z $fields ]] || printf '%s\n' "$fields"
    printf 'Description: %s\n%s\n' "$short" "$(fold -s -w 78 <<< "$long" | sed 's/ *$//; s/^/ /')"
  } > "$at/DEBIAN/control"
  (cd "$at" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' | sort | sed 's|^\./||' | xargs md5sum) > "$at/DEBIAN/md5sums"
  find "$at" -type d -exec chmod 0755 {} +
  find "$at" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$at" "$out/${package}_${version}_$architecture.deb" > /dev/null 2> "$work/log" || die "$package: $(tail -n 1 "$work/log")"
}
readme() { # PACKAGE FILE
  install -D -m 0644 "$2" "$work/$1/usr/share/doc/$1/README.md"
}

# A page that says what --help says.
man() { # PACKAGE PROGRAM SECTION
  local page=$work/$1/usr/share/man/man$3/$2.$3.gz
  mkdir -p "$(dirname "$page")"
  {
    printf '.TH %s %s "" "fairlead %s"\n.SH NAME\n%s \\- control plane of AI training clusters\n.SH SYNOPSIS\n.B %s\n[options]\n.SH DESCRIPTION\n.nf\n' "${2^^}" "$3" "$version" "$2" "$2"
    "$build/bin/$2" --help | sed -E 's/\\/\\e/g; s/-/\\-/g; s/^([.'"'"'])/\\\&\1/'
    printf '.fi\n'
  } | gzip -n -9 > "$page"
  chmod 0644 "$page"
}

rm -f "$out"/fairlead*_"${version}"_"$architecture".deb

program fairlead fairlead
link fairlead fairlead usr/bin
mkdir -p "$work/fairlead/usr/lib/fairlead/images" "$work/fairlead/usr/share/doc/fairlead"
cp -r "$root"/images/{build.sh,recipe.py,busybox,mariadb,slurm} "$work/fairlead/usr/lib/fairlead/images/"
find "$work/fairlead/usr/lib/fairlead/images" -name __pycache__ -prune -exec rm -rf {} +
cp -r "$root/examples" "$work/fairlead/usr/share/doc/fairlead/examples"
find "$work/fairlead/usr/share/doc/fairlead/examples" -type f -exec chmod 0644 {} +
chmod 0755 "$work"/fairlead/usr/share/doc/fairlead/examples/root-key/*  # programs, to be named as they are
readme fairlead "$root/README.md"
man fairlead fairlead 1
chmod 0755 "$work"/fairlead/usr/lib/fairlead/images/slurm/files/nvidia-smi
finish fairlead Apache-2.0 python3 "Recommends: openssh-client, mmdebstrap, python3-yaml
Suggests: fairlead-server
Breaks: fairlead-server (<< $oldest)" 'control plane of AI training clusters: command line' \
  'Brings up Slurm clusters for AI training on one machine or on Kubernetes, looks into them, and builds the images of their nodes.'

program fairlead-server fairlead-server
unit fairlead-server
link fairlead-server fairlead-server usr/sbin
readme fairlead-server "$here/README.md"
man fairlead-server fairlead-server 8
finish fairlead-server Apache-2.0 "fairlead-slurm (= $version), adduser, init-system-helpers (>= 1.54~)" "Recommends: fairlead, fairlead-machines
Breaks: fairlead-agent (<< $oldest), fairlead-machines (<< $oldest)" 'control plane of AI training clusters: API and controllers' \
  'The API server of a site and the controllers that make Slurm clusters out of resources. Runs as the user fairlead; what needs root is done by the package fairlead-machines. The unit serves the embedded engine; with --engine=kubernetes the same program works on a Kubernetes cluster.'

program fairlead-machines fairlead-machines
unit fairlead-machines
readme fairlead-machines "$here/README.md"
finish fairlead-machines Apache-2.0 "fairlead-agent (>= $oldest), fairlead-server (>= $oldest), iproute2, init-system-helpers (>= 1.54~)" '' 'control plane of AI training clusters: nodes on this machine' \
  'Makes nodes out of namespaces of this machine, for a fairlead-server that is not root. An upgrade leaves running nodes and their jobs alone.'

program fairlead-agent fairlead-agent
unit fairlead-agent
readme fairlead-agent "$here/README.md"
finish fairlead-agent Apache-2.0 'conmon, containernetworking-plugins, crun, iproute2, nftables, init-system-helpers (>= 1.54~)' '' 'control plane of AI training clusters: the program on every node' \
  'Runs the pods of one node by crun and conmon, and reports about them. Containers go on while it is restarted or upgraded.'

program fairlead-volumes fairlead-volumes
program fairlead-volumes fairlead-disk
program fairlead-volumes fairlead-csi
unit fairlead-volumes
readme fairlead-volumes "$root/docs/volumes.md"
finish fairlead-volumes Apache-2.0 'cryptsetup-bin, e2fsprogs, xfsprogs, init-system-helpers (>= 1.54~)' '' 'control plane of AI training clusters: block volumes' \
  'Keeps the volumes of this machine in a pool on XFS: snapshots, copies, growth, attachment to nodes. With the CSI driver csi.fairlead.dev. Volumes stay attached while it is restarted or upgraded.'

# Apart, as it depends on Ceph's libraries.
if [[ -x $build/bin/fairlead-rbd ]]; then
  program fairlead-volumes-ceph fairlead-rbd
  # Of further machines: begun by whoever has written its options.
  install -D -m 0644 "$here/units/fairlead-volumes-host.service" "$work/fairlead-volumes-ceph/usr/lib/systemd/system/fairlead-volumes-host.service"
  finish fairlead-volumes-ceph Apache-2.0 "fairlead-volumes (= $version)" '' 'control plane of AI training clusters: block volumes in Ceph' \
    'What fairlead-volumes needs for a pool of volumes in a Ceph cluster: access to it, and the engine of a volume that lies there.'
fi

program fairlead-slurm fairlead-slurm
# It runs in whatever image the user names, which may have no zlib, or another one.
install -d -m 0755 "$work/fairlead-slurm/usr/share/lintian/overrides"
printf 'fairlead-slurm: embedded-library zlib *\n' > "$work/fairlead-slurm/usr/share/lintian/overrides/fairlead-slurm"
chmod 0644 "$work/fairlead-slurm/usr/share/lintian/overrides/fairlead-slurm"
finish fairlead-slurm GPL-3+ '' '' 'control plane of AI training clusters: companion of Slurm' \
  'The small program that prepares and supervises the daemons inside the containers of a Slurm cluster. It is mounted there; nothing on the host runs it.'

(cd "$out" && sha256sum fairlead*_"${version}"_"$architecture".deb) > "$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$out/SHA256SUMS"
