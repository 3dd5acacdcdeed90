#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the Apache-licensed programs load, link and include: nothing under the GPL, nothing that this list does not know. gpl/ uses nothing of the rest but base.
#   licences_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: licences_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
failures=0
ok() { echo "ok    $*"; }
bad() { echo "FAIL  $*"; failures=$((failures + 1)); }

# Library and licence. A new one gets a line here and in THIRD_PARTY.md after someone has read its licence.
allowed='
linux-vdso.so      the kernel
ld-linux-x86-64.so LGPL-2.1-or-later
libc.so            LGPL-2.1-or-later
libm.so            LGPL-2.1-or-later
libgcc_s.so        GPL-3.0-or-later WITH GCC-exception-3.1
libstdc++.so       GPL-3.0-or-later WITH GCC-exception-3.1
libcrypto.so       Apache-2.0
libssl.so          Apache-2.0
libfmt.so          MIT
libspdlog.so       MIT
libsimdjson.so     Apache-2.0
libyaml-cpp.so     MIT
libsqlite3.so      public domain
libre2.so          BSD-3-Clause
libseccomp.so      LGPL-2.1-only
libcap.so          BSD-3-Clause
libz.so            Zlib
libfuse3.so        LGPL-2.1-only
liburing.so        LGPL-2.1-or-later OR MIT
libgrpc++_unsecure.so Apache-2.0
libgrpc_unsecure.so Apache-2.0
libgpr.so          Apache-2.0
libaddress_sorting.so Apache-2.0
libupb.so          Apache-2.0
libabsl.so         Apache-2.0
libprotobuf.so     BSD-3-Clause
libcares.so        MIT
'
# Of fairlead-rbd alone: Ceph's libraries, and what these load.
allowed_by_ceph='
librbd.so          LGPL-2.1-only OR LGPL-3.0-only
librados.so        LGPL-2.1-only OR LGPL-3.0-only
libceph-common.so  LGPL-2.1-only OR LGPL-3.0-only
libboost_iostreams.so BSL-1.0
libboost_thread.so BSL-1.0
libcryptsetup.so   LGPL-2.1-or-later WITH cryptsetup-OpenSSL-exception
libdevmapper.so    LGPL-2.1-only
libargon2.so       CC0-1.0 OR Apache-2.0
libjson-c.so       MIT
libblkid.so        LGPL-2.1-or-later
libuuid.so         BSD-3-Clause
libudev.so         LGPL-2.1-or-later
libselinux.so      public domain
libpcre2-8.so      BSD-3-Clause
librdmacm.so       BSD-2-Clause OR GPL-2.0-only
libibverbs.so      BSD-2-Clause OR GPL-2.0-only
libnl-3.so         LGPL-2.1-only
libnl-route-3.so   LGPL-2.1-only
libbz2.so          bzip2-1.0.6
liblzma.so         public domain
libzstd.so         BSD-3-Clause
libresolv.so       LGPL-2.1-or-later
'
# strangers [MORE]: of the lines of ldd on stdin, the libraries that the list does not have.
strangers() {
  awk -v list="$allowed${1:-}" '
    BEGIN { n = split(list, lines, "\n"); for (i = 1; i <= n; i++) { split(lines[i], word, " "); if (word[1] != "") known[word[1]] = 1 } }
    NF == 0 { next }
    { name = $1; sub(/.*\//, "", name); sub(/\.so[.0-9]*$/, ".so", name); sub(/^libabsl_.*/, "libabsl.so", name); if (!(name in known)) print $1 }'
}

# The control: the check itself must refuse.
[ "$(printf '\tlibreadline.so.8 => /lib/libreadline.so.8 (0x0)\n\tlibc.so.6 => /lib/libc.so.6 (0x0)\n' | strangers)" = libreadline.so.8 ] || bad 'the check does not see libreadline'

for program in fairlead fairlead-server fairlead-agent fairlead-machines fairlead-volumes fairlead-disk fairlead-csi fairlead-rbd; do
  path=$build/bin/$program
  [ "$program" != fairlead-rbd ] || [ -x "$path" ] || { echo 'skip  fairlead-rbd is not built: librbd-dev or libradospp-dev was not there'; continue; }
  [ -x "$path" ] || { bad "$path is not built"; continue; }
  loaded=$(ldd "$path") || { bad "ldd cannot read $path"; continue; }
  more=''
  [ "$program" != fairlead-rbd ] || more=$allowed_by_ceph
  unknown=$(strangers "$more" <<< "$loaded")
  if grep -q 'not found' <<< "$loaded"; then bad "$program lacks a library: $(grep 'not found' <<< "$loaded")"
  elif [ -n "$unknown" ]; then bad "$program loads libraries whose licence nobody has vouched for:" $unknown
  else ok "$program loads only known libraries"; fi
  if [ -e "$build/build.ninja" ]; then
    linked=$(ninja -C "$build" -t commands "bin/$program" | grep -oE '(^| )[^ ]+\.a( |$)' | grep -E '^ */' | grep -vF " $build/" | sort -u || true)
    if [ -n "$linked" ]; then bad "$program links archives from outside, which ldd does not see:" $linked; else ok "$program links no archive from outside"; fi
  fi
done

included=$(grep -rnE '#include *"(\.\./)*gpl/' src apps sim bench || true)
if [ -n "$included" ]; then bad "Apache-licensed code includes GPL code: $included"; else ok 'nothing includes gpl/'; fi
foreign=$(grep -rnE '#include *"[a-z_]+/' gpl | grep -vE '#include *"(base|gpl|container|durable|jail)/' || true) # folders of gpl/ itself
if [ -n "$foreign" ]; then bad "gpl/ includes more than base: $foreign"; else ok 'gpl/ includes base alone'; fi
for folder in src/base; do
  deeper=$(grep -rnE '#include *"[a-z_]+/' "$folder" | grep -vE '#include *"base/' || true)
  if [ -n "$deeper" ]; then bad "$folder includes other folders: $deeper"; else ok "$folder includes nothing of ours"; fi
done
[ "$failures" = 0 ] || { echo "$failures checks failed"; exit 1; }
