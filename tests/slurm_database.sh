#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Beside the machine of tests/slurm_machine.sh: the real MariaDB and slurmdbd under our companion, at 10.99.0.1. To be sourced after it and `make_machine`.
# shellcheck disable=SC2154 # $work and $root are of tests/slurm_machine.sh
database_root=$work/database
database_job='' # our child: it ends with all that it started
slurmdbd_job=''

# Lines of slurm.conf for those who keep records in it.
accounting_lines() { printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=10.99.0.1 AccountingStoragePort=6819; }

# prepare_database BUILD_DIR: the image under an overlay, a certificate that signs itself and a password, as the operator makes them.
prepare_database() {
  local image=/var/lib/fairlead/images/mariadb top out
  top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  out=$("$top/images/build.sh" "$top/images/mariadb" /var/lib/fairlead/images 2>&1) || { printf '%s\n' "$out" 'FAIL: the image mariadb was not built' >&2; exit 1; }
  mkdir -p "$work/over-database" "$database_root"
  mount -t tmpfs -o size=2g over "$work/over-database"
  mkdir "$work/over-database"/{upper,work}
  mount -t overlay -o "lowerdir=$image/$(ls "$image" | head -n 1)/rootfs,upperdir=$work/over-database/upper,workdir=$work/over-database/work" overlay "$database_root"
  mount --rbind /proc "$database_root/proc"
  mount --rbind /dev "$database_root/dev"
  mount -t tmpfs run "$database_root/run"
  mkdir -p "$database_root"/{opt/fairlead/bin,etc/fairlead/database,run/mysqld,var/lib/mysql,var/backups/accounting} "$root/etc/fairlead/database"
  cp "$1/bin/fairlead-slurm" "$database_root/opt/fairlead/bin/"
  (
    umask 077
    cd "$database_root/etc/fairlead/database"
    head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' > password
    chroot "$database_root" openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=database -addext 'subjectAltName=IP:10.99.0.1' \
      -keyout /etc/fairlead/database/tls.key -out /etc/fairlead/database/tls.crt 2> "$work/certificate.log"
    cp tls.crt ca.crt
    cp password ca.crt "$root/etc/fairlead/database/"
  ) || fail 'no certificate was made'
}
sql() { chroot "$database_root" mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -N -e "$1"; }
database_answers() { chroot "$database_root" /opt/fairlead/bin/fairlead-slurm check database; }
start_database() {
  FAIRLEAD_DATABASE_CACHE_MIB=64 unshare --pid --fork --kill-child --mount-proc="$database_root/proc" chroot "$database_root" /opt/fairlead/bin/fairlead-slurm database >> "$work/database.log" 2>&1 &
  database_job=$!
}
start_slurmdbd() {
  FAIRLEAD_SLURM_CLUSTER=heads FAIRLEAD_SLURMDBD_CONF=$'AuthType=auth/munge\nDbdHost=head\nDbdAddr=10.99.0.1\nDbdPort=6819\nSlurmUser=slurm\nPidFile=/run/slurm/slurmdbd.pid\nStorageType=accounting_storage/mysql\nStorageHost=10.99.0.1\nStoragePort=3306\nStorageUser=slurm\nStorageLoc=slurm_acct_db\nStorageParameters=SSL_CA=/run/slurm/database-ca.crt\n' \
    unshare --pid --fork --kill-child chroot "$root" /opt/fairlead/bin/fairlead-slurm accounting >> "$work/slurmdbd.log" 2>&1 &
  slurmdbd_job=$!
}
start_accounting() {
  start_database
  start_slurmdbd
  until_true 60 'slurmdbd answers from its database' grep_in '^root$' chroot "$root" env SLURM_CONF=/run/slurm/slurm.conf sacctmgr -n -P list user format=user
}
# At once and with all they run, as a machine that fails.
kill_accounting() {
  kill -KILL "$database_job" "$slurmdbd_job" 2> /dev/null || true
  wait "$database_job" "$slurmdbd_job" 2> /dev/null || true
}
