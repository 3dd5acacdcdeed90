#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Takes an OCI image that somebody else built into the local store.
#   import.sh SOURCE STORE_DIR [NAME:TAG]
# SOURCE: a docker-archive or oci-archive file, `docker-archive:FILE[:REFERENCE]`, `oci-archive:FILE[:REFERENCE]` or `oci:DIR[:REFERENCE]`. Registries are not asked: copy
# the image to a file with `skopeo copy docker://... oci-archive:FILE` first. NAME:TAG: how the store calls it; default: the last part of the image's own reference.
# Result: STORE_DIR/NAME/TAG/{rootfs/,image.json,manifest.gz}, complete or not there at all. Its path goes to stdout, progress to stderr.
# skopeo checks every blob against its digest; umoci resolves every path of a layer inside the new root.
set -euo pipefail
say() { echo "$*" >&2; }
die() { say "import.sh: $*"; exit 1; }
[[ $# -ge 2 && $# -le 3 ]] || { sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$1 store=$2 wanted=${3:-}
[[ $(id -u) == 0 ]] || die "not root: an image is a root file system, so run it again with sudo"
for tool in skopeo umoci python3 flock gzip; do
  command -v "$tool" > /dev/null || die "the program $tool is missing: apt-get install skopeo umoci python3 util-linux gzip"
done

# ---- what is it?
reference=''
case $source in
  oci:* | oci-archive:* | docker-archive:*)
    transport=${source%%:*}
    path=${source#*:}
    if [[ ! -e $path && $path == *:* && -e ${path%%:*} ]]; then
      reference=${path#*:}
      path=${path%%:*}
    fi
    ;;
  *://* | docker:* | containers-storage:*) die "$source: only files and folders are read; copy the image with \`skopeo copy $source oci-archive:FILE\` first" ;;
  *)
    path=$source
    [[ -f $path ]] || die "$path: there is no such file (a folder is given as oci:DIR)"
    # The list ends early: tar then complains about its pipe.
    names=$(tar -tf "$path" 2> /dev/null | head -n 2000 || true)
    if grep -qx -e 'oci-layout' -e './oci-layout' <<< "$names" && ! grep -qx -e 'manifest.json' -e './manifest.json' <<< "$names"; then
      transport=oci-archive
    elif grep -qx -e 'manifest.json' -e './manifest.json' <<< "$names"; then
      transport=docker-archive
    else
      die "$path is neither a docker-archive nor an oci-archive"
    fi
    ;;
esac
[[ -e $path ]] || die "$path: there is no such file or folder"
path=$(realpath -- "$path")

mkdir -p -- "$store" 2> /dev/null || die "cannot make the directory $store"
store=$(realpath -- "$store")
exec 9> "$store/.lock"                     # the same lock as build.sh
flock 9
temporary=$(mktemp -d "$store/.new-XXXXXX")
old=''
clean_up() { rm -rf --one-file-system -- "$temporary" ${old:+"$old"}; }
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

from=$transport:$path${reference:+:$reference}
skopeo copy --insecure-policy --quiet "$from" "oci:$temporary/layout:image" 9>&- >&2 || die "$from cannot be read"

# ---- its name and its settings, all checked before anything is written under them
/usr/bin/python3 - "$temporary" "$transport" "$path" "$reference" "$wanted" > "$temporary/name" << 'PYTHON' || exit 1
import datetime, json, os, platform, re, sys, tarfile
temporary, transport, path, reference, wanted = sys.argv[1:]
layout = temporary + "/layout"

def die(why):
    sys.exit("import.sh: " + why)

def blob(digest):
    match = re.fullmatch(r"sha256:([0-9a-f]{64})", digest)
    if not match:
        die("a digest of the image is not understood: %.80r" % digest)
    with open(layout + "/blobs/sha256/" + match[1], "rb") as file:
        return json.load(file)

index = json.load(open(layout + "/index.json"))
digest = index["manifests"][0]["digest"]
manifest = blob(digest)
image = blob(manifest["config"]["digest"])
names = {"x86_64": "amd64", "aarch64": "arm64"}
own = names.get(platform.machine(), platform.machine())
if image.get("os", "linux") != "linux" or image.get("architecture", own) != own:
    die("the image is for %s/%s, this machine is linux/%s" % (image.get("os"), image.get("architecture"), own))
references = []
if reference:
    references.append(reference)
elif transport == "docker-archive":
    with tarfile.open(path) as tar:
        for entry in json.load(tar.extractfile("manifest.json")):
            references += entry.get("RepoTags") or []
else:
    def refs(index):
        return [m.get("annotations", {}).get(k, "") for m in index.get("manifests", []) for k in ("io.containerd.image.name", "org.opencontainers.image.ref.name")]
    try:
        if transport == "oci":
            references += refs(json.load(open(path + "/index.json")))
        else:
            with tarfile.open(path) as tar:
                references += refs(json.load(tar.extractfile(next(n for n in tar.getnames() if n in ("index.json", "./index.json")))))
    except (OSError, StopIteration, KeyError, ValueError):
        pass
references = [r for r in references if r and re.fullmatch(r"[A-Za-z0-9._/:@-]{1,255}", r)]
name = wanted or (references[0].rsplit("/", 1)[-1].split("@")[0] if references else "")
if name and ":" not in name:
    name += ":latest"
if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", name):
    die("the image has no name that can be used here: give one, as --name NAME:TAG")
config = image.get("config") or {}

def texts(key):
    value = config.get(key) or []
    if not isinstance(value, list) or not all(isinstance(v, str) and "\0" not in v for v in value):
        die("%s of the image's configuration is no list of texts" % key)
    return value

def text(key):
    value = config.get(key) or ""
    if not isinstance(value, str):
        die("%s of the image's configuration is no text" % key)
    return value

out = {
    "schema_version": 1, "name": name.split(":")[0], "tag": name.split(":")[1], "architecture": own, "checksum": digest, "digest": digest,
    "created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "references": sorted(set(references)), "imported": True,
    "config": {"cmd": texts("Cmd"), "env": texts("Env"), "user": text("User"), "working_dir": text("WorkingDir") or "/", "entrypoint": texts("Entrypoint")},
}
json.dump(out, open(temporary + "/image.json", "w"), indent=2)
print(name)
PYTHON
name=$(< "$temporary/name")
final=$store/${name%%:*}/${name#*:}
in_use() { awk -v root="$final/rootfs" 'index($0, root) { found = 1 } END { exit !found }' /proc/self/mountinfo; }
! in_use || die "$name is in use: stop the containers that run from it first"

# ---- unpack
umoci unpack --image "$temporary/layout:image" "$temporary/bundle" 9>&- > "$temporary/log" 2>&1 || { tail -n 5 "$temporary/log" >&2; die "the layers of $from cannot be unpacked"; }
mv -T -- "$temporary/bundle/rootfs" "$temporary/rootfs"
rm -rf -- "$temporary/bundle" "$temporary/layout" "$temporary/log" "$temporary/name"
# Every file with type, mode, owner, size and time of change; directories without times, since mounting over them must not count.
list_files() {
  (cd "$1" && find . -mindepth 1 \( -type f -printf 'f %m %U:%G %s %Ts %p\n' \) -o \( -type l -printf 'l %U:%G %l %p\n' \) \
    -o -printf '%y %m %U:%G %p\n' | sort)
}
list_files "$temporary/rootfs" > "$temporary/manifest"
count=$(wc -l < "$temporary/manifest")
bytes=$(find "$temporary/rootfs" -type f -printf '%i %s\n' | sort -u | awk '{ sum += $2 } END { printf "%d\n", sum }')
db=none
if [[ -f $temporary/rootfs/var/lib/dpkg/status && ! -L $temporary/rootfs/var/lib/dpkg/status ]]; then db=$(sha256sum < "$temporary/rootfs/var/lib/dpkg/status" | cut -d' ' -f1); fi
/usr/bin/python3 -c '
import json, sys
path, count, size, db = sys.argv[1:]
image = json.load(open(path))
image.update(file_count=int(count), size_bytes=int(size), package_db_sha256=db)
json.dump(image, open(path, "w"), indent=2)' "$temporary/image.json" "$count" "$bytes" "$db"
gzip -n -9 "$temporary/manifest"
chmod 0755 "$temporary"
sync -f "$temporary"                       # the rename must not reach the disk before the files do
mkdir -p "$store/${name%%:*}"
if [[ -e $final ]]; then
  old=$store/.old-${temporary##*-}
  mv -T -- "$final" "$old"
fi
mv -T -- "$temporary" "$final"
temporary=$store/.none
say "image $name: $count files, $((bytes / 1000000)) MB"
echo "$final"
