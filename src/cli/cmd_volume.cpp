// SPDX-License-Identifier: Apache-2.0
// volume: block volumes, their snapshots and attachments (docs/volumes.md). All by objects: what a pool's daemon makes of them is waited for and told.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <thread>

#include "api/volume.h"
#include "api/volume_host.h"
#include "api/volume_key.h"
#include "base/encoding.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

struct Options {
  std::string name, other, size, pool, klass, key, snapshot_name, from_volume, from_snapshot, iops, throughput;
  std::vector<std::string> names, tags;
  double timeout = 60, max_stall = 1;
  bool make = false, encrypt = false, read_only = false, wait = true, dry_run = false, yes = false, force = false;
};

std::string text_of(const kube::Resource& resource, const std::string& name) { return fmt::format("{} {}", resource.kind == "Snapshot" ? "snapshot" : resource.kind == "Attachment" ? "attachment" : "volume", name); }
std::string sized(const Json& bytes) { return bytes.integer() > 0 ? print(Bytes{bytes.integer()}) : "-"; }
std::string age(Context& context, const std::string& when) {
  const auto then = parse_time(when);
  return then ? print_age(std::max(context.clock.now() - *then, std::chrono::nanoseconds(0))) : "-";
}
std::string took(double seconds) { return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1000) : print_seconds(seconds); }
Style style_of(const std::string& phase) {
  if (phase == "Available" || phase == "InUse" || phase == "Ready" || phase == "Attached") return Style::Good;
  return phase == "Failed" || phase == "Lost" || phase == "Unknown" ? Style::Bad : Style::Warn;
}

Result<Json> find(Session& session, const kube::Resource& resource, const std::string& name) {
  auto found = session.get(resource, "", name);
  if (!found && found.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no {}: see `fairlead volume {}`", text_of(resource, name), resource.kind == "Snapshot" ? "snapshots" : "list"));
  if (!found) return pass(std::move(found.error()), "read " + text_of(resource, name));
  return found;
}

// Who does it may be away: then this says so rather than that it takes long.
std::string silence(Session& session, const std::string& pool, Instant now) {
  const auto object = session.get(api::kVolumePools, "", pool);
  if (!object) return object.error().code == Code::NotFound ? fmt::format("; there is no pool {}", pool) : "";
  const auto facts = api::read_pool(*object);
  if (facts.heard && now - *facts.heard <= api::kPoolSilence) return "";
  return fmt::format("; pool {} is silent: does fairlead-volumes run there?", pool);
}

// Until `done` says so of the object. Failed: with its message. `gone`: it is waited for until there is no such object.
Result<Json> await(Context& context, Session& session, const kube::Resource& resource, const std::string& name, const Options& options, const std::function<bool(const Json&)>& done, bool gone = false) {
  const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(options.timeout));
  Json last;
  for (auto pause = 10ms;; pause = std::min(pause * 2, 500ms)) {
    auto now = session.get(resource, "", name);
    if (!now && now.error().code == Code::NotFound && gone) return last;
    if (!now) return pass(std::move(now.error()), "read " + text_of(resource, name));
    last = std::move(*now);
    const std::string &phase = last["status"]["phase"].string(), &message = last["status"]["message"].string();
    if (!gone && done(last)) return last;
    if (!gone && (phase == "Failed" || phase == "Lost" || phase == "Unknown")) return fail(Code::Unavailable, fmt::format("{}: {}", text_of(resource, name), message));
    if (context.clock.monotonic() > deadline)
      return fail(Code::Unavailable, fmt::format("{} is {} after {} s{}{}; it goes on", text_of(resource, name), phase.empty() ? "not looked at yet" : phase, options.timeout, message.empty() ? "" : ": " + message, silence(session, last["spec"]["pool"].string(), context.clock.now())));
    std::this_thread::sleep_for(pause);
  }
}

Result<std::vector<api::PoolFacts>> pools_of(Session& session) {
  auto objects = session.list(api::kVolumePools);
  if (!objects) return pass(std::move(objects.error()), "list the pools");
  std::vector<api::PoolFacts> out;
  for (const Json& one : *objects) out.push_back(api::read_pool(one));
  return out;
}

void print_object(Context& context, const Json& object, const std::string& words) {
  if (context.wants("table")) fmt::print("{}\n", words);
  else print_json_or_yaml(object, context.globals.output);
}

