#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two more clusters on the nodes of the demo. "base" keeps its records in a MariaDB of the site's, in a namespace that is not ours; "camp" uses the slurmdbd of base, once its owner allows it.
. "$(dirname "$0")/lib.sh"

fields() { k -n "$1" get slurmcluster "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].$3}"; }
on() { local space=$1; shift; k -n "$space" exec login-0 -c sshd -- "$@"; }
sql() { k -n site-db exec mariadb -- mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -N -e "$1"; }
extensions() { k -n "$1" patch slurmcluster "$1" --type=merge -p "{\"spec\":{\"extensions\":{\"accounting\":$2}}}" > /dev/null; }
clean_up() {
  local status=$? space
  trap - EXIT
  [ $status = 0 ] || {
    for space in base camp; do
      for one in AccountingAvailable AccountingShared CommonAvailable ControllersAvailable; do echo "$space $one: $(fields "$space" $one message)"; done
      k -n "$space" get pods
      k -n "$space" logs controller-0 -c slurmctld --tail=15
    done
    k -n base logs accounting-0 -c slurmdbd --tail=15
    k -n site-db logs mariadb --tail=10
  } >&2 || true
  for space in camp base site-db; do
    [ "$space" = site-db ] || k -n "$space" delete slurmcluster "$space" --ignore-not-found --timeout=120s > /dev/null || status=1
    k delete namespace "$space" --ignore-not-found --timeout=120s > /dev/null || status=1
  done
  rm -rf "$SCENARIO_WORK/tls"
  exit "$status"
}
trap clean_up EXIT

