#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds one node image from a recipe into the local image store, or checks one that is there.
#
#   build.sh RECIPE_DIR STORE_DIR [--force] [--log FILE]     build, unless the same recipe was built before
#   build.sh RECIPE_DIR STORE_DIR --verify                   is the stored image still what was built?
#
# Result: STORE_DIR/<name>/<tag>/{rootfs/,image.json,manifest.gz}, complete or not there at all. Its path goes to stdout, progress and
# errors to stderr. Exit status: 0 done or already there, 1 failed (one sentence says why; nothing is left behind), 2 wrong usage.
set -euo pipefail
# Descriptors that a caller left open (ctest's log, a lock) confuse apt inside mmdebstrap: "downloading packages" then fails. 255 is bash's own.
for descriptor in /proc/self/fd/*; do
  descriptor=${descriptor##*/}
  if ((descriptor > 2 && descriptor != 255)); then eval "exec $descriptor>&-"; fi
done
unset descriptor
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
recipe_py=$here/recipe.py
recipe_dir='' store='' action=build force=no keep_log=''
temporary='' child='' step=0 step_title='prepare' log=/dev/null
readonly steps=7

usage() { sed -n '4,5s/^#   /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2; }
told=no
die() { told=yes; printf 'image build: %s\n' "$*" >&2; exit 1; }
say() { printf '%s\n' "$*" >&2; }

# ---- what the user asked for

while (($#)); do
  case $1 in
    --force) force=yes ;;
    --verify) action=verify ;;
    --log) (($# > 1)) || usage; keep_log=$2; shift ;;
    -h | --help) usage ;;
    -*) say "image build: unknown option $1"; usage ;;
    *) if [[ -z $recipe_dir ]]; then recipe_dir=$1; elif [[ -z $store ]]; then store=$1; else usage; fi ;;
  esac
  shift
done
[[ -n $recipe_dir && -n $store ]] || usage
((EUID == 0)) || die "must run as root, because it makes a root file system: run it with sudo"
store=$(realpath -m -- "$store")
assignments=$(/usr/bin/python3 "$recipe_py" shell "$recipe_dir" 2>&1) || die "$assignments"
declare -a recipe_packages recipe_dpkg_exclude recipe_dpkg_include recipe_commands recipe_checks recipe_shell recipe_users
declare -a recipe_sources recipe_targets recipe_modes recipe_owners
declare recipe_name recipe_tag recipe_suite recipe_variant recipe_disk_mb
eval "$assignments"                        # quoted by shlex: data cannot become code
image=$recipe_name/$recipe_tag
final=$store/$image

# ---- facts about an image tree

# Every file with type, mode, owner, size and time of change; directories without times, since mounting over them must not count.
list_files() {
  (cd "$1" && find . -mindepth 1 \( -type f -printf 'f %m %U:%G %s %Ts %p\n' \) -o \( -type l -printf 'l %U:%G %l %p\n' \) \
    -o -printf '%y %m %U:%G %p\n' | sort)
}
file_count() { wc -l < "$1"; }
size_bytes() { find "$1" -type f -printf '%i %s\n' | sort -u | awk '{ sum += $2 } END { printf "%d\n", sum }'; }      # a file with two names counts once
package_db_sha256() { if [[ -f $1/var/lib/dpkg/status ]]; then sha256sum < "$1/var/lib/dpkg/status" | cut -d' ' -f1; else echo none; fi; }
json_value() { /usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2], ""))' "$1" "$2" 2> /dev/null || true; }

# What decides whether a stored image is still good: the recipe, the files that it copies, the builder, the machine's architecture.
checksum() {
  local source
  {
    dpkg --print-architecture
    sha256sum < "$recipe_dir/recipe.yaml"
    for source in "${recipe_sources[@]}"; do printf '%s ' "$source"; sha256sum < "$recipe_dir/$source"; done
    sha256sum < "$recipe_py"
    sha256sum < "${BASH_SOURCE[0]}"
  } | sha256sum | cut -d' ' -f1
}

verify() {
  [[ -f $final/image.json && -d $final/rootfs && -f $final/manifest.gz ]] || die "$image is not in $store: build it first"
  local differences found bytes
  now=$(mktemp)
  trap 'rm -f "$now"' EXIT                 # `now` is global: the trap runs after this function
  list_files "$final/rootfs" > "$now"
  bytes=$(size_bytes "$final/rootfs")
  differences=$(diff <(gzip -dc "$final/manifest.gz") "$now" | sed -n -e 's/^< /  was: /p' -e 's/^> /  now: /p') || true
  for found in "file_count $(file_count "$now")" "size_bytes $bytes" "package_db_sha256 $(package_db_sha256 "$final/rootfs")"; do
    [[ $(json_value "$final/image.json" "${found%% *}") == "${found#* }" ]] || differences+=$'\n'"  ${found%% *} is ${found#* } now"
  done
  if [[ -n $differences ]]; then
    sed '/^$/d' <<< "$differences" | head -n 10 >&2
    die "$image in $store is damaged ($(grep -c . <<< "$differences") differences, the first of them above): build it again with --force"
  fi
  say "image $image is intact: $(file_count "$now") files, $((bytes / 1000000)) MB"
}