Result<int> made(Context& context, Session& session, const kube::Resource& resource, const Json& wanted, const Options& options, const std::function<bool(const Json&)>& done, const std::function<std::string(const Json&, double)>& words) {
  const auto began = context.clock.monotonic();
  const std::string target = kube::path_of(resource, "", "");
  auto answer = session.request("POST", options.dry_run ? target + "?dryRun=All" : target, wanted);
  const bool ours = answer.has_value();
  if (!answer && answer.error().code == Code::Exists) {
    // The same again is no error: the command was broken off, or is in a script.
    auto there = session.get(resource, "", kube::name_of(wanted));
    if (!there) return std::unexpected(std::move(there.error()));
    Json same = (*there)["spec"];
    if (const auto size = api::parse_volume_size(same["size"]); same.has("size") && size) same.set("size", api::print_volume_size(*size));
    if (same != wanted["spec"]) return fail(Code::Exists, fmt::format("{} is there, and is another", text_of(resource, kube::name_of(wanted))));
    if (kube::deleting(*there)) return fail(Code::Conflict, fmt::format("{} is being deleted: try again in a moment", text_of(resource, kube::name_of(wanted))));
    answer = std::move(*there);
  }
  if (!answer) return std::unexpected(std::move(answer.error()));
  if (options.dry_run) return print_object(context, *answer, fmt::format("{} would be made (dry run)", text_of(resource, kube::name_of(wanted)))), 0;
  if (!options.wait) return print_object(context, *answer, fmt::format("{} is being made", text_of(resource, kube::name_of(wanted)))), 0;
  auto now = await(context, session, resource, kube::name_of(wanted), options, done);
  if (!now) {
    // What cannot be is not left to be tried for ever. Only what this command has asked for, as it was.
    if (auto there = session.get(resource, "", kube::name_of(wanted)); ours && there && (*there)["status"]["phase"].string() == "Failed" && kube::uid_of(*there) == kube::uid_of(*answer))
      (void)session.api().remove(resource, {"", kube::name_of(wanted)}, {.uid = kube::uid_of(*there), .resource_version = kube::version_of(*there)});
    return std::unexpected(std::move(now.error()));
  }
  return print_object(context, *now, words(*now, std::chrono::duration<double>(context.clock.monotonic() - began).count())), 0;
}

bool is_there(const Json& volume) { return volume["status"]["phase"].string() == "Available" || volume["status"]["phase"].string() == "InUse"; }

// "3000 operations and 125 MiB a second"; those in force.
std::string limits_of(const Json& volume) {
  const std::int64_t iops = volume["status"]["iops"].integer(), bytes = volume["status"]["throughputBytes"].integer();
  if (iops == 0 && bytes == 0) return "no limits";
  return fmt::format("{}{}{} a second", iops > 0 ? fmt::format("{} operations", iops) : "", iops > 0 && bytes > 0 ? " and " : "", bytes > 0 ? print(Bytes{bytes}) : "");
}

Result<int> create(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  if (!api::is_volume_name(options.name)) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a volume: 1 to 63 of a-z 0-9 and - are expected", options.name));
  if (!options.from_volume.empty() && !options.from_snapshot.empty()) return fail(Code::Invalid, "one of --from-volume and --from-snapshot");
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const auto iops = api::parse_iops(options.iops.empty() ? Json() : Json(options.iops)), throughput = api::parse_throughput(options.throughput.empty() ? Json() : Json(options.throughput));
  if (!iops || !throughput) return fail(Code::Invalid, "--" + (iops ? throughput : iops).error().message);
  const bool limited = *iops > 0 || *throughput > 0;
  const bool encrypted = options.encrypt || !options.key.empty();
  const std::string klass = !options.klass.empty() ? options.klass : limited || encrypted ? api::kLocalManaged : api::kLocalFast;
  if (!api::is_volume_class(klass)) return fail(Code::Invalid, fmt::format("--class {}: one of {} is expected", klass, api::kVolumeClasses));
  if (encrypted && klass == api::kLocalFast) return fail(Code::Invalid, fmt::format("--class {} encrypts nothing: --encrypt is of class {}", klass, api::kLocalManaged));
  if (limited && klass == api::kLocalFast) return fail(Code::Invalid, fmt::format("--class {} limits nothing: --iops and --throughput are of class {}", klass, api::kLocalManaged));
  api::VolumeSpec spec{.pool = options.pool, .klass = klass, .size = 0, .from_volume = options.from_volume, .from_snapshot = options.from_snapshot, .iops = *iops, .throughput = *throughput, .encrypted = encrypted, .key = options.key};
  // A copy is in the pool of what it is of, and has its size unless told.
  if (const std::string& source = options.from_volume.empty() ? options.from_snapshot : options.from_volume; !source.empty()) {
    auto from = find(*session, options.from_volume.empty() ? api::kSnapshots : api::kVolumes, source);
    if (!from) return std::unexpected(std::move(from.error()));
    const std::string pool = (*from)["spec"]["pool"].string();
    if (!spec.pool.empty() && spec.pool != pool) return fail(Code::Invalid, fmt::format("{} is in pool {}: copies are made there", source, pool));
    spec.pool = pool;
    spec.size = (*from)["status"]["sizeBytes"].integer();
    // What is encrypted stays so, by its key.
    if (options.klass.empty() && !(*from)["status"]["key"].string().empty()) spec.klass = api::kLocalManaged;
  }
  if (!options.size.empty()) {
    const auto size = api::parse_volume_size(Json(options.size));
    if (!size) return fail(Code::Invalid, "--" + size.error().message);
    if (spec.size > *size) return fail(Code::Invalid, fmt::format("--size {}: what it is made of has {}", options.size, print(Bytes{spec.size})));
    spec.size = *size;
  }
  if (spec.size == 0) return fail(Code::Invalid, "--size is needed, such as --size 10Gi");
  if (spec.pool.empty() || options.klass.empty()) {
    auto pools = pools_of(*session);
    if (!pools) return std::unexpected(std::move(pools.error()));
    const bool engine = spec.klass != api::kLocalFast;
    for (const api::PoolFacts& one : *pools)
      if (one.name == spec.pool && options.klass.empty()) spec.klass = api::default_class(one.classes, engine);
    if (spec.pool.empty()) {
      auto chosen = api::choose_pool_and_class(*pools, {.size = spec.size, .klass = options.klass, .pools = {}, .node = {}}, engine, context.clock.now());
      if (!chosen) return std::unexpected(std::move(chosen.error()));
      spec.pool = std::move(chosen->pool), spec.klass = std::move(chosen->klass);
    }
  }
  Json wanted = api::new_volume(options.name, spec);
  for (const std::string& tag : options.tags) {
    const std::size_t at = tag.find('=');
    if (at == std::string::npos || at == 0) return fail(Code::Invalid, fmt::format("--tag {}: KEY=VALUE is expected", tag));
    wanted.child("spec").child("tags").set(tag.substr(0, at), tag.substr(at + 1));
  }
  return made(context, *session, api::kVolumes, wanted, options, is_there, [&](const Json& now, double seconds) {
    return fmt::format("volume {}: {} in pool {}{} ({})", options.name, sized(now["status"]["sizeBytes"]), spec.pool, spec.from_snapshot.empty() && spec.from_volume.empty() ? "" : ", made of " + spec.from_snapshot + spec.from_volume, took(seconds));
  });
}

