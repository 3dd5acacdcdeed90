// SPDX-License-Identifier: Apache-2.0
// What a pool tells Prometheus: text format 0.0.4.
#pragma once
#include <string>

#include "volumes/volume_pool.h"

namespace fairlead::volumes {

std::string print_pool_metrics(VolumePool& pool, const std::string& name);

}  // namespace fairlead::volumes
