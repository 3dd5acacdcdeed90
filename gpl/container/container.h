// SPDX-License-Identifier: GPL-3.0-or-later
// Makes the root of a task out of an image, in the mount namespace of that task. Called by the SPANK plug-in (jail/spank_container.cpp) in the task before it becomes its user; the plug-in then enters what stands there.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "source.h"

namespace fairlead::companion {

struct ContainerOptions {
  std::string at;     // a folder of root's; the image's root stands at `at`/root then
  std::string cache;  // folder of unpacked images
  std::string image, mounts, working_directory;
  std::vector<std::string> keep;  // names of variables that the image does not change
  bool mount_home = false;
  User user;
  pid_t task = 0;
  std::map<std::string, std::string> environment;  // for skopeo
};

// What goes back to the plug-in: records of one letter and a text, ended by a null byte each. S: tell the user; E: why the task cannot start; U: a variable to remove; V: one to set; W: the folder to start in; K: the root stands.
int run_container(const std::vector<std::string>& arguments);  // the command

}  // namespace fairlead::companion