Result<int> snapshot(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto volume = find(*session, api::kVolumes, options.name);
  if (!volume) return std::unexpected(std::move(volume.error()));
  const Json& status = (*volume)["status"];
  // What it costs is told before it is paid.
  const std::int64_t stall = status["estimatedStallMilliseconds"].integer();
  const std::string cost = fmt::format("{} lies in {} on its disk: writers wait {} at most", options.name, plural(status["extents"].integer(), "piece"), took(static_cast<double>(std::max<std::int64_t>(stall, 1)) / 1000));
  const bool used = status["phase"].string() == "InUse";
  if (used && static_cast<double>(stall) > options.max_stall * 1000 && !options.yes) return fail(Code::Conflict, fmt::format("{}, which is more than --max-stall {} s: say --yes, or take it while nobody writes", cost, options.max_stall));
  if (used && (*volume)["spec"]["class"].string() != api::kDistributed && context.wants("table")) fmt::print(stderr, "{}\n", cost);
  std::string name = options.snapshot_name;
  if (name.empty()) {
    std::string stamp = print_time(context.clock.now()).substr(0, 19);
    std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
    std::transform(stamp.begin(), stamp.end(), stamp.begin(), [](char c) { return c == 'T' ? '-' : c; });
    name = fmt::format("{}-{}", options.name.substr(0, 47), stamp);
  }
  if (!api::is_volume_name(name)) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a snapshot: 1 to 63 of a-z 0-9 and - are expected", name));
  Json wanted = api::new_snapshot(name, options.name, (*volume)["spec"]["pool"].string());
  // Whose claim the volume is: claims of that namespace may begin with the snapshot, and no others.
  for (const char* const tag : {"pvc/namespace", "pvc/name"})
    if (const std::string& of = (*volume)["spec"]["tags"][tag].string(); !of.empty()) wanted.child("spec").child("tags").set(tag, of);
  return made(context, *session, api::kSnapshots, wanted, options, [](const Json& now) { return now["status"]["phase"].string() == "Ready"; }, [&](const Json& now, double seconds) {
    const std::int64_t waited = now["status"]["stallMilliseconds"].integer();
    return fmt::format("snapshot {} of {}: {}{} ({})", name, options.name, sized(now["status"]["sizeBytes"]), waited > 0 && used ? fmt::format(", writers waited {} ms at most", waited) : "", took(seconds));
  });
}

Result<int> restore(Context& context, Options options) {
  options.from_snapshot = options.name;
  options.name = options.other;
  return create(context, options);
}

// Changes the spec of what is there; who was overtaken reads it again.
Result<Json> change(Session& session, const std::string& name, const Options& options, const std::function<Result<void>(Json&)>& edit) {
  for (int turn = 0;; ++turn) {
    auto volume = find(session, api::kVolumes, name);
    if (!volume) return volume;
    const Json before = *volume;
    if (auto done = edit(*volume); !done) return std::unexpected(std::move(done.error()));
    if (*volume == before) return before;
    const std::string target = kube::path_of(api::kVolumes, "", name);
    auto answer = session.request("PUT", options.dry_run ? target + "?dryRun=All" : target, *volume);
    if (answer || answer.error().code != Code::Conflict || turn == 10) return answer;
  }
}

Result<int> grow(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  const auto size = api::parse_volume_size(Json(options.size));
  if (!size) return std::unexpected(size.error());
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const auto began = context.clock.monotonic();
  auto changed = change(*session, options.name, options, [&](Json& volume) -> Result<void> {
    const auto now = api::parse_volume_size(volume["spec"]["size"]);
    if (now && *size < *now) return fail(Code::Invalid, fmt::format("{} has {}: a volume does not shrink (make a smaller one, and copy)", options.name, print(Bytes{*now})));
    if (!now || *size > *now) volume.child("spec").set("size", api::print_volume_size(*size));
    return {};
  });
  if (!changed) return std::unexpected(std::move(changed.error()));
  if (options.dry_run || !options.wait) return print_object(context, *changed, fmt::format("volume {} {} {}", options.name, options.dry_run ? "would grow to" : "grows to", print(Bytes{*size}))), 0;
  auto now = await(context, *session, api::kVolumes, options.name, options, [&](const Json& volume) { return volume["status"]["sizeBytes"].integer() >= *size && is_there(volume); });
  if (!now) return std::unexpected(std::move(now.error()));
  const bool used = (*now)["status"]["phase"].string() == "InUse";
  return print_object(context, *now, fmt::format("volume {}: {} ({}){}", options.name, sized((*now)["status"]["sizeBytes"]), took(std::chrono::duration<double>(context.clock.monotonic() - began).count()), used ? "; the device has grown, what is on it is to be told (xfs_growfs, resize2fs)" : "")), 0;
}

