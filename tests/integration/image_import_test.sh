#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Images that others built come into the store whole or not at all: docker-archive, oci-archive and OCI layout; what is broken, unsafe or not for this machine is refused.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
for tool in skopeo umoci python3; do command -v $tool > /dev/null || { echo "$tool is missing"; exit 77; }; done
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
import() { "$root/images/import.sh" "$@"; }

# An image with one layer, by umoci: a program, a link that leads out, a name with a blank.
umoci init --layout "$work/layout" && umoci new --image "$work/layout:tools"
umoci unpack --image "$work/layout:tools" "$work/bundle" > /dev/null 2>&1
mkdir -p "$work/bundle/rootfs/bin" "$work/bundle/rootfs/etc"
echo '#!/bin/sh' > "$work/bundle/rootfs/bin/tool"
chmod 755 "$work/bundle/rootfs/bin/tool"
echo 'app:x:1000:1000::/:/bin/sh' > "$work/bundle/rootfs/etc/passwd"
ln -s /../../../etc/shadow "$work/bundle/rootfs/etc/out"
echo x > "$work/bundle/rootfs/a b"
umoci repack --image "$work/layout:tools" "$work/bundle" > /dev/null 2>&1
umoci config --image "$work/layout:tools" --config.entrypoint /bin/tool --config.cmd serve --config.env A=b --config.user app --config.workingdir /srv
skopeo copy --insecure-policy -q "oci:$work/layout:tools" "docker-archive:$work/docker.tar:quay.io/team/tools:1.2"
skopeo copy --insecure-policy -q "oci:$work/layout:tools" "oci-archive:$work/oci.tar:tools"

store=$work/store
dir=$(import "$work/docker.tar" "$store" 2> /dev/null)
[ "$dir" = "$store/tools/1.2" ] || fail "a docker-archive is stored as $dir"
python3 - "$dir/image.json" << 'PYTHON' || fail "image.json"
import json, sys
image = json.load(open(sys.argv[1]))
assert image["config"] == {"cmd": ["serve"], "env": [e for e in image["config"]["env"] if e], "user": "app", "working_dir": "/srv", "entrypoint": ["/bin/tool"]}, image
assert "A=b" in image["config"]["env"] and image["references"] == ["quay.io/team/tools:1.2"], image
assert image["digest"].startswith("sha256:") and image["file_count"] >= 5, image
PYTHON
[ -x "$dir/rootfs/bin/tool" ] && [ -f "$dir/rootfs/a b" ] && [ -L "$dir/rootfs/etc/out" ] && [ -f "$dir/manifest.gz" ] || fail "files"
[ "$(import "$work/oci.tar" "$store" other:1 2> /dev/null)" = "$store/other/1" ] || fail "oci-archive"
[ "$(import "oci:$work/layout:tools" "$store" third:1 2> /dev/null)" = "$store/third/1" ] || fail "OCI layout"
[ "$(import "$work/docker.tar" "$store" 2> /dev/null)" = "$store/tools/1.2" ] || fail "the same again"
echo "imported from a docker-archive, an oci-archive and a layout"

refused() { # WHAT IT SAYS, ARGUMENTS...
  local says=$1
  shift
  import "$@" > "$work/out" 2>&1 && fail "taken: $*"
  grep -q -- "$says" "$work/out" || { cat "$work/out" >&2; fail "not said: $says"; }
}
refused 'only files and folders are read' docker://quay.io/team/tools:1 "$store"
refused 'no such file' "$work/nothing.tar" "$store"
echo junk > "$work/junk.tar"
refused 'neither a docker-archive nor an oci-archive' "$work/junk.tar" "$store"
refused 'no name that can be used' "oci:$work/layout:tools" "$store" '../evil:1'
# One flipped byte in a layer.
cp -r "$work/layout" "$work/damaged"
python3 - "$work/damaged/blobs/sha256" << 'PYTHON'
import os, sys
for name in os.listdir(sys.argv[1]):
    path = sys.argv[1] + "/" + name
    data = bytearray(open(path, "rb").read())
    if data[:2] == b"\x1f\x8b":
        data[30] ^= 255
        open(path, "wb").write(data)
PYTHON
refused 'cannot be' "oci:$work/damaged:tools" "$store" damaged:1
umoci config --image "$work/layout:tools" --tag alien --architecture s390x
refused 's390x' "oci:$work/layout:alien" "$store" alien:1
[ ! -e "$store/damaged" ] && [ ! -e "$store/alien" ] && [ -z "$(find "$store" -maxdepth 1 -name '.new-*')" ] || fail "something was left"
# A layer that writes through a link that leads out of the image stays inside.
mkdir -p "$work/evil"
(cd "$work/evil" && ln -s "$work/outside" link && mkdir -p "$work/outside" && tar -cf "$work/evil.tar" link && rm link && mkdir link && echo pwned > link/file && tar -rf "$work/evil.tar" link/file)
umoci raw add-layer --image "$work/layout:tools" --tag evil "$work/evil.tar" > /dev/null 2>&1
import "oci:$work/layout:evil" "$store" evil:1 > /dev/null 2>&1 || true
[ -z "$(ls -A "$work/outside")" ] || fail "a layer wrote outside of the image"
echo "what is broken, unsafe or foreign is refused"
