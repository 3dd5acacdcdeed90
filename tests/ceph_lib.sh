# SPDX-License-Identifier: Apache-2.0
# A Ceph of one's own for tests: one monitor, one manager, one OSD (BlueStore on a sparse file), on loopback, with cephx. Sourced.
#   ceph_start FOLDER [SIZE]   starts it and waits until the pool `volumes` takes writes; then FOLDER/ceph.conf, and FOLDER/keyring of client.fairlead, who may use the namespace `fairlead` of that pool alone
#   ceph_stop                  ends what was started; always to be called, by a trap
# Its processes are known by their ids, and end with the machine at the latest: nothing of it is under /etc, /var or systemd.
ceph_pids=() ceph_folder=
ceph_missing() {
  local one
  for one in ceph-mon ceph-mgr ceph-osd ceph ceph-authtool monmaptool rbd; do command -v "$one" > /dev/null || { echo "$one"; return; }; done
}
ceph_admin() { ceph --conf "$ceph_folder/ceph.conf" --name client.admin --keyring "$ceph_folder/admin.keyring" --connect-timeout 20 "$@"; }
rbd_admin() { rbd --conf "$ceph_folder/ceph.conf" --name client.admin --keyring "$ceph_folder/admin.keyring" "$@"; }
# ceph_wait SECONDS WHAT COMMAND...
ceph_wait() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" > /dev/null 2>&1; do
    [ "$SECONDS" -lt "$until" ] || { echo "ceph: $what: not after a while" >&2; tail -n 5 "$ceph_folder"/log/*.log >&2 || true; return 1; }
    sleep 0.2
  done
}
ceph_is_active() {
  local now
  now=$(ceph_admin pg stat 2> /dev/null) && [[ $now == *active+clean* && $now != *unknown* && $now != *creating* && $now != *peering* ]]
}
ceph_start() {
  local size=${2:-24G} fsid port
  ceph_folder=$1
  mkdir -p "$ceph_folder"/{mon,mgr,osd,log,run}
  fsid=$(cat /proc/sys/kernel/random/uuid)
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  cat > "$ceph_folder/ceph.conf" << CONF
[global]
fsid = $fsid
mon host = v2:127.0.0.1:$port
mon initial members = a
public network = 127.0.0.0/8
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
mon data avail crit = 1
paxos propose interval = 0.1
auth allow insecure global id reclaim = false
log file = $ceph_folder/log/\$name.log
run dir = $ceph_folder/run
admin socket = $ceph_folder/run/\$name.\$pid.asok
crash dir = $ceph_folder/log
[client.admin]
keyring = $ceph_folder/admin.keyring
[client]
log file =
admin socket =
[mon]
mon data = $ceph_folder/mon
[mgr]
mgr data = $ceph_folder/mgr
mgr initial modules =
[osd]
osd data = $ceph_folder/osd
osd objectstore = bluestore
bluestore block size = $(numfmt --from=iec "$size")
bluestore cache autotune = false
bluestore cache size = 268435456
osd memory target = 939524096
osd mclock profile = high_client_ops
osd snap trim sleep hdd = 0
osd snap trim sleep hybrid = 0
CONF
  (
    umask 077
    cd "$ceph_folder"
    ceph-authtool --create-keyring mon.keyring --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool --create-keyring admin.keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    ceph-authtool mon.keyring --import-keyring admin.keyring
    monmaptool --create --addv a "[v2:127.0.0.1:$port]" --fsid "$fsid" monmap
    ceph-mon --conf ceph.conf --mkfs -i a --monmap monmap --keyring mon.keyring
  ) > "$ceph_folder/log/setup.txt" 2>&1 || { cat "$ceph_folder/log/setup.txt" >&2; return 1; }
  ceph-mon --conf "$ceph_folder/ceph.conf" -i a -f > "$ceph_folder/log/mon.out" 2>&1 &
  ceph_pids+=($!)
  ceph_wait 30 'a monitor that answers' ceph_admin status || return 1
  ceph_admin auth get-or-create mgr.a mon 'allow profile mgr' osd 'allow *' mds 'allow *' > "$ceph_folder/mgr/keyring" || return 1
  ceph-mgr --conf "$ceph_folder/ceph.conf" -i a -f > "$ceph_folder/log/mgr.out" 2>&1 &
  ceph_pids+=($!)
  local uuid
  uuid=$(cat /proc/sys/kernel/random/uuid)
  ceph_admin osd new "$uuid" 0 > /dev/null 2>&1 || return 1
  ceph_admin auth get-or-create osd.0 mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' > "$ceph_folder/osd/keyring" || return 1
  ceph-osd --conf "$ceph_folder/ceph.conf" -i 0 --mkfs --osd-uuid "$uuid" --keyring "$ceph_folder/osd/keyring" > "$ceph_folder/log/mkfs.out" 2>&1 || { tail -n 5 "$ceph_folder/log/mkfs.out" >&2; return 1; }
  ceph_start_osd
  ceph_admin osd pool create volumes 8 8 > /dev/null 2>&1 || return 1
  ceph_wait 60 'a pool that is active' ceph_is_active || return 1
  rbd_admin pool init volumes || return 1
  rbd_admin namespace create --pool volumes --namespace fairlead || return 1
  (umask 077 && ceph_admin auth get-or-create client.fairlead mon 'profile rbd' osd 'profile rbd pool=volumes namespace=fairlead' > "$ceph_folder/keyring") || return 1
  # For the suite of the pool, which makes namespaces.
  (umask 077 && ceph_admin auth get-or-create client.suite mon 'profile rbd' osd 'profile rbd pool=volumes' > "$ceph_folder/suite.keyring") || return 1
  printf '[client.fairlead]\nkeyring = %s/keyring\n[client.suite]\nkeyring = %s/suite.keyring\n' "$ceph_folder" "$ceph_folder" >> "$ceph_folder/ceph.conf"
}
ceph_start_osd() {
  ceph-osd --conf "$ceph_folder/ceph.conf" -i 0 -f > "$ceph_folder/log/osd.out" 2>&1 &
  ceph_osd_pid=$!
  ceph_pids+=("$ceph_osd_pid")
}
ceph_stop() {
  local pid
  for pid in "${ceph_pids[@]}"; do kill -9 "$pid" 2> /dev/null || true; done
  for pid in "${ceph_pids[@]}"; do wait "$pid" 2> /dev/null || true; done
  ceph_pids=()
}
