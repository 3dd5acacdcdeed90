// SPDX-License-Identifier: Apache-2.0
// Whom a role's trust policy lets in who is no identity of this site: services of AWS by their names, and whom an identity provider vouches for. Pure. Source: docs.aws.amazon.com, IAM user guide, "Roles terms and concepts", "Creating a role for web identity".
#pragma once
#include <string>
#include <string_view>

#include "hyperpod/identity.h"
#include "iam/decide.h"

namespace fairlead::hyperpod {

// "arn:aws:iam::111122223333:oidc-provider/HOST/PATH", as trust policies name an issuer "https://HOST/PATH".
std::string provider_arn(const Site& site, std::string_view issuer);

// Why this caller may not do `action` with the role; empty: its trust policy lets him. `keys`: what conditions may ask for beside the time and the account.
std::string why_not_trusted(const Identity& role, const iam::Caller& caller, std::string_view action, iam::Keys keys, const Site& site, Instant now);

// The same for a service, such as sagemaker.amazonaws.com, that acts for this site.
std::string why_not_trusted(const Identity& role, std::string_view service, std::string_view action, iam::Keys keys, const Site& site, Instant now);

}  // namespace fairlead::hyperpod
