// SPDX-License-Identifier: GPL-3.0-or-later
// The container of pod exporter-0, before it serves: names of users are those of the shared root (mounted read-only), and this process goes on as nobody.
#pragma once
#include "base/result.h"

namespace fairlead::companion {

// Before any thread is made. Forbidden, NotFound: the container lacks CAP_SETUID or CAP_SETGID, or the image the user nobody; then nothing may be served.
Result<void> prepare_exporter_pod();

}  // namespace fairlead::companion
