#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CSI driver over a pool in a real Ceph: csi-sanity, and what csi_test.sh tries of any pool; daemon, driver, store and engines are killed.
#   csi_ceph_test.sh BUILD_DIR [PART...]     as root
exec "$(dirname "${BASH_SOURCE[0]}")/csi_test.sh" "${1:?usage: csi_ceph_test.sh BUILD_DIR [PART...]}" --ceph "${@:2}"
