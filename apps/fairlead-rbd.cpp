// SPDX-License-Identifier: Apache-2.0
// fairlead-rbd: what reaches a Ceph pool for fairlead-volumes. Started by it. Wiring only.
//   fairlead-rbd store --ceph-... --host ID                      its store: images are made, copied and removed by it (src/ceph/store_server.h)
//   fairlead-rbd serve --ceph-... --host ID --pool-id ID --image ID --folder DIR --name NAME ...   the engine of one volume (src/disk), which outlives it
//   fairlead-rbd header --ceph-... --host ID --image ID           what a further machine needs to open an encrypted volume
//   fairlead-rbd status|stop --folder DIR
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>

#include "base/clock.h"
#include "base/log.h"
#include "ceph/rbd_medium.h"
#include "ceph/store_server.h"
#include "disk/engine.h"

namespace {
// Ceph's library has its list of options on the stack once, before main(): 1 MB that would stay with the process. Below a process' stack lies nothing else.
void give_back_stack() {
  constexpr std::uintptr_t page = 4096, kept = 64 << 10, most = 2 << 20;
  // Not by a variable's address, which need not be on it (AddressSanitizer's detect_stack_use_after_return).
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - kept) / page * page;
  (void)::madvise(reinterpret_cast<void*>(end - most), most, MADV_DONTNEED);  // ENOMEM: it was not that much
}
}  // namespace

int main(int argc, char** argv) {
  using namespace fairlead;
  ::mallopt(M_ARENA_MAX, 1);  // pages of requests leave gaps behind in each; one costs no time that can be measured
  give_back_stack();
  disk::EngineFlags flags{.program = "fairlead-rbd", .place = {}, .limits = {}};
  ceph::EngineImage image;
  ceph::Claim claim;
  CLI::App app("fairlead-rbd " FAIRLEAD_VERSION ": reaches a Ceph pool; started by fairlead-volumes");
  app.require_subcommand(1);
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  auto* store = app.add_subcommand("store", "carry out by stdin and stdout what fairlead-volumes asks for");
  auto* serve = app.add_subcommand("serve", "serve a volume's image as the file NAME in DIR/disk; goes on in the background once it does");
  auto* header = app.add_subcommand("header", "tell the header of an encrypted volume, in base64");
  auto* status = app.add_subcommand("status", "what an engine does");
  auto* stop = app.add_subcommand("stop", "end one; refused while its file is open");
  for (CLI::App* one : {store, serve, header}) {
    one->add_option("--ceph-conf", claim.place.conf, "ceph.conf, which names the monitors and the keyring");
    one->add_option("--ceph-user", claim.place.user, "of Ceph, without client.")->capture_default_str();
    one->add_option("--ceph-pool", claim.place.pool, "of Ceph")->required();
    one->add_option("--ceph-namespace", claim.place.space, "of the pool")->capture_default_str();
    one->add_option("--host", claim.host, "whose the pool is")->required();
  }
  store->add_flag("--take-over", claim.take_over, "from another host, which is dead");
  for (CLI::App* one : {serve, status, stop}) one->add_option("--folder", flags.place.folder, "absolute; it holds the socket, and the mount")->required();
  serve->add_option("--pool-id", image.pool_id, "of the pool")->required();
  for (CLI::App* one : {serve, header}) one->add_option("--image", image.id, "of the volume")->required();
  serve->add_option("--generation", image.generation, "of the attachment for which the pool's daemon has asked; 0: on its own machine")->check(CLI::NonNegativeNumber);
  serve->add_option("--name", flags.place.name, "as which it is served")->required();
  serve->add_flag("--read-only", flags.read_only, "refuse writes");
  serve->add_option("--iops", flags.limits.iops, "operations a second; 0: no limit")->check(CLI::NonNegativeNumber);
  serve->add_option("--throughput", flags.limits.bytes_per_second, "bytes a second; 0: no limit")->check(CLI::NonNegativeNumber);
  serve->add_option("--begins", flags.begins, "byte of the image at which the data begins")->check(CLI::NonNegativeNumber);
  serve->add_flag("--key-stdin", flags.encrypted, "the data is encrypted (AES-256-XTS, sectors of 4096 bytes); the 64 bytes of the key come by stdin");
  serve->add_flag("--foreground", flags.foreground, "stay");
  CLI11_PARSE(app, argc, argv);
  start_logging("fairlead-rbd", "info");
  if (store->parsed()) {
    ::signal(SIGPIPE, SIG_IGN);
    return ceph::serve_store(claim, 0, 1);
  }
  if (header->parsed()) return ceph::tell_header(claim.place, image.id);
  disk::ignore_signals();
  if (!flags.place.folder.starts_with('/')) {
    fmt::print(stderr, "fairlead-rbd: --folder: an absolute path is expected\n");
    return 1;
  }
  if (status->parsed()) return disk::ask_engine(flags, blocks::DiskRequest::Do::Status);
  if (stop->parsed()) return disk::ask_engine(flags, blocks::DiskRequest::Do::Stop);
  image.place = claim.place;
  image.host = claim.host;
  image.read_only = flags.read_only;
  return disk::run_engine(flags, SystemClock(), [&] { return ceph::open_rbd_medium(image); }, argv);
}
