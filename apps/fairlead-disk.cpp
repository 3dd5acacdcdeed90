// SPDX-License-Identifier: Apache-2.0
// fairlead-disk: the engine of one volume (src/disk). Started by fairlead-volumes, and outlives it. Wiring only.
//   fairlead-disk serve --file FILE --folder DIR --name NAME [--read-only] [--iops N] [--throughput BYTES] [--begins BYTE --key-stdin]
//   fairlead-disk status|stop --folder DIR
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "base/clock.h"
#include "base/log.h"
#include "disk/engine.h"
#include "disk/file_medium.h"

int main(int argc, char** argv) {
  using namespace fairlead;
  disk::ignore_signals();
  ::mallopt(M_ARENA_MAX, 1);
  disk::EngineFlags flags;
  std::string file;
  CLI::App app("fairlead-disk " FAIRLEAD_VERSION ": the engine of one volume; started by fairlead-volumes");
  app.require_subcommand(1);
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  auto* serve = app.add_subcommand("serve", "serve a volume's file as the file NAME in DIR/disk; goes on in the background once it does");
  auto* status = app.add_subcommand("status", "what an engine does");
  auto* stop = app.add_subcommand("stop", "end one; refused while its file is open");
  for (CLI::App* one : {serve, status, stop}) one->add_option("--folder", flags.place.folder, "absolute; it holds the socket, and the mount")->required();
  serve->add_option("--file", file, "of the volume")->required();
  serve->add_option("--name", flags.place.name, "as which it is served")->required();
  serve->add_flag("--read-only", flags.read_only, "refuse writes");
  serve->add_option("--iops", flags.limits.iops, "operations a second; 0: no limit")->check(CLI::NonNegativeNumber);
  serve->add_option("--throughput", flags.limits.bytes_per_second, "bytes a second; 0: no limit")->check(CLI::NonNegativeNumber);
  serve->add_option("--begins", flags.begins, "byte of the file at which the data begins")->check(CLI::NonNegativeNumber);
  serve->add_flag("--key-stdin", flags.encrypted, "the data is encrypted (AES-256-XTS, sectors of 4096 bytes); the 64 bytes of the key come by stdin");
  using Shows = disk::EngineFlags::Shows;
  serve->add_option("--as", flags.shows, "what it shows: file, ublk (a block device of the kernel's, which status tells) or auto (ublk where the kernel has what is needed)")->transform(CLI::CheckedTransformer(std::map<std::string, Shows>{{"file", Shows::File}, {"ublk", Shows::Ublk}, {"auto", Shows::UblkIfItCan}}));
  serve->add_flag("--foreground", flags.foreground, "stay");
  CLI11_PARSE(app, argc, argv);
  start_logging("fairlead-disk", "info");
  if (!flags.place.folder.starts_with('/')) {
    fmt::print(stderr, "fairlead-disk: --folder: an absolute path is expected\n");
    return 1;
  }
  if (status->parsed()) return disk::ask_engine(flags, blocks::DiskRequest::Do::Status);
  if (stop->parsed()) return disk::ask_engine(flags, blocks::DiskRequest::Do::Stop);
  return disk::run_engine(flags, SystemClock(), [&] { return disk::open_file_medium(file, flags.read_only); }, argv);
}