if [[ $action == verify ]]; then verify; echo "$final"; exit 0; fi

# ---- nothing to do?

for tool in mmdebstrap flock unshare gzip; do
  command -v "$tool" > /dev/null || die "the program $tool is missing: apt-get install mmdebstrap util-linux gzip"
done
store_is_new=no
[[ -d $store ]] || store_is_new=yes
mkdir -p -- "$store" 2> /dev/null || die "cannot make the directory $store"
exec 9> "$store/.lock"                     # children inherit it: a build whose parent was killed still keeps others out until it ends
if ! flock -n 9; then
  say "image $image: another build works in $store, waiting for it"
  flock 9
fi
wanted=$(checksum)
is_current() { [[ -d $final/rootfs && -f $final/manifest.gz && $(json_value "$final/image.json" checksum) == "$wanted" ]]; }
if [[ $force == no ]] && is_current; then
  say "image $image is up to date in $store"
  echo "$final"
  exit 0
fi
in_use() { grep -qsE -- "$final/rootfs([ ,:/]|\$)" /proc/[0-9]*/mountinfo; }
! in_use || die "$image must be built again but running containers use it: stop them first (fairlead down)"

# ---- clean up whatever happens

remove_tree() {
  local mounted
  # A mount that was left below the tree would let rm reach the machine's own files.
  while read -r mounted; do umount -l -- "$mounted" 2> /dev/null || true; done < <(awk -v root="$1/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r)
  rm -rf --one-file-system -- "$1"
}
clean_up() {
  local status=$? rounds=0
  trap - EXIT INT TERM HUP
  # A command that failed where nobody looked, such as a list that a full disk did not take: one sentence all the same.
  ((status == 0)) || [[ $told == yes ]] || (explain "$step_title") || true
  if [[ -n $child ]]; then
    kill -TERM -- "-$child" 2> /dev/null || true
    while kill -0 -- "-$child" 2> /dev/null && ((rounds++ < 100)); do read -rt 0.05 <> <(:) || true; done
    kill -KILL -- "-$child" 2> /dev/null || true
  fi
  [[ -z $temporary ]] || remove_tree "$temporary"
  if ((status)) && [[ $store_is_new == yes ]]; then rm -f "$store/.lock"; rmdir --ignore-fail-on-non-empty -- "$store" 2> /dev/null || true; fi
  exit "$status"
}
trap clean_up EXIT
trap 'told=yes; say "image build: $image: interrupted"; exit 1' INT TERM HUP
for leftover in "$store"/.tmp-* "$store"/.old-*; do [[ ! -e $leftover ]] || remove_tree "$leftover"; done   # of a build that was killed; we hold the lock

# ---- steps

begin() {
  ((++step))
  step_title=$1 step_start=$EPOCHREALTIME
  say "step $step/$steps $step_title"
}
since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }
end() { say "step $step/$steps $step_title: $(since "$step_start") seconds"; }

# Runs a command in a process group of its own, so that an interrupted build leaves no process; its output goes to the log.
run() {
  setsid "$@" < /dev/null >> "$log" 2>&1 9>&9 &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=''
  return "$status"
}

# One sentence out of a long log: what the user can do something about comes first.
explain() {
  local last
  last=$(grep -E '^(E|W|Err|dpkg|mmdebstrap|sh|[a-z./-]+): |[Ee]rror|cannot|not found|failed' "$log" | grep -vE '^W: skipping|^I: ' | tail -n 1 | cut -c1-300) || true
  # The log is on that disk too and may have lost the very line that says so.
  if grep -qE 'No space left on device' "$log" || (($(df --output=avail --block-size=1000000 -- "$store" | tail -n 1) < 16)); then
    die "$image: the disk below $store is full: needs about $(gigabytes "$recipe_disk_mb") GB"
  elif grep -qE 'Could not resolve|Temporary failure|Could not connect|Unable to connect|Cannot initiate the connection|Connection (refused|timed out)|Network is unreachable' "$log"; then
    die "$image: no network: the Debian mirror of this machine's apt configuration cannot be reached ($(grep -oE "(Could not resolve|Could not connect to|Unable to connect to|Temporary failure resolving|Cannot initiate the connection to) '?[^ ']*" "$log" | tail -n 1))"
  elif grep -q 'Unable to locate package' "$log"; then
    die "$image: $(grep -m1 -o 'Unable to locate package.*' "$log"): the suite $recipe_suite does not have it"
  fi
  die "$image: $1: ${last:-$(tail -n 1 "$log")}"
}
gigabytes() { awk -v mb="$1" 'BEGIN { printf "%.1f", mb / 1000 }'; }