Result<int> modify(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const bool limits = !options.iops.empty() || !options.throughput.empty();
  const auto iops = api::parse_iops(options.iops.empty() ? Json() : Json(options.iops)), throughput = api::parse_throughput(options.throughput.empty() ? Json() : Json(options.throughput));
  if (!iops || !throughput) return fail(Code::Invalid, "--" + (iops ? throughput : iops).error().message);
  if (options.tags.empty() && !limits) return fail(Code::Invalid, "nothing to change: --iops, --throughput, --tag KEY=VALUE, --tag KEY- takes one away");
  const auto began = context.clock.monotonic();
  auto changed = change(*session, options.name, options, [&](Json& volume) -> Result<void> {
    if (limits && volume["spec"]["class"].string_or(api::kLocalFast) == api::kLocalFast)
      return fail(Code::Unsupported, fmt::format("{} is of class {}, which limits nothing: `fairlead volume create NAME --from-volume {} --iops N` makes a copy that is held to limits", options.name, api::kLocalFast, options.name));
    if (!options.iops.empty()) volume.child("spec").set("iops", *iops);
    if (!options.throughput.empty()) volume.child("spec").set("throughput", api::print_volume_size(*throughput));
    for (const std::string& tag : options.tags) {
      const std::size_t at = tag.find('=');
      if (at == std::string::npos && tag.size() > 1 && tag.ends_with('-')) volume.child("spec").child("tags").erase(tag.substr(0, tag.size() - 1));
      else if (at == std::string::npos || at == 0) return fail(Code::Invalid, fmt::format("--tag {}: KEY=VALUE or KEY- is expected", tag));
      else volume.child("spec").child("tags").set(tag.substr(0, at), tag.substr(at + 1));
    }
    return {};
  });
  if (!changed) return std::unexpected(std::move(changed.error()));
  if (limits && !options.dry_run) {
    auto now = await(context, *session, api::kVolumes, options.name, options, [](const Json& volume) { return api::limits_in_force(volume); });
    if (!now) return std::unexpected(std::move(now.error()));
    return print_object(context, *now, fmt::format("volume {}: {} ({})", options.name, limits_of(*now), took(std::chrono::duration<double>(context.clock.monotonic() - began).count()))), 0;
  }
  return print_object(context, *changed, fmt::format("volume {} {}", options.name, options.dry_run ? "would be changed (dry run)" : "changed")), 0;
}

Result<int> attach(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto volume = find(*session, api::kVolumes, options.name);
  if (!volume) return std::unexpected(std::move(volume.error()));
  bool others = false;
  if (options.read_only) {
    auto all = session->list(api::kAttachments);
    if (!all) return pass(std::move(all.error()), "list the attachments");
    for (const Json& one : *all) others = others || (one["spec"]["volume"].string() == options.name && !one["spec"]["readOnly"].boolean());
  }
  // The volume's status follows a detachment a moment later: who has it no more is in nobody's way.
  const auto has = [&](const std::string& node) {
    const auto there = session->api().get(api::kAttachments, {"", api::attachment_name(options.name, node)});
    return there || there.error().code != Code::NotFound;
  };
  if (const std::string& at = (*volume)["status"]["node"].string(); !at.empty() && at != options.other && (!options.read_only || others) && (at.find(',') != at.npos || has(at)))
    return fail(Code::Conflict, fmt::format("{} is attached to {}: one node at a time has a volume, or several that all read it (--read-only). `fairlead volume detach {}` first, or give {} a copy: `fairlead volume create NAME --from-volume {}`", options.name, at, options.name, options.other, options.name));
  return made(context, *session, api::kAttachments, api::new_attachment(options.name, (*volume)["spec"]["pool"].string(), options.other, options.read_only), options, [](const Json& now) { return now["status"]["phase"].string() == "Attached"; },
              [&](const Json& now, double seconds) { return fmt::format("volume {} is {} on the machine of {}{} ({})", options.name, now["status"]["device"].string(), options.other, options.read_only ? ", read-only" : "", took(seconds)); });
}

Result<int> detach(Context& context, const Options& options) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  if (options.force && !options.yes && !options.dry_run) return fail(Code::Invalid, fmt::format("who uses {} there gets errors from then on, and what was not synced is lost: say --yes if its machine is dead, or does not answer", options.name));
  auto all = session->list(api::kAttachments);
  if (!all) return pass(std::move(all.error()), "list the attachments");
  std::erase_if(*all, [&](const Json& one) { return one["spec"]["volume"].string() != options.name || (!options.other.empty() && one["spec"]["node"].string() != options.other); });
  if (all->empty()) {
    if (auto volume = find(*session, api::kVolumes, options.name); !volume) return std::unexpected(std::move(volume.error()));
    fmt::print("volume {} is not attached{}\n", options.name, options.other.empty() ? "" : " to " + options.other);
    return 0;
  }
  for (const Json& one : *all) {
    const std::string name = kube::name_of(one), node = one["spec"]["node"].string();
    if (options.dry_run) {
      fmt::print("volume {} would be detached from {} (dry run)\n", options.name, node);
      continue;
    }
    if (options.force) {
      // Said first: who takes it away finds it there.
      auto now = session->api().get(api::kAttachments, {"", name});
      if (!now) return pass(std::move(now.error()), "read the attachment of " + options.name);
      now->child("metadata").child("annotations").set(api::kForceDetach, "true");
      if (auto said = session->api().update(api::kAttachments, *now); !said) return pass(std::move(said.error()), "detach " + options.name + " by force");
    }
    if (auto done = session->api().remove(api::kAttachments, {"", name}); !done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "detach " + options.name);
    if (!options.wait) continue;
    auto gone = await(context, *session, api::kAttachments, name, options, {}, true);
    if (!gone) return std::unexpected(std::move(gone.error()));
    if (context.wants("table")) fmt::print("volume {} is detached from {}\n", options.name, node);
  }
  return 0;
}

