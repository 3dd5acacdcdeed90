// SPDX-License-Identifier: Apache-2.0
// The names of everything that one site has on this machine. All of them follow from the state folder, so that what a killed server left behind is found again.
#pragma once
#include <string>

namespace fairlead::fleet {

struct Site {
  std::string dir;  // absolute, without a slash at the end
  std::string id;   // six hex digits

  std::string host_link() const { return "fl" + id; }
  std::string cgroup() const { return "fairlead-" + id; }  // below every hierarchy's root
  std::string cgroup(const std::string& node) const { return cgroup() + "/" + node; }
  std::string fabric_pin() const { return dir + "/run/netns/fabric"; }
  std::string nodes() const { return dir + "/nodes"; }
  std::string node(const std::string& name) const { return dir + "/nodes/" + name; }
  std::string config_of(const std::string& name) const { return node(name) + "/agent.json"; }
  std::string init_of(const std::string& name) const { return node(name) + "/init.json"; }
};
// Resolves links in the part of the path that exists: one folder is one site, by whichever name it is reached.
Site site_of(const std::string& state_dir);

}  // namespace fairlead::fleet
