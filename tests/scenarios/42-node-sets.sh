#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Workers of several kinds as NodeSets: jobs choose them by name, each is scaled by itself, and one that is deleted leaves nothing behind. Then the cluster's own workers become a NodeSet as they run.
. "$(dirname "$0")/lib.sh"

node_set alpha 1
node_set beta 2
for set in alpha beta; do until_true 90 "NodeSet $set is ready" same Ready kd get nodeset "$set" -o 'jsonpath={.status.phase}'; done
idle_of() { login sinfo -h -N -o '%N %t' | awk -v of="$1" 'index($1, of) == 1 && $2 == "idle" { n++ } END { print n + 0 }'; }
until_true 60 'Slurm has their workers' bash -c "$(declare -f login kd k idle_of); [[ \$(idle_of alpha-) == 1 && \$(idle_of beta-) == 2 ]]"
same alpha-0 login srun -C alpha hostname || fail 'srun on alpha'
same $'beta-0\nbeta-1' bash -c "$(declare -f login kd k); login srun -C beta --nodes=2 hostname | sort" || fail 'srun on beta'
note 'two NodeSets are up beside the workers, and srun chooses between them'

same 'NAME STATUS DESIRED READY EPHEMERAL AGE' columns nodesets || fail "columns of NodeSets: $(columns nodesets)"
set_rows() { kd get nodesets --no-headers | awk '{ print $1, $2, $3, $4 }'; }
until_true 30 'the rows of NodeSets' same $'alpha Ready 1 1\nbeta Ready 2 2' set_rows
same 'NAME STATUS CONTROLLERS WORKERS LOGIN ACCOUNTING AGE' columns slurmclusters || fail "columns of SlurmClusters: $(columns slurmclusters)"
row() { kd get slurmclusters --no-headers | awk '{ print $1, $2, $3, $4, $5 }'; }
row_fits() { same "$(kd get slurmcluster demo -o 'jsonpath={.metadata.name} {.status.phase} {.spec.slurmNodes.controller.size} {.status.workers} {.spec.slurmNodes.login.size}')" row; }
until_true 30 'the row of the SlurmCluster' row_fits
note 'kubectl get shows the columns of SlurmCluster and NodeSet'

kd scale nodeset beta --replicas=1 > /dev/null || fail 'kubectl scale'
until_true 90 'beta-1 is gone' bash -c "$(declare -f kd k is_empty); is_empty kd get pod beta-1 --ignore-not-found -o name"
until_true 60 'Slurm has forgotten beta-1' bash -c "$(declare -f login kd k); ! login sinfo -h -N -o %N | grep -qx beta-1"
same beta-0 login srun -C beta hostname || fail 'srun on beta after it was scaled'
kd delete nodeset alpha beta --timeout=120s > /dev/null || fail 'the NodeSets are not deleted'
[ -z "$(login sinfo -h -N -o %N | grep -E '^(alpha|beta)-' || true)" ] || fail 'Slurm still has workers of deleted NodeSets'
is_empty kd get pods -l fairlead.dev/node-set -o name || fail 'pods of deleted NodeSets are left'
note 'kubectl scale drains one set alone; deleted sets take their workers out of Slurm first'

uid=$(kd get pod worker-0 -o 'jsonpath={.metadata.uid}')
size=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.worker.size}')
section=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.worker}')
node_set worker "$size"
until_true 30 'the NodeSet waits for the section to go' says 'takes them over as they run' kd get nodeset worker -o 'jsonpath={.status.conditions[?(@.type=="SpecValid")].message}'
kd patch slurmcluster demo --type=json -p '[{"op":"remove","path":"/spec/slurmNodes/worker"}]' > /dev/null
until_true 60 'the NodeSet has the workers' same "Ready $size" kd get nodeset worker -o 'jsonpath={.status.phase} {.status.replicas}'
same "$uid" kd get pod worker-0 -o 'jsonpath={.metadata.uid}' || fail 'worker-0 was replaced'
same worker-0 login srun -w worker-0 hostname || fail 'srun on a worker that was taken over'
kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"worker\":$section}}}" > /dev/null
kd delete nodeset worker --timeout=60s > /dev/null || fail 'the NodeSet does not give the workers back'
same "$uid" kd get pod worker-0 -o 'jsonpath={.metadata.uid}' || fail 'worker-0 was replaced on the way back'
note 'the workers of the older shape became a NodeSet and came back, as they ran'

