// SPDX-License-Identifier: Apache-2.0
// Identities, access keys and the settings of the AWS face, as commands read and write them.
#pragma once
#include <string>
#include <vector>

#include "api/identity_crds.h"
#include "cli/session.h"

namespace fairlead::cli {

struct AwsSettings {
  std::string account, region, endpoint, ca_pem;
};
// NotFound: the face is not there, with what to do.
Result<AwsSettings> settings_of(Session& session);
Result<std::vector<kube::Json>> identities_of(Session& session);
Result<std::vector<api::identities::AccessKey>> keys_of(Session& session);  // of all
// Of a user that is there. Exhausted: he has two; the message names them.
Result<api::identities::AccessKey> add_key(Session& session, const std::string& user);

}  // namespace fairlead::cli
