// SPDX-License-Identifier: Apache-2.0
// The process of a volume's engine, whatever the volume lies on: it starts, says so, and goes on in the background until it is told to end at its socket.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "disk/fuse_disk.h"
#include "disk/image.h"

namespace fairlead::disk {

struct EngineFlags {
  const char* program = "fairlead-disk";  // for messages
  DiskPlace place;
  blocks::DiskLimits limits;
  bool read_only = false, foreground = false, encrypted = false;
  enum class Shows { File, Ublk, UblkIfItCan } shows = Shows::File;  // ublk_disk.h
  std::int64_t begins = 0;
};
// Before anything else of main: no signal ends it, as a volume is in use until its device is gone.
void ignore_signals();
// The process's exit status. Of an encrypted volume the key (64 bytes) is read from stdin: neither an argument nor the environment, which others can read. `open` is called in the process that serves.
// Unless in the foreground, the caller's process ends once it serves or has said why not; what it writes from then on goes to FOLDER.log.
int run_engine(const EngineFlags& flags, const Clock& clock, const std::function<Result<std::unique_ptr<Medium>>()>& open, char** argv);
int ask_engine(const EngineFlags& flags, blocks::DiskRequest::Do what);

}  // namespace fairlead::disk