# The way in from outside, and root's keys: edits that restart nothing.
login_uid=$(kd get pod login-0 -o 'jsonpath={.metadata.uid} {.status.containerStatuses[*].restartCount}')
keys=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.login.sshRootPublicKeys}')
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"login":{"sshdServiceType":"NodePort","sshdServiceNodePort":30922,"sshRootPublicKeys":["ssh-ed25519 AAAAC3Nz edited"]}}}}' > /dev/null
until_true 60 'the Service is there' says 'port 30922 of any node' kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="LoginReachable")].message}'
same 'NodePort 30922' kd get service demo-login-svc -o 'jsonpath={.spec.type} {.spec.ports[0].nodePort}' || fail 'the Service is another one'
until_true 90 'the edited key counts' says 'AAAAC3Nz edited' login /opt/fairlead/bin/fairlead-slurm authorized-keys root
# A balancer of the site's: what it is asked for, that it has not answered, and the address that it gives.
reachable() { kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="LoginReachable")].message}'; }
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"login":{"sshdServiceType":"LoadBalancer","sshdServiceLoadBalancerIP":"192.0.2.7","sshdServiceLoadBalancerSourceRanges":["198.51.100.0/24"]}}}}' > /dev/null
steps_taken() { kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="StepsTaken")].message}'; }
is_told() { says 'has not given Service demo-login-svc an address' reachable || says 'needs a real cluster: use type ClusterIP or NodePort' steps_taken; }
until_true 60 'that there is no address yet is told, or that this cluster has no balancers' is_told
if says 'has not given' reachable > /dev/null; then
  says 'asked for: 192.0.2.7' reachable || fail "LoginReachable: $(reachable)"
  same 'LoadBalancer 30922 192.0.2.7 198.51.100.0/24' kd get service demo-login-svc -o 'jsonpath={.spec.type} {.spec.ports[0].nodePort} {.spec.loadBalancerIP} {.spec.loadBalancerSourceRanges[0]}' || fail "the Service: $(kd get service demo-login-svc -o yaml)"
  kd patch service demo-login-svc --subresource=status --type=merge -p '{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}' > /dev/null
  until_true 60 'its address is told' same 'ssh to 192.0.2.7, port 22' reachable
else
  same 'NodePort 30922' kd get service demo-login-svc -o 'jsonpath={.spec.type} {.spec.ports[0].nodePort}' || fail 'the Service that was there is gone'
fi
# A mistake is told, and nothing that runs is touched.
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":9},"login":{"sshdServiceTipe":"x"}}}}' > /dev/null
until_true 30 'nine heads are refused with the number' says '9 heads asked for; 1 to 3 are possible' kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="SpecValid")].message}'
says 'did you mean sshdServiceType?' kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="FieldsIgnored")].message}' || fail 'the misspelt field is not named'
kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"controller\":{\"size\":1},\"login\":{\"sshdServiceTipe\":null,\"sshdServiceType\":null,\"sshdServiceNodePort\":null,\"sshdServiceLoadBalancerIP\":null,\"sshdServiceLoadBalancerSourceRanges\":null,\"sshRootPublicKeys\":${keys:-[]}}}}}" > /dev/null
until_true 60 'it is as it was' same True kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="SpecValid")].status}'
until_true 60 'the Service has no address again' same None kd get service demo-login-svc -o 'jsonpath={.spec.clusterIP}'
same "$login_uid" kd get pod login-0 -o 'jsonpath={.metadata.uid} {.status.containerStatuses[*].restartCount}' || fail 'the login pod was restarted'
note 'a NodePort, a load balancer, edited keys and mistakes come and go, and the login pod runs on'