Result<int> remove(Context& context, const Options& options) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  struct Found {
    kube::Resource resource;
    std::string name;
  };
  // All are looked at before one is deleted.
  std::vector<Found> found;
  for (const std::string& name : options.names) {
    bool any = false;
    for (const kube::Resource& resource : {api::kVolumes, api::kSnapshots}) {
      auto object = session->get(resource, "", name);
      if (!object && object.error().code == Code::NotFound) continue;
      if (!object) return pass(std::move(object.error()), "read " + text_of(resource, name));
      if (const std::string& node = (*object)["status"]["node"].string(); !node.empty()) {
        // It follows a detachment a moment later, as above.
        auto all = session->list(api::kAttachments);
        if (!all) return pass(std::move(all.error()), "list the attachments");
        if (std::any_of(all->begin(), all->end(), [&](const Json& one) { return one["spec"]["volume"].string() == name; })) return fail(Code::Conflict, fmt::format("volume {} is attached to {}: `fairlead volume detach {}` first", name, node, name));
      }
      any = true;
      found.push_back({resource, name});
    }
    if (!any) return fail(Code::NotFound, fmt::format("there is no volume and no snapshot {}: see `fairlead volume list`", name));
  }
  if (options.dry_run || !options.yes) {
    for (const Found& one : found) fmt::print("{} would be deleted with what is in it\n", text_of(one.resource, one.name));
    if (options.dry_run) return 0;
    return fail(Code::Invalid, "nothing is deleted: say --yes");
  }
  for (const Found& one : found) {
    if (auto done = session->api().remove(one.resource, {"", one.name}); !done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "delete " + text_of(one.resource, one.name));
    if (!options.wait) continue;
    auto gone = await(context, *session, one.resource, one.name, options, {}, true);
    if (!gone) return std::unexpected(std::move(gone.error()));
    fmt::print("{} deleted\n", text_of(one.resource, one.name));
  }
  return 0;
}

Cell head(const char* text, bool right = false) { return {.text = text, .style = Style::Dim, .drawn = false, .right = right}; }
Cell cell(std::string text, Style style = Style::Plain, bool right = false) { return {.text = text.empty() ? "-" : clean(text), .style = style, .drawn = false, .right = right}; }

Result<int> show(Context& context, const kube::Resource& resource, const char* none, const std::vector<Cell>& heads, const std::function<Row(const Json&)>& row, const std::function<bool(const Json&)>& wanted = {}) {
  if (auto problem = unknown_form(context)) return std::unexpected(std::move(*problem));
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto objects = session->list(resource);
  if (!objects) return pass(std::move(objects.error()), "list " + resource.plural);
  if (wanted) std::erase_if(*objects, [&](const Json& one) { return !wanted(one); });
  if (!context.wants("table")) {
    Json out = Json::array();
    for (Json& one : *objects) out.push(std::move(one));
    return print_json_or_yaml(out, context.globals.output), 0;
  }
  if (objects->empty()) return fmt::print(stderr, "{}\n", none), 0;
  std::vector<Row> rows{heads};
  for (const Json& one : *objects) {
    rows.push_back(row(one));
  }
  fmt::print("{}", draw_rows(rows, "", context.look()));
  for (const Json& one : *objects)
    if (const std::string& message = one["status"]["message"].string(); !message.empty()) fmt::print("{}: {}\n", kube::name_of(one), clean(message));
  return 0;
}

Result<int> list(Context& context) {
  return show(context, api::kVolumes, "No volumes; make one with `fairlead volume create NAME --size 10Gi`.", {head("NAME"), head("PHASE"), head("SIZE", true), head("ON DISK", true), head("POOL"), head("NODE"), head("MADE OF"), head("AGE", true)}, [&](const Json& one) -> Row {
    const Json &spec = one["spec"], &status = one["status"];
    const std::string phase = kube::deleting(one) ? "Deleting" : status["phase"].string_or("Waiting");
    return {cell(kube::name_of(one)), cell(phase, style_of(phase)), cell(status.has("sizeBytes") ? sized(status["sizeBytes"]) : spec["size"].is_string() ? spec["size"].string() : kube::print_json(spec["size"]), Style::Plain, true), cell(sized(status["allocatedBytes"]), Style::Plain, true), cell(spec["pool"].string()), cell(status["node"].string()), cell(spec["source"]["snapshot"].string() + spec["source"]["volume"].string()), cell(age(context, one["metadata"]["creationTimestamp"].string()), Style::Plain, true)};
  });
}