# ---- the site's database: TLS by an authority of the site's, a login that may not come without it
(
  umask 077
  mkdir -p "$SCENARIO_WORK/tls" && cd "$SCENARIO_WORK/tls"
  openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj '/CN=site authority'
  openssl req -newkey rsa:2048 -nodes -keyout tls.key -out tls.csr -subj '/CN=mariadb.site-db.svc.cluster.local'
  openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out tls.crt -days 2
  openssl req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.crt -days 2 -subj '/CN=another authority'
  printf 'hash#and\\slash' > password
  cat > init.sql << 'SQL'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'records'@'%' IDENTIFIED BY 'hash#and\\slash' REQUIRE SSL;
GRANT ALL ON slurm_acct_db.* TO 'records'@'%';
SQL
) > "$SCENARIO_WORK/openssl" 2>&1 || fail "certificates: $(tail -n 3 "$SCENARIO_WORK/openssl")"
for space in site-db base camp; do k create namespace "$space" > /dev/null; done
k -n site-db create secret generic server --from-file="$SCENARIO_WORK/tls/tls.crt" --from-file="$SCENARIO_WORK/tls/tls.key" --from-file="$SCENARIO_WORK/tls/init.sql" > /dev/null
k -n site-db apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: mariadb}, ports: [{port: 3307}]}
---
apiVersion: v1
kind: Pod
metadata: {name: mariadb, labels: {app: mariadb}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  hostname: mariadb
  subdomain: db
  nodeSelector: {example.com/pool: login}
  volumes: [{name: server, secret: {secretName: server}}]
  containers:
  - name: mariadb
    image: "mariadb:10.11"
    resources: {requests: {cpu: 50m, memory: 256Mi}}
    volumeMounts: [{name: server, mountPath: /etc/server, readOnly: true}]
    readinessProbe: {exec: {command: [mariadb, --no-defaults, --socket=/run/mysqld/mysqld.sock, -e, SELECT 1]}, periodSeconds: 2}
    command:
    - /bin/bash
    - -ec
    - |
      install -d -o mysql -g mysql -m 0700 /data /tls
      install -o mysql -g mysql -m 0400 /etc/server/* /tls
      mariadb-install-db --no-defaults --user=mysql --datadir=/data --auth-root-authentication-method=socket --skip-test-db --skip-name-resolve
      exec mariadbd --no-defaults --user=mysql --datadir=/data --socket=/run/mysqld/mysqld.sock --port=3307 --bind-address=0.0.0.0 --innodb-buffer-pool-size=32M --init-file=/tls/init.sql --ssl-cert=/tls/tls.crt --ssl-key=/tls/tls.key
YAML
k -n site-db wait --for=condition=Ready pod/mariadb --timeout=180s > /dev/null || fail "the site's database does not start"
note "the site's database runs"

# ---- the first cluster, with what is wrong first: a Secret that is not there, another authority's certificate
cluster() { accounting=$2 extensions="{bindCores: false, accounting: $3}" small_cluster "$1"; } # NAME ACCOUNTING EXTENSION
external='{enabled: true, k8sNodeFilterName: cpu, slurmdbd: {image: "slurm:22.05", resources: {cpu: 50m, memory: 256Mi}}, munge: {resources: {cpu: 20m, memory: 48Mi}}, externalDB: {enabled: true, host: mariadb.db.site-db.svc.cluster.local, port: 3307, user: records, passwordSecretKeyRef: {name: records, key: password}}}'
cluster base "$external" '{externalTLS: {caSecretKeyRef: {name: authority, key: ca.crt}}}'
until_true 60 'a Secret that is missing is named' says 'Secret records (externalDB.passwordSecretKeyRef) is not there; create it with key password' fields base AccountingAvailable message
k -n base create secret generic records --from-file="$SCENARIO_WORK/tls/password" > /dev/null
k -n base create secret generic authority --from-file=ca.crt="$SCENARIO_WORK/tls/other.crt" > /dev/null
until_true 90 'a certificate of another authority is refused' says 'does the database at mariadb.db.site-db.svc.cluster.local:3307 take user records with the password and certificate given?' fields base AccountingAvailable message
until_true 60 'a pod of slurmdbd' k -n base get pod accounting-0
until_true 60 'slurmdbd says why' bash -c "$(declare -f k); k -n base logs accounting-0 -c slurmdbd | grep -qiE 'certificate|SSL|TLS'"
k -n base delete secret authority > /dev/null
k -n base create secret generic authority --from-file="$SCENARIO_WORK/tls/ca.crt" > /dev/null
k -n base delete pod accounting-0 --wait=false > /dev/null
until_true 180 'accounting of the first cluster' same True fields base AccountingAvailable status
says "the site's database by TLS" fields base AccountingAvailable message || fail 'it does not say whose the database is'
until_true 180 'the first cluster' same Available k -n base get slurmcluster base -o 'jsonpath={.status.phase}'
[ "$(sql "SELECT VARIABLE_VALUE > 0 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'SSL_FINISHED_ACCEPTS'")" = 1 ] || fail 'slurmdbd does not come by TLS'
state() { on "$1" scontrol show job "$2" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p' | head -n 1; }
job=$(on base sbatch --parsable -o /dev/null -D /tmp --wrap 'sleep 1' | tr -d '[:space:]')
until_true 120 "a job of the first cluster" same COMPLETED state base "$job"
until_true 60 'its record' same "$job|base|COMPLETED" on base sacct -n -P -X -j "$job" -o jobid,cluster,state
[ "$(sql 'SELECT COUNT(*) FROM slurm_acct_db.base_job_table')" -ge 1 ] || fail "the record is not in the site's database"
note "records of a cluster lie in the site's database, by TLS"

# ---- the second: it waits for the word of the first
cluster camp '{enabled: true}' '{of: {namespace: base, name: base}}'
until_true 60 'the second is not allowed' same NotAllowed fields camp AccountingAvailable reason
says 'its owner adds {namespace: camp, name: camp} to spec.extensions.accounting.sharedWith there' fields camp AccountingAvailable message || fail 'it does not say what to do'
is_empty k -n camp get pods -o name || fail 'it begins without'
is_empty k -n camp get secret camp-munge --ignore-not-found -o name || fail 'it has a key of its own'
until_true 60 'the first tells who asks' says 'asked for and not allowed: camp/camp' fields base AccountingShared message
extensions base '{"sharedWith": [{"namespace": "camp", "name": "camp"}]}'
until_true 240 'the second cluster' same Available k -n camp get slurmcluster camp -o 'jsonpath={.status.phase}'
same 'True Shared' bash -c "$(declare -f fields k); echo \"\$(fields camp AccountingAvailable status) \$(fields camp AccountingAvailable reason)\"" || fail 'it does not say whose slurmdbd it is'
is_empty k -n camp get pods -l fairlead.dev/slurm-role=accounting -o name || fail 'it has a slurmdbd of its own'
note 'the second cluster came up once the first had allowed it'

registered() { same $'base\ncamp' bash -c "$(declare -f on k); on base sacctmgr -n -P list cluster format=cluster,controlhost | awk -F'|' '\$2 != \"\" { print \$1 }' | sort"; }
until_true 60 'slurmdbd knows both' registered
second=$(on camp sbatch --parsable -o /dev/null -D /tmp --wrap 'sleep 1' | tr -d '[:space:]')
until_true 120 'a job of the second cluster' same COMPLETED state camp "$second"
until_true 60 'the first sees its record' same "$second|camp|COMPLETED" on base sacct -M camp -n -P -X -j "$second" -o jobid,cluster,state
until_true 60 'the second sees that of the first' same "$job|base|COMPLETED" on camp sacct -M base -n -P -X -j "$job" -o jobid,cluster,state
all() { same $'base\ncamp' bash -c "$(declare -f on k); on camp sacct -M all -n -P -X -o cluster | sort -u"; }
until_true 30 'both at once' all
note 'sacct -M sees both, from either'

third=$(on base sbatch -M camp --parsable -o /dev/null -D /tmp --wrap 'sleep 600' | tr -d '[:space:]')
[[ $third == *';camp' ]] || fail "sbatch -M: $third"
third=${third%;*}
until_true 60 'it runs over there' same RUNNING state camp "$third"
same "$third" on base squeue -M camp --noheader -j "$third" -o %i || says "$third" on base squeue -M camp || fail 'squeue -M'
on base scancel -M camp "$third" || fail 'scancel -M'
until_true 60 'it ends' same CANCELLED state camp "$third"
until_true 60 'an account that is made at one' on base sacctmgr -i add account shared-a cluster=camp
until_true 60 'is known to slurmctld of the other' bash -c "$(declare -f on k); on camp scontrol show assoc_mgr flags=assoc | grep -q Account=shared-a"
# The ways to the other's workers stay closed: no step from here, and nothing is left over there.
if out=$(on base timeout 90 srun -M camp -N1 hostname 2>&1); then fail "srun -M: $out"; fi
[[ $out == *'Communication connection failure'* ]] || fail "srun -M ends otherwise: $out"
until_true 60 'no job of it is left' is_empty on camp squeue -h
note 'sbatch, squeue, scancel with -M; slurmdbd tells the other slurmctld of accounts'

# ---- nobody else
k -n camp apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "slurm:22.05", command: [sleep, "100000"]}]
YAML
k -n camp wait --for=condition=Ready pod/stranger --timeout=120s > /dev/null
address() { k -n "$1" get pod "$2" -o 'jsonpath={.status.podIP}'; }
connect='import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()'
on camp python3 -c "$connect" "$(address base accounting-0)" 6819 || fail 'the login node of the second does not reach slurmdbd'
for way in "stranger main base accounting-0 6819" "stranger main base controller-0 6817" "login-0 sshd base worker-0 6818" "worker-0 slurmd base controller-0 6817" "login-0 sshd site-db mariadb 22"; do
  read -r from container space to port <<< "$way"
  if k -n camp exec "$from" -c "$container" -- python3 -c "$connect" "$(address "$space" "$to")" "$port" > "$SCENARIO_WORK/way" 2>&1; then fail "open: camp/$from to $space/$to port $port"; fi
done
if k -n demo exec login-0 -c sshd -- python3 -c "$connect" "$(address base accounting-0)" 6819 > "$SCENARIO_WORK/way" 2>&1; then fail 'a cluster that is not allowed reaches slurmdbd'; fi
note 'nobody else reaches slurmdbd or the heads'

# ---- slurmdbd is away while the second works. It sums up whole hours, also those since it last did, so both clusters are given some.
for one in base camp; do sql "USE slurm_acct_db; UPDATE ${one}_last_ran_table SET hourly_rollup = hourly_rollup - 10800; UPDATE ${one}_event_table SET time_start = time_start - 10800 WHERE node_name = ''"; done
k -n base delete pod accounting-0 --wait=false > /dev/null
fourth=$(on camp sbatch --parsable -o /dev/null -D /tmp --wrap 'sleep 1' | tr -d '[:space:]')
until_true 120 'a job meanwhile' same COMPLETED state camp "$fourth"
until_true 120 'its record comes later' same "$fourth|camp|COMPLETED" on camp sacct -n -P -X -j "$fourth" -o jobid,cluster,state
note 'while slurmdbd is away jobs run, and their records come later'
both_used() { same $'base\ncamp' bash -c "$(declare -f on k); on camp sreport -a -n -P cluster utilization start=now-1days end=now+1days | cut -d'|' -f1 | sort -u"; }
until_true 60 'sreport tells of the use of both' both_used
note 'sreport tells of the use of both'

# ---- the first is deleted: it stays while the second uses it
k -n base delete slurmcluster base --wait=false > /dev/null
until_true 60 'the first says why it stays' same DeletionWaits fields base AccountingShared reason
until_true 60 'the second says that it goes' same HostGoes fields camp AccountingAvailable reason
fifth=$(on camp sbatch --parsable -o /dev/null -D /tmp --wrap true | tr -d '[:space:]')
until_true 120 'records are taken still' same "$fifth|camp|COMPLETED" on camp sacct -n -P -X -j "$fifth" -o jobid,cluster,state
k -n camp delete slurmcluster camp --timeout=120s > /dev/null || fail 'the second does not go'
until_true 120 'the first goes, for nobody uses it any more' is_empty k -n base get slurmcluster base --ignore-not-found -o name
[ "$(sql 'SELECT COUNT(*) FROM slurm_acct_db.camp_job_table')" -ge 4 ] || fail "the site's database lost records"
note "the first stayed until the second was gone; the site's database has the records of both"
