// SPDX-License-Identifier: Apache-2.0
// What the programs of block volumes may ask of a Kubernetes API, for roles: a pool's daemon, the CSI driver's controller, and the standard sidecars that call it. Pure.
#pragma once
#include <string>

#include "kube/access.h"

namespace fairlead::api {

// Of fairlead-volumes without engines (--engine off), whichever pool it is: RBAC cannot tie objects to a field that they have. volumes::pool_access() adds the keys of encrypted volumes, which engines serve.
kube::Access pool_access();
// Beside that, of pools with encrypted volumes: the Secrets in kVolumeKeySpace, which has to be there.
kube::Access pool_keys_access();
// Of `fairlead-csi serve --controller`. The node's part asks nothing.
kube::Access driver_access();
// Leases by which one of several sidecars leads, in the order in which the functions below need them: names that they make of the driver's. Other Leases of their namespace are somebody else's.
inline constexpr const char* kSidecarLeases[] = {"csi-fairlead-dev", "external-attacher-leader-csi-fairlead-dev", "external-resizer-csi-fairlead-dev", "external-snapshotter-leader-csi-fairlead-dev"};
// Of the sidecars beside it, csi-provisioner, csi-attacher and csi-resizer, by the roles that these document; without the gates that are off (data sources of other namespaces) and without Secrets. Leases and CSIStorageCapacities of `space`.
kube::Access sidecar_access(const std::string& space);
// Of csi-snapshotter, and what csi-provisioner needs for claims that begin with a VolumeSnapshot.
kube::Access snapshotter_access(const std::string& space);

}  // namespace fairlead::api
