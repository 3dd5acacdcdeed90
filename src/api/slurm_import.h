// SPDX-License-Identifier: Apache-2.0
// A SlurmCluster that comes from another place (docs/design/017).
#pragma once

namespace fairlead::api {

// Annotation of a SlurmCluster: the id of the export that it is made of. While it is there no head is made, so that nothing begins an empty state before the volumes are filled; what runs is left alone.
inline constexpr const char* kImport = "fairlead.dev/import";

}  // namespace fairlead::api
