// SPDX-License-Identifier: Apache-2.0
#include "volumes/plan/steps.h"

#include <fmt/format.h>

namespace fairlead::volumes {
namespace {

using Do = Next::Do;

Next refuse(Code code, std::string why) { return {.what = Do::Refuse, .why = std::move(why), .device = {}, .code = code}; }
Next stop(Code code, std::string why) { return {.what = Do::Stop, .why = std::move(why), .device = {}, .code = code}; }
Next step(Do what, std::string device = {}) { return {.what = what, .why = {}, .device = std::move(device), .code = Code::Internal}; }

// What has our name and another's mark is somebody's.
bool is_foreign(const std::optional<FileSeen>& file) { return file && !file->ours; }

Next make(const Intent& intent, const Sight& seen, bool begun) {
  const bool snapshot = intent.what == What::Snapshot;
  const auto& done = snapshot ? seen.snapshot : seen.volume;
  if (is_foreign(done) || is_foreign(seen.part)) return refuse(Code::Conflict, fmt::format("a file with the name of {} is there that is not ours", intent.id));
  if (done) return seen.part ? step(Do::DropPart) : step(Do::Nothing);
  if (!seen.part) return step(intent.source.empty() ? Do::MakePart : Do::CopyPart);
  return step(begun ? Do::Publish : Do::DropPart);
}

// By an engine: that comes first and goes last. A device whose engine has ended gives errors for ever, and is of use to nobody.
Next show(const Intent& intent, const Sight& seen, const DeviceSeen* device) {
  if (device != nullptr && (!seen.engine || seen.engine->failed)) {
    if (device->used.value_or(true)) return stop(Code::Conflict, fmt::format("the engine behind {} {}: unmount it, and the volume is attached anew", device->name, seen.engine ? "could not write" : "has ended"));
    return step(Do::Detach, device->name);
  }
  if (seen.engine && seen.engine->failed) return step(Do::StopEngine);
  if (!seen.engine) return step(Do::StartEngine);
  if (seen.engine->limits != intent.limits) return step(Do::SetLimits);
  return device == nullptr ? step(Do::Attach) : step(Do::Nothing, device->name);
}

}  // namespace

Next next_step(const Intent& intent, const Sight& seen, bool begun) {
  if (intent.what == What::Create || intent.what == What::Snapshot) return make(intent, seen, begun);
  if (intent.what == What::Leave) return step(Do::Nothing);  // others have the device still
  const bool snapshot = intent.what == What::Remove && intent.of_snapshot;
  const auto& file = snapshot ? seen.snapshot : seen.volume;
  if (is_foreign(file)) return refuse(Code::Conflict, fmt::format("the file of {} has been exchanged for one that is not ours", intent.id));
  if (seen.devices.size() > 1) return stop(Code::Internal, fmt::format("{} and {} both show {}: somebody made one of them", seen.devices[0].name, seen.devices[1].name, intent.id));
  const DeviceSeen* device = seen.devices.empty() ? nullptr : &seen.devices.front();
  switch (intent.what) {
    case What::Remove:
      if (device != nullptr) return refuse(Code::Conflict, fmt::format("{} shows {} still", device->name, intent.id));
      if (seen.engine) return step(Do::StopEngine);
      if (seen.part) return is_foreign(seen.part) ? refuse(Code::Conflict, "a file with its name is there that is not ours") : step(Do::DropPart);
      return file ? step(Do::Remove) : step(Do::Nothing);
    case What::Grow:
      if (!file) return stop(Code::Internal, fmt::format("the file of {} is not there", intent.id));
      if (file->size < intent.size) return step(Do::GrowFile);
      // Without its engine a device shows nothing any more; the next one shows all of the file.
      if (intent.managed && !seen.engine) return step(Do::Nothing);
      if (seen.engine && seen.engine->size < file->size) return step(Do::GrowEngine);
      return device != nullptr && device->size < file->size ? step(Do::GrowDevice, device->name) : step(Do::Nothing);
    case What::Attach:
      if (!file) return refuse(Code::Internal, fmt::format("the file of {} is not there", intent.id));
      if (intent.managed) return show(intent, seen, device);
      return device == nullptr ? step(Do::Attach) : step(Do::Nothing, device->name);
    case What::Limit:
      return seen.engine && seen.engine->limits != intent.limits ? step(Do::SetLimits) : step(Do::Nothing);
    default:
      if (device == nullptr) return step(seen.engine ? Do::StopEngine : Do::Nothing);
      if (!device->used) return refuse(Code::Unavailable, fmt::format("whether {} is used cannot be seen", device->name));
      return *device->used ? refuse(Code::Conflict, fmt::format("{} is mounted, or open: unmount it first", device->name)) : step(Do::Detach, device->name);
  }
}

}  // namespace fairlead::volumes
