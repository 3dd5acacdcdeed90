// SPDX-License-Identifier: Apache-2.0
// Where lifecycle scripts lie: what S3 is to HyperPod. A port.
#pragma once
#include <string>

#include "fleet/plan/lifecycle.h"

namespace fairlead::fleet {

class ScriptStore {
 public:
  virtual ~ScriptStore() = default;
  // All files below PREFIX/ of the bucket; "" is the whole bucket. NotFound: there is no such folder, or nothing in it. Exhausted: more than kMostScriptFiles or kMostScriptBytes. Forbidden: a link leads out of the bucket. Unavailable: not now.
  virtual Result<ScriptFiles> read(const std::string& bucket, const std::string& prefix) const = 0;
};

// A folder with a folder for each bucket. ".git" is left out, and uploads that have not come to their end (".fairlead-..."); links that stay within the bucket are followed.
class ScriptFolder final : public ScriptStore {
 public:
  explicit ScriptFolder(std::string folder) : folder_(std::move(folder)) {}
  Result<ScriptFiles> read(const std::string& bucket, const std::string& prefix) const override;

 private:
  const std::string folder_;
};

}  // namespace fairlead::fleet