Result<int> snapshots(Context& context, const Options& options) {
  return show(
      context, api::kSnapshots, "No snapshots; take one with `fairlead volume snapshot VOLUME`.", {head("NAME"), head("PHASE"), head("VOLUME"), head("SIZE", true), head("POOL"), head("TAKEN", true)},
      [&](const Json& one) -> Row {
        const std::string phase = kube::deleting(one) ? "Deleting" : one["status"]["phase"].string_or("Waiting");
        return {cell(kube::name_of(one)), cell(phase, style_of(phase)), cell(one["spec"]["volume"].string()), cell(sized(one["status"]["sizeBytes"]), Style::Plain, true), cell(one["spec"]["pool"].string()), cell(one["status"].has("takenAt") ? age(context, one["status"]["takenAt"].string()) + " ago" : "-", Style::Plain, true)};
      },
      [&](const Json& one) { return options.name.empty() || one["spec"]["volume"].string() == options.name; });
}

Result<std::string> key_name(const Options& options) {
  const std::string name = options.name.empty() ? std::string(api::kServiceKey) : options.name;
  if (!api::is_volume_name(name)) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a key: 1 to 63 of a-z 0-9 and - are expected", name));
  return name;
}
Json new_key(const std::string& name, Json spec) { return Json::object({{"apiVersion", api::kVolumeKeys.api_version()}, {"kind", api::kVolumeKeys.kind}, {"metadata", Json::object({{"name", name}})}, {"spec", std::move(spec)}}); }

// A version more of a key that is a Secret alone. Its bytes are made here, and shown to nobody.
Result<std::string> rotate_secret(kube::KubeApi& api, const std::string& name, Json secret, bool dry_run) {
  std::int64_t last = 0;
  for (const auto& [field, value] : secret["data"].members())
    if (field.starts_with("v")) last = std::max<std::int64_t>(last, std::atoll(field.c_str() + 1));
  const std::string version = fmt::format("v{}", last + 1);
  if (dry_run) return version;
  std::string bytes = secret_bytes(32);
  secret.child("data").set(version, base64(bytes));
  const auto done = api.update(kube::resources::secrets, secret);
  std::fill(bytes.begin(), bytes.end(), '\0');
  if (!done) return pass(Error(done.error()), "write key " + name);
  return version;
}

// A new version of a key, or the key itself: of an object's, pools make the material.
Result<int> rotate_key(Context& context, const Options& options) {
  const auto name = key_name(options);
  if (!name) return std::unexpected(name.error());
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  kube::KubeApi& api = session->api();
  const std::string goes_on = "; pools wrap their volumes' keys by it within minutes, and tell how many are left (message of the VolumePool); older versions may go then";
  auto object = api.get(api::kVolumeKeys, {"", *name});
  if (!object && object.error().code != Code::NotFound) return pass(std::move(object.error()), "read key " + *name);
  if (object) {
    const std::int64_t version = api::read_volume_key(*object).version + 1;
    if (options.dry_run) return fmt::print("key {} would get version v{} (dry run)\n", *name, version), 0;
    object->child("spec").set("version", version);
    if (auto done = api.update(api::kVolumeKeys, *object); !done) return pass(std::move(done.error()), "write key " + *name);
    fmt::print("key {} gets version v{}{}\n", *name, version, goes_on);
    return 0;
  }
  auto secret = api.get(kube::resources::secrets, {api::kVolumeKeySpace, *name});
  if (!secret && secret.error().code != Code::NotFound) return pass(std::move(secret.error()), "read key " + *name);
  if (secret) {
    const auto version = rotate_secret(api, *name, std::move(*secret), options.dry_run);
    if (!version) return std::unexpected(version.error());
    if (options.dry_run) fmt::print("key {} would get version {} (dry run)\n", *name, *version);
    else fmt::print("key {} has version {}{}\n", *name, *version, goes_on);
    return 0;
  }
  if (!options.make) return fail(Code::NotFound, fmt::format("there is no key {}: --create makes it", *name));
  if (options.dry_run) return fmt::print("key {} would be made (dry run)\n", *name), 0;
  if (auto made = api.create(api::kVolumeKeys, new_key(*name, Json::object())); !made) return pass(std::move(made.error()), "make key " + *name);
  fmt::print("key {} is made; its material is, by the first pool that encrypts by it\n", *name);
  return 0;
}