# The machine's own Debian sources for a suite, its updates and its security updates; nothing where it has none (then mmdebstrap's default serves).
debian_sources() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(SIGNED_BY)' 'Created-By: Packages' 2> /dev/null |
    awk -F'|' -v suite="$1" '
      ($2 == suite || $2 == suite "-updates" || $2 == suite "-security") && $3 == "main" && ($4 == "Debian" || $4 == "") && !seen[$1 $2]++ {
        option = ($5 ~ /^\// && $5 !~ /debian-archive/) ? "[signed-by=" $5 "] " : ""
        print "deb " option $1 " " $2 " " $3
      }'
}
# Proxy, certificates, time-outs and validity rules of the machine's apt, as an apt.conf.
apt_settings() { apt-config dump 2> /dev/null | grep -E '^Acquire::(http|https|ftp)::|^Acquire::(Retries|Check-Valid-Until|Check-Date|ForceIPv[46])|^Acquire::[a-z]+::Proxy' | grep -v ' "";$' || true; }

# Runs a shell command line in the new root with no network, its own processes and a throw-away /tmp.
in_root() {
  local access=$1 line=$2
  # shellcheck disable=SC2016
  run unshare --mount --pid --net --ipc --uts --fork --kill-child /bin/bash -euc '
    root=$1 access=$2; shift 2
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    [[ $access == write ]] || mount -o remount,bind,ro "$root"
    hostname image-build
    cd "$root"
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$root" "$@"' \
    in_root "$root" "$access" "${recipe_shell[@]}" "cd /; $line"
}

build_start=$EPOCHREALTIME started_at=$EPOCHSECONDS

begin "check disk and sources"
available_mb=$(df --output=avail --block-size=1000000 -- "$store" | tail -n 1)
((available_mb >= recipe_disk_mb)) ||
  die "$image: not enough disk: $store has $(gigabytes "$available_mb") GB free, needs about $(gigabytes "$recipe_disk_mb") GB"
