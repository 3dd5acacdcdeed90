// SPDX-License-Identifier: GPL-3.0-or-later
#include "hold.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/encoding.h"
#include "base/files.h"
#include "card.h"

namespace fairlead::companion {
namespace {

std::string hold_path(const std::string& volume) { return volume + "/.fairlead-hold"; }
std::string held_path(const std::string& volume) { return volume + "/.fairlead-held"; }

Result<void> sync_folder(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return fail_errno(errno, "write " + path);
  return {};
}

}  // namespace

Result<std::optional<Hold>> read_hold(const std::string& volume) {
  auto card = read_card("hold", hold_path(volume));
  if (!card && card.error().code == Code::NotFound) return std::optional<Hold>();
  if (!card && card.error().code == Code::Invalid) return std::optional<Hold>(Hold{.id = "", .kind = "unknown", .reason = card.error().message, .sum = ""});
  if (!card) return std::unexpected(std::move(card.error()));
  return std::optional<Hold>(Hold{.id = value_of(*card, "id"), .kind = value_of(*card, "kind"), .reason = value_of(*card, "reason"), .sum = value_of(*card, "sum")});
}

Result<void> place_hold(const std::string& volume, const Hold& hold) {
  auto there = read_hold(volume);
  if (!there) return std::unexpected(std::move(there.error()));
  if (*there && (*there)->id != hold.id) return fail(Code::Conflict, "slurmctld is kept from running already: " + (*there)->reason);
  if (*there && **there == hold) return {};
  Card card = {{"id", hold.id}, {"kind", hold.kind}, {"reason", hold.reason}};
  if (!hold.sum.empty()) card["sum"] = hold.sum;
  return write_card("hold", hold_path(volume), card, 0644);
}

Result<void> lift_hold(const std::string& volume, const std::string& id) {
  auto there = read_hold(volume);
  if (!there) return std::unexpected(std::move(there.error()));
  if (!*there) return {};
  if ((*there)->id != id) return fail(Code::Conflict, "slurmctld is kept from running for another reason: " + (*there)->reason);
  ::unlink(held_path(volume).c_str());
  if (::unlink(hold_path(volume).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + hold_path(volume));
  return sync_folder(volume);
}

Result<void> note_held(const std::string& volume, const std::string& id) {
  if (is_held(volume, id)) return {};
  return write_file_durably(held_path(volume), id + "\n", 0644);
}

bool is_held(const std::string& volume, const std::string& id) {
  auto text = read_file(held_path(volume));
  return text && trim(*text) == id && !id.empty();
}

}  // namespace fairlead::companion