// Of a key that was a Secret alone this makes the object that says so.
Result<int> switch_key(Context& context, const Options& options, bool enabled) {
  const auto name = key_name(options);
  if (!name) return std::unexpected(name.error());
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  kube::KubeApi& api = session->api();
  auto object = api.get(api::kVolumeKeys, {"", *name});
  if (!object && object.error().code != Code::NotFound) return pass(std::move(object.error()), "read key " + *name);
  const auto secret = object ? Result<Json>(Json()) : api.get(kube::resources::secrets, {api::kVolumeKeySpace, *name});
  if (!secret && secret.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no key {}: `fairlead volume keys` tells them", *name));
  if (!secret) return pass(Error(secret.error()), "read key " + *name);
  if (!options.dry_run) {
    Result<Json> done = Json();
    if (object) {
      object->child("spec").set("enabled", enabled);
      done = api.update(api::kVolumeKeys, *object);
    } else if (!enabled) {
      done = api.create(api::kVolumeKeys, new_key(*name, Json::object({{"enabled", false}})));
    }
    if (!done) return pass(std::move(done.error()), "write key " + *name);
  }
  fmt::print("key {} {}{}{}\n", *name, options.dry_run ? "would be " : "is ", enabled ? "enabled" : "disabled: volumes that are attached go on, and no further attachment is made", options.dry_run ? " (dry run)" : "");
  return 0;
}

Result<int> keys(Context& context) {
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  const auto volumes = session->api().list(api::kVolumes, "");
  if (!volumes) return pass(Error(volumes.error()), "list volumes");
  return show(context, api::kVolumeKeys, "No keys of their own: encrypted volumes have the site's (Secret service in namespace fairlead-volume-keys). Make one with `fairlead volume rotate-key NAME --create`.", {head("NAME"), head("STATE"), head("GRANTS"), head("VERSION", true), head("VOLUMES", true), head("ALIASES"), head("AGE", true)}, [&](const Json& one) -> Row {
    const api::VolumeKey key = api::read_volume_key(one);
    const auto count = std::count_if(volumes->items.begin(), volumes->items.end(), [&](const Json& volume) { return volume["status"]["key"].string_or(volume["spec"]["key"].string()) == key.name; });
    return {cell(key.name), cell(key.state(), key.opens() ? Style::Good : Style::Bad), cell(key.grants ? "Required" : "Implied"), cell(std::to_string(key.version), Style::Plain, true), cell(std::to_string(count), Style::Plain, true), cell(fmt::format("{}", fmt::join(key.aliases, ","))), cell(age(context, one["metadata"]["creationTimestamp"].string()), Style::Plain, true)};
  });
}

Result<int> pools(Context& context) {
  return show(context, api::kVolumePools, "No pools: start fairlead-volumes on a machine with an XFS folder (docs/volumes.md).", {head("NAME"), head("STATE"), head("SIZE", true), head("PROMISED", true), head("LEFT", true), head("FREE", true), head("VOLUMES", true), head("SNAPSHOTS", true), head("CLASSES"), head("NODES")}, [&](const Json& one) -> Row {
    const auto facts = api::read_pool(one);
    const bool silent = !facts.heard || context.clock.now() - *facts.heard > api::kPoolSilence;
    const auto size = [](std::int64_t bytes) { return cell(print(Bytes{bytes}), Style::Plain, true); };
    return {cell(facts.name), cell(silent ? "Silent" : "Ready", silent ? Style::Bad : Style::Good), size(facts.size), size(facts.promised), size(facts.left()), size(facts.free), cell(std::to_string(one["status"]["volumes"].integer()), Style::Plain, true), cell(std::to_string(one["status"]["snapshots"].integer()), Style::Plain, true), cell(fmt::format("{}", fmt::join(facts.classes, ","))), cell(facts.nodes.size() > 3 ? fmt::format("{} and {} more", fmt::join(facts.nodes.begin(), facts.nodes.begin() + 3, ","), facts.nodes.size() - 3) : fmt::format("{}", fmt::join(facts.nodes, ",")))};
  });
}

}  // namespace

