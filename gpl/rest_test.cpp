// SPDX-License-Identifier: GPL-3.0-or-later
#include "rest.h"

#include <gtest/gtest.h>

#include "trial.h"

namespace fairlead::companion {
namespace {

TEST(Rest, ListensAtTheIpv4AddressesOfThePodAlone) {
  EXPECT_EQ(listen_addresses("10.1.2.3", "6820"), "10.1.2.3:6820");
  EXPECT_EQ(listen_addresses("fd00::1,10.1.2.3", "6820"), "10.1.2.3:6820");
  EXPECT_EQ(listen_addresses("10.1.2.3, 10.1.2.4", "1"), "10.1.2.3:1,10.1.2.4:1");
  for (const char* none : {"", "fd00::1", ",", "10.1.2", "x"}) EXPECT_EQ(listen_addresses(none, "6820"), "") << none;
}

TEST(Rest, PlugInsAreNamedByTheirFiles) {
  EXPECT_EQ(plugin_of("/usr/lib/x86_64-linux-gnu/slurm-wlm/openapi_v0_0_38.so"), "openapi/v0.0.38");
  EXPECT_EQ(plugin_of("x"), "x");
}

TEST(Rest, ATrialHasAKeyOfItsOwn) {
  const std::string conf = conf_for_trial("ClusterName=c\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=/run/slurm/rest_jwt.key\n", "h", 7000, "/t");
  EXPECT_NE(conf.find("AuthAltTypes=auth/jwt\n"), std::string::npos) << "an image without the plug-in is to be found out";
  EXPECT_NE(conf.find("AuthAltParameters=jwt_key=/t/state/token.key\n"), std::string::npos);
  EXPECT_EQ(conf.find("/run/slurm/rest_jwt.key"), std::string::npos);
}

}  // namespace
}  // namespace fairlead::companion
