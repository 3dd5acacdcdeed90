#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts that try the real programs share; to be sourced, with `set -eu` in force. It makes the folder $work and, however the script ends, ends what it left in the background, shows the last
# lines of the logs if something failed, and removes the folder.
# A script may define before_end and after_end: they run at its end, before and after its processes are ended, with the exit status as $1; if one fails, the script has failed.

# shellcheck disable=SC2034,SC2154
# (of the variables, $build comes from the script; $admin and $last are for it)
work=$(mktemp -d "/var/tmp/fairlead-$(basename "$0" .sh)-XXXXXX")
last=''
before_end() { :; }
after_end() { :; }

# start LOG COMMAND...: in the background, with its output in $work/LOG. Its process id is in $last.
start() {
  local log=$1
  shift
  "$@" > "$work/$log" 2>&1 &
  last=$!
}
# stop PID: asks it to end, waits, and returns its exit status. A process that was stopped goes on first, else it would not hear.
stop() {
  kill -CONT "$1" 2> /dev/null || true
  kill -TERM "$1" 2> /dev/null || true
  wait "$1" 2> /dev/null
}
alive() { [ -e "/proc/$1" ] && ! grep -q '^State:.*Z' "/proc/$1/status" 2> /dev/null; }
gone() { ! alive "$1"; }

fail() {
  printf 'FAIL %s\n' "$*" >&2
  [ ! -s "$work/out" ] || sed 's/^/    | /' "$work/out" | tail -n 40 >&2
  exit 1
}
# wait_until SECONDS WHAT COMMAND...: a script whose $server ends meanwhile need not wait.
wait_until() {
  local end=$((SECONDS + $1 * ${FAIRLEAD_PATIENCE:-2})) what=$2 asked
  shift 2
  while asked=${EPOCHREALTIME/[.,]/} && ! "$@" > "$work/out" 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "not in time: $what"
    [ -z "${server:-}" ] || alive "$server" || fail "the server ended before: $what"
    # What takes a while to ask is asked less often: the machine has better to do.
    asked=$((${EPOCHREALTIME/[.,]/} - asked)) && asked=$((asked < 100000 ? 2 : asked < 1500000 ? asked / 50000 : 30))
    read -rt "$((asked / 10)).$((asked % 10))" <> <(:) || true
  done
}

# serve OPTION...: a server of the embedded engine on a free port, its state in $work/state. Its process id is in $server, what an administrator needs in $admin.
serve() {
  : > "$work/server.log"  # of the one before: what it said does not count
  start server.log "$build/bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:0 "$@"
  server=$last
  admin=$work/state/pki/admin.kubeconfig
  wait_until 30 'the server serves' grep -q ' serving ' "$work/server.log"
}
stop_server() {
  local status=0
  stop "$server" || status=$?
  server=''
  return "$status"
}

clean_up() {
  local status=$? pids pid log
  [ "$BASHPID" = $$ ] || return  # a child that was ended before it became its program has this trap, too
  trap - EXIT
  before_end "$status" || status=1
  pids=$(jobs -p)  # all that the script left in the background, and nothing that has ended: its number may be another's by now
  for pid in $pids; do
    kill -CONT "$pid" 2> /dev/null || true
    kill -TERM "$pid" 2> /dev/null || true
  done
  for pid in $pids; do wait "$pid" 2> /dev/null || true; done
  after_end "$status" || status=1
  # 77: skipped
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
    for log in "$work"/*.log; do
      [ ! -s "$log" ] || { echo "--- last lines of $(basename "$log"):"; tail -n 20 "$log"; } >&2
    done
  fi
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
