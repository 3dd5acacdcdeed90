#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The image builder on a store of its own: a build from nothing, a second one that does nothing, refusals that leave nothing behind,
# damage that is noticed, an interrupted build, an image in use. Needs root, mmdebstrap and a Debian mirror; takes about 45 seconds of CPU time.
# Exit status 77 (skipped) without root or a mirror: neither is a defect of the builder.
set -uo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$source_dir/images/build.sh
failures=0 holder=''
((EUID == 0)) || { echo "image_test: skipped, must run as root"; exit 77; }
command -v mmdebstrap > /dev/null || { echo "image_test: skipped, mmdebstrap is missing"; exit 77; }
work=$(mktemp -d /var/tmp/fairlead-image-test-XXXXXX)
trap '[[ -z $holder ]] || kill "$holder" 2> /dev/null; rm -rf --one-file-system "$work"' EXIT
store=$work/store

expect() { # WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then echo "ok    $what"; else echo "FAIL  $what"; sed 's/^/      | /' "$work/err" | tail -n 12; failures=$((failures + 1)); fi
}
build() { "$build" "$@" > "$work/out" 2> "$work/err"; }
fails() { if build "$@"; then return 1; else [[ $? == 1 ]]; fi; }
says() { grep -qE -- "$1" "$work/err"; }
no_leftovers() { [[ -z $(find "$1" -mindepth 1 -maxdepth 1 \( -name '.tmp-*' -o -name '.old-*' \)) ]] && ! grep -q " $1/" /proc/mounts; }
recipe() { # NAME: a recipe of its own in $work/NAME; the text comes from stdin
  mkdir -p "$work/$1"
  cat > "$work/$1/recipe.yaml"
}

# ---- from nothing, then again

build "$source_dir/images/busybox" "$store"
built=$?
if ((built)) && says 'no network'; then echo "image_test: skipped, no Debian mirror: $(tail -n 1 "$work/err")"; exit 77; fi
image=$store/busybox/1
expect "busybox is built from nothing" test "$built" = 0
expect "the path of the image is the only output" test "$(cat "$work/out")" = "$image"
expect "progress counts steps and seconds" says '^step 7/7 .*: [0-9.]+ seconds$'
expect "image.json names the package with its version" grep -q '"name": "busybox-static"' "$image/image.json"
# shellcheck disable=SC2016
expect "the shell in it runs" test "$(chroot "$image/rootfs" /bin/sh -c 'echo $((6 * 7))')" = 42
expect "sleep, httpd and nc are there" chroot "$image/rootfs" /bin/sh -c 'command -v sleep && command -v httpd && command -v nc' > "$work/err" 2>&1
expect "the machine's name servers are not in it" test ! -s "$image/rootfs/etc/resolv.conf"
before=$(stat -c '%i %Y' "$image" "$image/image.json" "$image/rootfs")
build "$source_dir/images/busybox" "$store"
expect "a second build says that nothing is to do" says 'is up to date'
expect "a second build touches nothing" test "$before" = "$(stat -c '%i %Y' "$image" "$image/image.json" "$image/rootfs")"

# ---- two builds at once

digest() { sed -n 's/.*"digest": "\(.*\)".*/\1/p' "$image/image.json"; }
first_digest=$(digest) first_list=$(gzip -dc "$image/manifest.gz" | sha256sum)
"$build" "$source_dir/images/busybox" "$store" --force > /dev/null 2> "$work/err1" &
one=$!
"$build" "$source_dir/images/busybox" "$store" --force > /dev/null 2> "$work/err2" &
two=$!
wait "$one"; one=$?
wait "$two"; two=$?
expect "two builds at once both succeed" test "$one$two" = 00
expect "one of them waited for the other" grep -q 'another build works' "$work/err1" "$work/err2"
expect "--force builds again, to the same digest" test "$first_digest" = "$(digest)"
expect "and to the same files, sizes, modes and times" test "$first_list" = "$(gzip -dc "$image/manifest.gz" | sha256sum)"

# ---- verify

expect "--verify finds the image intact" build "$source_dir/images/busybox" "$store" --verify
mv "$image/rootfs/bin/busybox" "$work/busybox"
expect "--verify notices a removed file" fails "$source_dir/images/busybox" "$store" --verify
expect "and names it" says 'was: f .*\./bin/busybox'
mv "$work/busybox" "$image/rootfs/bin/busybox"
expect "--verify is content when it is back" build "$source_dir/images/busybox" "$store" --verify
chmod 0777 "$image/rootfs/etc/passwd"
expect "--verify notices a changed mode" fails "$source_dir/images/busybox" "$store" --verify
chmod 0644 "$image/rootfs/etc/passwd"
printf 'x' | dd of="$image/rootfs/etc/group" bs=1 conv=notrunc 2> /dev/null
expect "--verify notices changed content of the same size" fails "$source_dir/images/busybox" "$store" --verify
build "$source_dir/images/busybox" "$store" --force
expect "building again repairs it" build "$source_dir/images/busybox" "$store" --verify

# ---- refusals

