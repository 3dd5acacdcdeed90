# SPDX-License-Identifier: Apache-2.0
# To be sourced.
# link_but FROM TO PATH...: the folder FROM as a tree of hard links, without these paths beneath it.
link_but() {
  local from=$1 to=$2 entry path deeper
  shift 2
  mkdir "$to"
  chown --reference="$from" "$to"
  chmod --reference="$from" "$to"
  for entry in "$from"/* "$from"/.[!.]*; do
    [ -e "$entry" ] || [ -L "$entry" ] || continue
    deeper=()
    for path in "$@"; do
      case $path in
        "${entry##*/}") continue 2 ;;
        "${entry##*/}"/*) deeper+=("${path#*/}") ;;
      esac
    done
    if [ ${#deeper[@]} = 0 ]; then cp -al "$entry" "$to/"; else link_but "$entry" "$to/${entry##*/}" "${deeper[@]}"; fi
  done
}
# image_but IMAGES NAME TAG PATH...: beside the image slurm:22.05 in the folder IMAGES, the same under another name, without these paths.
image_but() {
  local from=$1/slurm/22.05 at=$1/$2/$3
  mkdir -p "$at"
  link_but "$from/rootfs" "$at/rootfs" "${@:4}"
  cp -l "$from/manifest.gz" "$at/"
  sed "s/\"name\": \"slurm\"/\"name\": \"$2\"/; s/\"tag\": \"22.05\"/\"tag\": \"$3\"/" "$from/image.json" > "$at/image.json"
}
# slim_image IMAGES NAME TAG: one for a shared root, without PyTorch and what else would only take time to copy. Its file /usr/share/image-of says "image TAG".
slim_image() {
  local rootfs=$1/$2/$3/rootfs
  image_but "$@" usr/lib/python3/dist-packages/{torch,torchgen,functorch,sympy,numpy,mpmath,hypothesis} usr/share/{doc,mime,X11,libwacom,gdal,openmpi}
  find "$rootfs/usr/lib" -type f -size +2M ! -name 'libcrypto*' ! -name 'libslurm*' ! -name 'libperl*' ! -name 'libstdc++*' ! -name 'libgnutls*' ! -name 'libapt*' -delete
  echo "image $3" > "$rootfs/usr/share/image-of"
}
# training_image IMAGES NAME TAG: one with PyTorch, without what that does not load.
training_image() { image_but "$@" usr/lib/python3/dist-packages/{sympy,mpmath,hypothesis,pip} usr/share/{doc,mime,X11,libwacom,gdal,openmpi,perl,icons} usr/lib/x86_64-linux-gnu/{dri,libLLVM-15.so.1,mfx,libz3.so.4} usr/lib/gcc; }
# clock_image IMAGES TAG SECONDS: slurm:TAG for munge, with a clock that is so much ahead: that of time(2), which is all that munge asks. No namespace of Linux has such a clock of its own.
clock_image() {
  local rootfs=$1/slurm/$2/rootfs
  image_but "$1" slurm "$2" usr/lib/python3 usr/share var/lib/dpkg
  cc -shared -fPIC -O1 -x c -o "$rootfs/usr/lib/clock.so" - << TEXT
#include <time.h>
time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += $3;
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
TEXT
  echo /usr/lib/clock.so > "$rootfs/etc/ld.so.preload"
}
