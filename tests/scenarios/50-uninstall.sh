#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The cluster is deleted, then Fairlead itself; nothing of either is left.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_UNINSTALL:?}" "${SCENARIO_LEFT:?}"

kd delete slurmcluster demo --timeout=120s > /dev/null || fail 'the SlurmCluster is not deleted'
until_true 180 'its pods are gone' is_empty kd get pods -o name
note 'no pod is left'
k delete namespace demo --timeout=180s > /dev/null || fail 'the namespace is not deleted'
k delete machines --all --timeout=180s > /dev/null || fail 'the machines are not deleted'
until_true 120 'their nodes are gone' is_empty k get nodes -o name
note 'no node is left'
$SCENARIO_UNINSTALL
until_true 60 'nothing is left' is_empty bash -c "$SCENARIO_LEFT"
note 'nothing is left'