temporary=$(mktemp -d "$store/.tmp-XXXXXX")
chmod 0755 "$temporary"
root=$temporary/rootfs log=$temporary/log
: > "$log"
mapfile -t sources < <(debian_sources "$recipe_suite")
((${#sources[@]})) || say "  this machine's apt knows no Debian $recipe_suite: taking mmdebstrap's default mirror"
end

begin "install ${#recipe_packages[@]} packages and what they need ($recipe_variant, $recipe_suite)"
options=(--mode=root --format=directory "--variant=$recipe_variant")
apt_settings > "$temporary/apt.conf"
[[ ! -s $temporary/apt.conf ]] || options+=("--aptopt=$temporary/apt.conf")
for pattern in "${recipe_dpkg_exclude[@]}"; do options+=("--dpkgopt=path-exclude=$pattern"); done
for pattern in "${recipe_dpkg_include[@]}"; do options+=("--dpkgopt=path-include=$pattern"); done
! printf '%s\n' "${sources[@]}" | grep -qE ' (file|copy):' || options+=(--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount)
# Users get their numbers before a package can choose one.
printf '%s\n' "${recipe_users[@]}" | sed '/^$/d' > "$temporary/users"
export temporary
if [[ $recipe_variant == minbase ]]; then
  # shellcheck disable=SC2016
  options+=(--essential-hook='
    while IFS=: read -r name id home comment; do
      echo "$name:*:$id:$id:$comment:$home:/usr/sbin/nologin" >> "$1/etc/passwd"
      echo "$name:x:$id:" >> "$1/etc/group"
    done < "$temporary/users"')
else
  # shellcheck disable=SC2016
  options+=(--extract-hook='for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -W --showformat="\${Package} \${Version}\n" "$deb"; done > "$temporary/packages"')
fi
includes=$(IFS=,; echo "${recipe_packages[*]}")
# Its stages are shown as they come, so that a minute of silence does not look like a hang.
exec 8> >(tee -a "$log" 2> /dev/null | sed -unE '/running --/d; s/^I: (running|downloading|extracting|installing|cleaning)(.*)$/  \1\2/p' >&2)
setsid mmdebstrap "${options[@]}" ${includes:+"--include=$includes"} "$recipe_suite" "$root" "${sources[@]}" < /dev/null >&8 2>&1 &
child=$!
exec 8>&-
status=0
wait "$child" || status=$?
child=''
((status == 0)) || explain "installing packages"
if [[ $recipe_variant == minbase ]]; then
  # shellcheck disable=SC2016
  dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package} ${Version}\n' > "$temporary/packages"
  # mmdebstrap kept packages from starting services and takes its own rule away; this one holds for what users install later.
  printf '#!/bin/sh\n# No service starts by itself in a container.\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
  chmod 0755 "$root/usr/sbin/policy-rc.d"
fi
end

begin "copy ${#recipe_sources[@]} files"
mkdir -p "$root"/{proc,sys,dev,run,tmp,etc}
for i in "${!recipe_sources[@]}"; do
  IFS=: read -r owner group <<< "${recipe_owners[i]}"
  install -D -o "$owner" -g "$group" -m "${recipe_modes[i]}" -- "$recipe_dir/${recipe_sources[i]}" "$root${recipe_targets[i]}" 2>> "$log" ||
    explain "copying ${recipe_sources[i]}"
done
end

begin "run ${#recipe_commands[@]} commands in the new root"
find "$root/tmp" "$root/run" -mindepth 1 -delete
for line in "${recipe_commands[@]}"; do
  echo "+ $line" >> "$log"
  in_root write "$line" || explain "the command '$line' failed"
done
end

begin "remove keys, names and caches of the build"
# Keys that packages generate would be the same in every cluster built from this image; the machine's own names and proxy do not belong in it either.
rm -f "$root"/etc/ssh/ssh_host_*_key "$root"/etc/ssh/ssh_host_*_key.pub "$root"/etc/munge/munge.key "$root"/var/lib/dbus/machine-id
rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/{passwd,group,shadow,gshadow,subuid,subgid}- "$root"/var/lib/dpkg/*-old "$root"/var/cache/debconf/*-old
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/ldconfig/aux-cache "$root"/var/log/{apt,dpkg.log,alternatives.log,bootstrap.log}
[[ $recipe_variant == minbase ]] || rm -rf "$root"/etc/{apt,dpkg,fstab} "$root"/var/{lib/apt,lib/dpkg,cache/apt}
: > "$root/etc/resolv.conf"
echo localhost > "$root/etc/hostname"
chmod 0644 "$root"/etc/{resolv.conf,hostname}
[[ -e $root/etc/hosts ]] || printf '127.0.0.1 localhost\n::1 localhost\n' > "$root/etc/hosts"
[[ ! -e $root/etc/machine-id ]] || : > "$root/etc/machine-id"
# Files that the build itself wrote get the time of the newest packaged file: two builds of the same packages look the same.
newest=$(find "$root" -type f ! -newermt "@$started_at" -printf '%Ts\n' | sort -n | tail -n 1)
find "$root" -newermt "@$((started_at - 1))" -exec touch -h -d "@${newest:-0}" {} +
end

begin "check the result (${#recipe_checks[@]} checks)"
for line in "${recipe_checks[@]}"; do
  echo "+ $line" >> "$log"
  in_root read "$line" || explain "the check '$line' failed"
done
end

begin "store as $final"
list_files "$root" > "$temporary/manifest"
count=$(file_count "$temporary/manifest") bytes=$(size_bytes "$root")
/usr/bin/python3 "$recipe_py" metadata "$recipe_dir" --packages "$temporary/packages" --architecture "$(dpkg --print-architecture)" --checksum "$wanted" \
  --created "$started_at" --build-seconds "$(printf '%.0f' "$(since "$build_start")")" --size-bytes "$bytes" --file-count "$count" \
  --package-db-sha256 "$(package_db_sha256 "$root")" > "$temporary/image.json" 2>> "$log" || explain "writing image.json"
gzip -n -9 "$temporary/manifest"
[[ -z $keep_log ]] || cp -- "$log" "$keep_log"
rm -f "$log" "$temporary"/{apt.conf,users,packages}
sync -f "$temporary"                       # the rename must not reach the disk before the files do
! in_use || die "$image was put to use while it was being built: stop the containers and build again"
mkdir -p "$store/$recipe_name"
old=''
if [[ -e $final ]]; then
  old=$store/.old-${temporary##*-}
  mv -T -- "$final" "$old"
fi
mv -T -- "$temporary" "$final"
temporary=$old                             # removed on the way out
end
say "image $image: $count files, $((bytes / 1000000)) MB, built in $(since "$build_start") seconds"
echo "$final"
