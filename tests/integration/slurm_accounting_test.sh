#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A restore of the accounting database that is killed: before every question that it asks the real MariaDB, in turn. The database is then what it was or what was asked for; what would be replaced is there or in a backup;
# slurmdbd's login is open again; and a further restore does what it says, or says that a person has to decide.
#   slurm_accounting_test.sh BUILD_DIR   (as root)     FAIRLEAD_FULL=1: after every question, too
set -euo pipefail
build=$(realpath "${1:?usage: slurm_accounting_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
# shellcheck source=tests/slurm_database.sh
. "$(dirname "$0")/../slurm_database.sh"
prepare_database "$build"
# The client that a restore starts is counted, and kills the restore when its number has come.
real=$database_root/usr/bin/mariadb.real
mv "$database_root/usr/bin/mariadb" "$real"
cat > "$database_root/usr/bin/mariadb" << 'TEXT'
#!/bin/bash
if [ -e /run/kill-at ] && tr '\0' ' ' < /proc/$PPID/cmdline | grep -q restore-accounting; then
  read -r at when < /run/kill-at
  n=$(($(cat /run/asked) + 1))
  echo $n > /run/asked
  if [ $n = "$at" ]; then
    [ "$when" = before ] || mariadb.real "$@"
    : > /run/killed
    kill -KILL $PPID
    exit 1
  fi
fi
exec mariadb.real "$@"
TEXT
chmod 755 "$database_root/usr/bin/mariadb"
in_database() { chroot "$database_root" "$@"; }
companion() { in_database /opt/fairlead/bin/fairlead-slurm "$@"; }
# As a backup is made: equal contents, equal bytes.
contents() {
  in_database mariadb-dump --no-defaults --socket=/run/mysqld/mysqld.sock --single-transaction --quick --order-by-primary --routines --hex-blob --skip-comments --skip-dump-date --max-allowed-packet=64M \
    --default-character-set=utf8mb4 slurm_acct_db | sha256sum
}
contents_of_backup() { gzip -dc "$database_root/var/backups/accounting/$1" | sha256sum; }
backups() { companion list-backups | cut -d' ' -f1; }
slurm_may_log_in() { in_database mariadb.real --defaults-extra-file=/run/mysqld/login.cnf -N -e 'SELECT 1' | grep -qx 1; }
changed() { sql "INSERT INTO slurm_acct_db.txn_table (timestamp, action, name, actor) VALUES ($1, 1, 'test', 'test')"; }
one_backup() {
  FAIRLEAD_BACKUP_SECONDS=86400 chroot "$database_root" /opt/fairlead/bin/fairlead-slurm backups >> "$work/backups.log" 2>&1 &
  local job=$!
  until_true 25 'a backup' grep_in . backups
  kill "$job"
  wait "$job" || true
}

start_accounting
kill -KILL "$slurmdbd_job"
wait "$slurmdbd_job" 2> /dev/null || true
( umask 077; printf '[client]\nprotocol=tcp\nhost=10.99.0.1\nuser=slurm\npassword=%s\nssl-ca=/etc/fairlead/database/ca.crt\n' "$(cat "$database_root/etc/fairlead/database/password")" > "$database_root/run/mysqld/login.cnf" )
until_true 10 'slurm logs in' slurm_may_log_in
changed 1000
one_backup
older=$(backups | tail -n 1)
was=$(contents)
changed "$(($(date +%s) + 100))"
newer=$(contents)
[ "$was" != "$newer" ] || fail 'both states are the same'
[ "$(contents_of_backup "$older")" = "$was" ] || fail 'the backup holds something else'
# The one that lets slurmdbd in again, as it runs in the pod; no backup is due.
FAIRLEAD_BACKUP_SECONDS=86400 FAIRLEAD_BACKUP_KEEP=1000 chroot "$database_root" /opt/fairlead/bin/fairlead-slurm backups >> "$work/backups.log" 2>&1 &
ok 'a database, a backup of it and something newer'

replaced_holds() { sql "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'fairlead_replaced'"; }
kept_somewhere() { # the newer state
  local name
  [ "$1" != "$newer" ] || return 0
  for name in $(backups); do
    [ "$(contents_of_backup "$name")" != "$newer" ] || return 0
  done
  return 1
}
killed_at() { # NUMBER before|after: fails once the restore asks less often
  local now
  echo "$1 $2" > "$database_root/run/kill-at"
  echo 0 > "$database_root/run/asked"
  rm -f "$database_root/run/killed"
  companion restore-accounting "$older" --force > "$work/restore.log" 2>&1 || true
  rm "$database_root/run/kill-at"
  [ -e "$database_root/run/killed" ] || return 1
  until_true 10 "killed $2 question $1: slurmdbd may log in" slurm_may_log_in
  now=$(contents)
  if [ "$(replaced_holds)" != 0 ]; then
    [ "$now" = "$was" ] || fail "killed $2 question $1: half of it is replaced"
    companion restore-accounting "$older" > "$work/refused.log" 2>&1 && fail "killed $2 question $1: a further restore dropped what was replaced"
    grep -q 'nothing was changed' "$work/refused.log" || fail "killed $2 question $1: that refusal says: $(cat "$work/refused.log")"
    sql 'DROP DATABASE fairlead_replaced' # what the document tells a person to do
  else
    [ "$now" = "$was" ] || [ "$now" = "$newer" ] || fail "killed $2 question $1: the database is neither what it was nor what was asked for"
  fi
  kept_somewhere "$now" || fail "killed $2 question $1: what was replaced is nowhere"
  case $now in "$was") replaced=$((replaced + 1)) ;; *) unchanged=$((unchanged + 1)) ;; esac
}
make_newer() {
  [ "$(contents)" != "$newer" ] || return 0
  changed "$(($(date +%s) + 100))"
  newer=$(contents)
}

replaced=0 unchanged=0
for when in before ${FAIRLEAD_FULL:+after}; do
  n=1
  while killed_at "$n" "$when"; do
    make_newer
    n=$((n + 1))
  done
  (( n > 15 )) || fail "a restore asked $n times only: $(cat "$work/restore.log")"
  [ "$(contents)" = "$was" ] || fail 'a restore that nobody killed did not do it'
  make_newer
  ok "killed $when each of $((n - 1)) questions: $unchanged times nothing had changed, $replaced times all of it"
done

# Names have whole seconds. A backup that is there under the name of this second is not written over.
decoy() { date -u -d "+$1 seconds" +accounting-%Y%m%dT%H%M%SZ.sql.gz; }
names=()
for second in 0 1 2 3 4; do names+=("$(decoy $second)"); done
for name in "${names[@]}"; do echo precious > "$database_root/var/backups/accounting/$name"; done
companion restore-accounting "$older" --force > "$work/restore.log" 2>&1 || fail "a restore beside backups of the same second: $(cat "$work/restore.log")"
for name in "${names[@]}"; do [ "$(cat "$database_root/var/backups/accounting/$name")" = precious ] || fail "the backup $name was written over"; done
kept_somewhere "$was" || fail 'what was replaced is nowhere'
ok 'a backup of the same second is not written over'
