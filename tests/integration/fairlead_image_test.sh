#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The OCI images of our programs: complete, readable by others' tools, no more rights and no more files than needed, the same bytes when built again.
set -euo pipefail
build=$(realpath "${1:?usage: fairlead_image_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
for tool in umoci skopeo; do command -v $tool > /dev/null || { echo "skipped: $tool is missing (tools/packages-test.txt)"; exit 77; }; done
((EUID == 0)) || { echo 'skipped: needs root'; exit 77; }
work=$(mktemp -d "$build/fairlead-image-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
ok() { echo "ok: $*"; }
export SOURCE_DATE_EPOCH=1700000000 SOURCE_REVISION=0123456789abcdef0123456789abcdef01234567
version=$(sed -nE 's/^project\(fairlead VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)

images/fairlead/build.sh "$build" "$work/a" 2> "$work/log" || { cat "$work/log" >&2; fail 'building the images'; }
(cd "$work/a" && sha256sum --quiet -c sha256sums) || fail 'sha256sums do not fit'
for name in fairlead-server fairlead-agent fairlead-volumes fairlead; do
  skopeo inspect --config "oci:$work/a/$name:$version" > "$work/config.json"
  skopeo inspect --config "docker-archive:$work/a/$name.docker.tar" > "$work/docker.json"
  umoci unpack --image "$work/a/$name:$version" "$work/$name" > /dev/null 2>&1 || fail "umoci does not unpack $name"
  python3 - "$name" "$version" "$work" << 'PYTHON'
import json, os, stat, sys
name, version, work = sys.argv[1:]
config, docker = (json.load(open(f"{work}/{part}.json")) for part in ("config", "docker"))
wanted = "0:0" if name in ("fairlead-agent", "fairlead-volumes") else "65532:65532"
for of in (config, docker):
    assert of["config"]["User"] == wanted, of["config"]["User"]
    assert of["config"]["Entrypoint"] == [f"/usr/bin/{name}"], of["config"]["Entrypoint"]
    assert of["config"]["Labels"]["org.opencontainers.image.version"] == version
    assert of["created"].startswith("2023-11-14T22:13:20"), of["created"]
assert config["rootfs"]["diff_ids"] == docker["rootfs"]["diff_ids"]
programs, root = [], f"{work}/{name}/rootfs"
for folder, _, files in os.walk(root):
    for file in files:
        facts = os.lstat(os.path.join(folder, file))
        if stat.S_ISREG(facts.st_mode):
            assert not facts.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH), (folder, file)
            # Plug-ins of the C library carry the x bit; what one can start lies in a bin folder.
            if os.path.basename(folder) in ("bin", "sbin"):
                programs.append(file)
file_systems = ["blkid", "cryptsetup", "dumpe2fs", "e2fsck", "mke2fs", "mkfs.xfs", "mount", "resize2fs", "xfs_growfs"]
expected = {"fairlead-agent": ["fairlead-agent", "fairlead-slurm"], "fairlead-volumes": sorted(["fairlead-csi", "fairlead-disk", "fairlead-volumes"] + file_systems)}.get(name, [name])
assert sorted(programs) == expected, f"{name} holds programs beside its own: {programs}"
sbom = json.load(open(f"{work}/a/{name}.spdx.json"))
assert {"libc6", "libssl3", name} <= {package["name"] for package in sbom["packages"]}
assert len({package["SPDXID"] for package in sbom["packages"]}) == len(sbom["packages"])
PYTHON
  ok "$name: user, labels, programs, package list; umoci and skopeo agree"
done

images/fairlead/build.sh "$build" "$work/b" --only fairlead-server 2> "$work/log" || { cat "$work/log" >&2; fail 'building again'; }
diff <(grep -E ' fairlead-server[./]' "$work/a/sha256sums") "$work/b/sha256sums" || fail 'a second build has other bytes'
ok 'a second build has the same bytes'

mkdir -p "$work/none/bin"
if images/fairlead/build.sh "$work/none" "$work/c" 2> "$work/log"; then fail 'built without programs'; fi
grep -q 'fairlead-server is not built' "$work/log" || fail "no reason: $(cat "$work/log")"
[[ -z $(ls -A "$work/c") ]] || fail 'a failed build left something behind'
ok 'a failed build says why and leaves nothing'
