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
libgrpc++_unsecure.so Apache-2.0
libgrpc_unsecure.so Apache-2.0
libgpr.so          Apache-2.0
libaddress_sorting.so Apache-2.0
libupb.so          Apache-2.0
libabsl.so         Apache-2.0
libprotobuf.so     BSD-3-Clause
libcares.so        MIT
'
# strangers: of the lines of ldd on stdin, the libraries that the list does not have.
strangers() {
  awk -v list="$allowed" '
    BEGIN { n = split(list, lines, "\n"); for (i = 1; i <= n; i++) { split(lines[i], word, " "); if (word[1] != "") known[word[1]] = 1 } }
    NF == 0 { next }
    { name = $1; sub(/.*\//, "", name); sub(/\.so[.0-9]*$/, ".so", name); sub(/^libabsl_.*/, "libabsl.so", name); if (!(name in known)) print $1 }'
}

# The control: the check itself must refuse.
[ "$(printf '\tlibreadline.so.8 => /lib/libreadline.so.8 (0x0)\n\tlibc.so.6 => /lib/libc.so.6 (0x0)\n' | strangers)" = libreadline.so.8 ] || bad 'the check does not see libreadline'

for program in fairlead fairlead-server fairlead-agent fairlead-machines fairlead-volumes fairlead-disk fairlead-csi; do
  path=$build/bin/$program
  [ -x "$path" ] || { bad "$path is not built"; continue; }
  loaded=$(ldd "$path") || { bad "ldd cannot read $path"; continue; }
  unknown=$(strangers <<< "$loaded")
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