recipe typo <<< 'name: typo
tag: "1"
suite: bookworm
pakages: [busybox-static]'
expect "an unknown key is refused" fails "$work/typo" "$work/new-store"
expect "and named" says "unknown key 'pakages'"
expect "nothing is left behind, not even the store" test ! -e "$work/new-store"
recipe no-package <<< 'name: broken
tag: "1"
suite: bookworm
variant: extract
packages: [no-such-package-in-debian]'
expect "a package that does not exist is refused" fails "$work/no-package" "$store"
expect "and named" says 'Unable to locate package no-such-package-in-debian'
expect "no half-built tree or mount is left" no_leftovers "$store"
expect "no image appears" test ! -e "$store/broken"
expect "the same in a store that did not exist" fails "$work/no-package" "$work/new-store"
expect "leaves no store" test ! -e "$work/new-store"
recipe bad-command <<< 'name: broken
tag: "1"
suite: bookworm
variant: extract
packages: [busybox-static]
shell: [/bin/busybox, sh, -euc]
commands: ["/bin/busybox ls /no/such/place"]'
expect "a command that fails ends the build" fails "$work/bad-command" "$store"
expect "and is shown with its error" says "command '/bin/busybox ls /no/such/place' failed: .*No such file"
expect "no half-built tree or mount is left" no_leftovers "$store"
expect "no image appears" test ! -e "$store/broken"
recipe bad-check <<< 'name: broken
tag: "1"
suite: bookworm
variant: extract
packages: [busybox-static]
shell: [/bin/busybox, sh, -euc]
checks: ["/bin/busybox touch /file"]'
expect "a check cannot write to the image" fails "$work/bad-check" "$store"
expect "and says so" says 'Read-only file system'
recipe too-big <<< 'name: broken
tag: "1"
suite: bookworm
disk_gb: 9000000
packages: [busybox-static]'
expect "too little disk is refused with the numbers" fails "$work/too-big" "$store"
expect "needs about N GB" says 'needs about 9000000.0 GB'
expect "no half-built tree is left" no_leftovers "$store"

# ---- a disk that fills up during the build: a small one of its own, unmounted as soon as the files in it are closed

small=$work/small
mkdir "$small"
full_disk() { # RECIPE, then what find shows of the store
  local status=0
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount -t tmpfs -o size=150m small "$1" || exit 9; "$2" "$3" "$1/store"; status=$?
    find "$1/store" -mindepth 1 ! -name .lock 2> /dev/null; exit $status' full "$small" "$build" "$work/$1" > "$work/out" 2> "$work/err" || status=$?
  ((status == 1)) && [[ ! -s $work/out ]]
}
one_sentence() { [[ $(grep -vcE '^(step |  [a-z])' "$work/err") == 1 ]]; }
recipe full <<< 'name: broken
tag: "1"
suite: bookworm
variant: extract
disk_gb: 0.1
packages: [busybox-static]
shell: [/bin/busybox, sh, -euc]
commands: [/bin/busybox cat /dev/zero > /big]'
expect "a build on a disk that fills up fails and leaves nothing" full_disk full
expect "says why" says '^image build: broken/1: the disk below .* is full: needs about 0.1 GB$'
expect "in one sentence" one_sentence
sed -i '/^commands/d' "$work/full/recipe.yaml"
expect "a step that fails where nobody looks ends the build" fails "$work/full" "$store" --log /dev/full
expect "and is named" says '^image build: broken/1: store as '
expect "no half-built tree or mount is left" no_leftovers "$store"

# ---- killed in the middle

recipe slow <<< 'name: broken
tag: "1"
suite: bookworm
variant: extract
packages: [busybox-static]
shell: [/bin/busybox, sh, -euc]
commands: ["echo $$ > /started; exec /bin/busybox sleep 600"]'
started() { compgen -G "$store/.tmp-*/rootfs/started" > /dev/null; }
wait_for() { local i; for ((i = 0; i < 600; i++)); do "$@" && return 0; read -rt 0.1 <> <(:) || true; done; return 1; }
for signal in TERM KILL; do
  "$build" "$work/slow" "$store" > /dev/null 2> "$work/err" &
  victim=$!
  expect "a slow build starts" wait_for started
  sleeper=$(pgrep -f '^/bin/busybox sleep 600$' | head -n 1)
  kill "-$signal" "$victim"
  wait "$victim" 2> /dev/null
  expect "SIG$signal ends it with an error" test "$?" != 0
  if [[ $signal == TERM ]]; then
    expect "and removes its tree" no_leftovers "$store"
    expect "and its processes" wait_for test ! -e "/proc/${sleeper:-none}"   # killed, then reaped by init
  else
    [[ -z $sleeper ]] || kill -KILL "$sleeper"         # nobody can clean up after SIGKILL; its child still holds the store
    expect "the next build works" build "$source_dir/images/busybox" "$store" --force
    expect "and removes what the killed one left" no_leftovers "$store"
  fi
done

# ---- in use

mkdir "$work"/{upper,work,merged}
# shellcheck disable=SC2016
unshare --mount /bin/bash -c 'mount -t tmpfs t "$1/upper" && mkdir "$1/upper"/{u,w} &&
  mount -t overlay overlay -o "lowerdir=$2/rootfs,upperdir=$1/upper/u,workdir=$1/upper/w" "$1/merged" && : > "$1/mounted" && exec sleep 600' in_use "$work" "$image" &
holder=$!
expect "a container mounts the image" wait_for test -e "$work/mounted"
expect "an image in use is not replaced" fails "$source_dir/images/busybox" "$store" --force
expect "and the reason is told" says 'running containers use it'
kill "$holder"
wait "$holder" 2> /dev/null
holder=''
expect "once it is free it is" build "$source_dir/images/busybox" "$store" --force

if ((failures)); then echo "image_test: $failures failed"; exit 1; fi
echo "image_test: all passed"
