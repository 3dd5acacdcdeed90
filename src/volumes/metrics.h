// SPDX-License-Identifier: Apache-2.0
// What a pool tells Prometheus: text format 0.0.4.
#pragma once
#include <string>

#include "base/clock.h"
#include "volumes/volume_pool.h"

namespace fairlead::volumes {

// Engines are asked one after the other, for two seconds and the one that does not answer: those that were not asked then have no numbers, and one that does not answer is told as not up.
std::string print_pool_metrics(VolumePool& pool, const std::string& name, const Clock& clock);

}  // namespace fairlead::volumes