void add_volume(CLI::App& app, Context& context) {
  CLI::App* volume = app.add_subcommand("volume", "Block volumes: snapshots, copies, growth, attachment to nodes");
  volume->require_subcommand(1);
  set_examples(*volume, {{"fairlead volume create data --size 100Gi", ""}, {"fairlead volume snapshot data", "as it is at this moment"}, {"fairlead volume restore data-20261127-101500 data-then", "a volume as it was"}, {"fairlead volume attach data worker-0", "a block device on the machine of that node"}});
  const auto command = [&](const char* name, const char* about, const std::vector<std::pair<std::string, std::string>>& examples, const std::function<void(CLI::App&, Options&)>& options_of, Result<int> (*run)(Context&, const Options&)) {
    auto options = std::make_shared<Options>();
    CLI::App* one = volume->add_subcommand(name, about);
    options_of(*one, *options);
    add_globals(*one, context);
    set_examples(*one, examples);
    one->callback([options, run, &context] { context.action = [options, run, &context] { return run(context, *options); }; });
  };
  const auto waits = [](CLI::App& one, Options& options) {
    one.add_flag("--wait,!--no-wait", options.wait, "until it is so (default)");
    one.add_option("--timeout", options.timeout, "seconds to wait; what was asked goes on")->capture_default_str();
    one.add_flag("--dry-run", options.dry_run, "change nothing");
  };
  command("list", "Volumes", {{"fairlead volume list", ""}, {"fairlead volume list -o json", "for a script"}}, [](CLI::App&, Options&) {}, [](Context& to, const Options&) { return list(to); });
  command("snapshots", "Snapshots, by name", {{"fairlead volume snapshots", ""}, {"fairlead volume snapshots data", "of one volume"}}, [](CLI::App& one, Options& options) { one.add_option("volume", options.name, "of this volume alone"); }, snapshots);
  command("pools", "Pools, and what they have left", {{"fairlead volume pools", ""}}, [](CLI::App&, Options&) {}, [](Context& to, const Options&) { return pools(to); });
  command("create", "Make a volume", {{"fairlead volume create data --size 100Gi", "in the pool with the most left"}, {"fairlead volume create twin --from-volume data", "a copy that shares what is not written anew"}},
          [&](CLI::App& one, Options& options) {
            one.add_option("name", options.name, "of the volume")->required();
            one.add_option("--size", options.size, "1Gi to 64Ti; that of what it is made of, if there is such");
            one.add_option("--pool", options.pool, "see `fairlead volume pools`");
            one.add_option("--class", options.klass, "local-fast (default), local-managed (held to --iops and --throughput by a process of its own), or distributed (the same, in a Ceph pool; the default where a pool has no other)");
            one.add_flag("--encrypt", options.encrypt, "its data lies on disk encrypted, by a key of its own that the site's key opens; makes it local-managed");
            one.add_option("--key", options.key, "another key than the site's: a Secret in namespace fairlead-volume-keys (docs/volumes.md); encrypts");
            one.add_option("--iops", options.iops, "operations of up to 256 KiB a second, 100 at least; makes it local-managed");
            one.add_option("--throughput", options.throughput, "MiB a second, or with its unit (1Gi); makes it local-managed");
            one.add_option("--from-snapshot", options.from_snapshot, "begin with what this snapshot holds")->type_name("NAME");
            one.add_option("--from-volume", options.from_volume, "begin with what this volume holds now")->type_name("NAME");
            one.add_option("--tag", options.tags, "KEY=VALUE");
            waits(one, options);
          },
          create);
  command("snapshot", "Take a snapshot of a volume, as after a power cut", {{"fairlead volume snapshot data", ""}, {"fairlead volume snapshot data --name before-upgrade", ""}},
          [&](CLI::App& one, Options& options) {
            one.add_option("volume", options.name, "of which")->required();
            one.add_option("--name", options.snapshot_name, "of the snapshot (default: the volume's, and the time)");
            one.add_option("--max-stall", options.max_stall, "seconds that writers may have to wait; more needs --yes")->capture_default_str();
            one.add_flag("--yes", options.yes, "however long writers wait");
            waits(one, options);
          },
          snapshot);
  command("restore", "Make a volume of a snapshot", {{"fairlead volume restore before-upgrade data-then", ""}},
          [&](CLI::App& one, Options& options) {
            one.add_option("snapshot", options.name, "what the volume begins with")->required();
            one.add_option("volume", options.other, "the new volume's name")->required();
            one.add_option("--size", options.size, "larger than the snapshot (default: its size)");
            waits(one, options);
          },
          [](Context& to, const Options& options) { return restore(to, options); });
  command("grow", "Make a volume larger, while it is used too", {{"fairlead volume grow data 200Gi", ""}},
          [&](CLI::App& one, Options& options) {
            one.add_option("volume", options.name, "which")->required();
            one.add_option("size", options.size, "that it is to have")->required();
            waits(one, options);
          },
          grow);
  command("modify", "Change a volume's limits and tags, while it is used", {{"fairlead volume modify data --iops 3000 --throughput 125", ""}, {"fairlead volume modify data --tag owner=team-a", ""}},
          [](CLI::App& one, Options& options) {
            one.add_option("volume", options.name, "which")->required();
            one.add_option("--tag", options.tags, "KEY=VALUE, or KEY- to take it away");
            one.add_option("--iops", options.iops, "operations a second, of class local-managed; 0: no limit");
            one.add_option("--throughput", options.throughput, "MiB a second, or with its unit (1Gi), of class local-managed; 0: no limit");
            one.add_flag("--dry-run", options.dry_run, "change nothing");
          },
          modify);
  command("attach", "Give a node a volume as a block device", {{"fairlead volume attach data worker-0", ""}},
          [&](CLI::App& one, Options& options) {
            one.add_option("volume", options.name, "which")->required();
            one.add_option("node", options.other, "to which")->required();
            one.add_flag("--read-only", options.read_only, "it cannot be written there");
            waits(one, options);
          },
          attach);
  command("detach", "Take a volume from its node, once nobody uses the device", {{"fairlead volume detach data", ""}},
          [&](CLI::App& one, Options& options) {
            one.add_option("volume", options.name, "which")->required();
            one.add_option("node", options.other, "from this node alone");
            one.add_flag("--force", options.force, "of a pool in Ceph, from a further machine that is dead or does not answer: Ceph shuts its engine out first. Elsewhere it changes nothing");
            one.add_flag("--yes", options.yes, "with --force: do it");
            waits(one, options);
          },
          detach);
  command("rm", "Delete volumes and snapshots with what is in them", {{"fairlead volume rm data --yes", ""}},
          [&](CLI::App& one, Options& options) {
            one.add_option("name", options.names, "of volumes and snapshots")->required();
            one.add_flag("--yes", options.yes, "do it");
            waits(one, options);
          },
          remove);
  command("keys", "Keys of encrypted volumes", {{"fairlead volume keys", ""}}, [](CLI::App&, Options&) {}, [](Context& to, const Options&) { return keys(to); });
  command("rotate-key", "A new version of a key of encrypted volumes", {{"fairlead volume rotate-key", "the site's own"}, {"fairlead volume rotate-key mine --create", ""}},
          [](CLI::App& one, Options& options) {
            one.add_option("key", options.name, "which (default: the site's own)");
            one.add_flag("--create", options.make, "make it if it is not there");
            one.add_flag("--dry-run", options.dry_run, "change nothing");
          },
          rotate_key);
  const auto of_key = [](CLI::App& one, Options& options) {
    one.add_option("key", options.name, "which; service: the site's own")->required();
    one.add_flag("--dry-run", options.dry_run, "change nothing");
  };
  command("disable-key", "Nothing is opened by a key any more; what is attached goes on", {{"fairlead volume disable-key mine", ""}}, of_key, [](Context& to, const Options& options) { return switch_key(to, options, false); });
  command("enable-key", "A key opens again", {{"fairlead volume enable-key mine", ""}}, of_key, [](Context& to, const Options& options) { return switch_key(to, options, true); });
}

}  // namespace fairlead::cli
