// SPDX-License-Identifier: Apache-2.0
// slurm import: a Slurm cluster is made of an export, and waits for its code (docs/slurm-move.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "api/slurm_import.h"
#include "base/encoding.h"
#include "cli/move.h"
#include "cli/move_archive.h"
#include "cli/move_objects.h"

namespace fairlead::cli {

using kube::Json;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kPiece = 4 << 20, kMostObjects = std::size_t{64} << 20;

Result<void> create_objects(Session& session, const ArchiveHeader& header, const std::string& space, const Json& objects, Progress& progress) {
  auto have_space = session.get(kube::resources::namespaces, "", space);
  if (!have_space && have_space.error().code == Code::NotFound) {
    auto made = session.api().create(kube::resources::namespaces, Json::object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", Json::object({{"name", space}})}}));
    if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make namespace " + space);
  }
  // Looked at before anything is made.
  std::vector<std::pair<kube::Resource, Json>> missing;
  for (const Json& object : objects.items()) {
    auto kind = session.find_kind(object["apiVersion"].string(), object["kind"].string());
    if (!kind) return std::unexpected(std::move(kind.error()));
    Json one = object;
    one.child("metadata").set("namespace", space);
    const bool cluster = object["kind"].string() == "SlurmCluster";
    if (cluster) one.child("metadata").child("annotations").set(api::kImport, header.id);
    auto have = session.get(kind->resource, space, kube::name_of(object));
    if (!have && have.error().code != Code::NotFound) return std::unexpected(std::move(have.error()));
    if (!have) missing.emplace_back(kind->resource, std::move(one));
    else if (cluster ? (*have)["metadata"]["annotations"][api::kImport].string() != header.id : !says_the_same(object, *have))
      return fail(Code::Conflict, fmt::format("{} is in namespace {} already and {}: import into another namespace (-n), or remove it", title_of(object), space, cluster ? "is not of this import" : "says something else"));
  }
  for (const auto& [resource, object] : missing) {
    progress.note(title_of(object));
    if (auto made = session.api().create(resource, object); !made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make " + title_of(object));
  }
  return {};
}

Result<SetKeeper> wait_for_keeper(Context& context, Session& session, const std::string& space, const std::string& cluster, Progress& progress) {
  const auto began = context.clock.monotonic();
  while (true) {
    auto keeper = find_set_keeper(session, space, cluster);
    if (keeper || keeper.error().code != Code::Unavailable || context.clock.monotonic() - began > 900s) return keeper;
    progress.note(keeper.error().message);
    progress.redraw();
    std::this_thread::sleep_for(1s);
  }
}

// Its database, if it has one, serves: the records are put into it.
Result<void> wait_for_records(Context& context, Session& session, const SetKeeper& keeper, Progress& progress) {
  const auto began = context.clock.monotonic();
  while (true) {
    auto cluster = session.get(kube::resources::slurm_clusters, keeper.space, keeper.cluster);
    if (!cluster) return std::unexpected(std::move(cluster.error()));
    const Json* condition = kube::find_condition(*cluster, "AccountingAvailable");
    if (!(*cluster)["spec"]["slurmNodes"]["accounting"]["enabled"].boolean() || (condition && (*condition)["status"].string() == "True")) return {};
    const std::string why = condition ? (*condition)["message"].string() : "accounting is being made";
    if (context.clock.monotonic() - began > 900s) return fail(Code::Unavailable, "accounting does not become available: " + why);
    progress.note(why);
    progress.redraw();
    std::this_thread::sleep_for(1s);
  }
}

// The objects; behind them comes the set.
Result<Json> read_objects(ArchiveReader& reader) {
  auto size = reader.read_all_of(8);
  if (!size) return std::unexpected(std::move(size.error()));
  std::uint64_t count = 0;
  for (const char c : *size) count = count << 8 | static_cast<unsigned char>(c);
  if (count > kMostObjects) return fail(Code::Invalid, "the export says that its objects take more than 64 MiB");
  auto text = reader.read_all_of(static_cast<std::size_t>(count));
  auto objects = text ? kube::parse_json(*text) : Result<Json>(std::unexpected(text.error()));
  if (!objects) return pass(std::move(objects.error()), "the objects in the export");
  return objects;
}

// To the end, so that what is damaged is known before anything is made.
Result<std::uint64_t> size_of_set(ArchiveReader& reader) {
  std::uint64_t bytes = 0;
  while (true) {
    auto some = reader.read(1 << 20);
    if (!some) return std::unexpected(std::move(some.error()));
    if (some->empty()) return bytes;
    bytes += some->size();
  }
}

// Read once more: nothing of it is written anywhere in the clear.
Result<void> send_set(Session& session, const SetKeeper& keeper, const MoveOptions& options, const std::string& passphrase, const ArchiveHeader& header, std::uint64_t bytes, Progress& progress) {
  auto reader = ArchiveReader::open(options.file);
  if (!reader) return std::unexpected(std::move(reader.error()));
  if (reader->header() != header) return fail(Code::Conflict, options.file + " was exchanged meanwhile");
  if (auto open = reader->unlock(passphrase); !open) return open;
  if (auto objects = read_objects(*reader); !objects) return std::unexpected(std::move(objects.error()));
  for (std::uint64_t at = 0; at < bytes;) {
    auto piece = reader->read_all_of(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, bytes - at)));
    if (!piece) return std::unexpected(std::move(piece.error()));
    auto put = said(session, keeper, {"import-put", header.id, std::to_string(at)}, 300s, *piece);
    if (!put) return std::unexpected(std::move(put.error()));
    at += piece->size();
    progress.note(fmt::format("{} of {} MiB", at >> 20, bytes >> 20));
    progress.redraw();
  }
  return {};
}

Result<void> drop_annotation(Session& session, const std::string& space, const std::string& cluster, const std::string& id) {
  auto object = session.get(kube::resources::slurm_clusters, space, cluster);
  if (!object) return std::unexpected(std::move(object.error()));
  if ((*object)["metadata"]["annotations"][api::kImport].string() != id) return {};
  const Json patch = Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kImport, nullptr}})}})}});
  auto done = session.api().patch(kube::resources::slurm_clusters, {space, cluster}, kube::PatchType::Merge, patch);
  if (!done) return pass(std::move(done.error()), "let heads be made");
  return {};
}

Result<int> open_target(Context& context, Session& session, const SetKeeper& keeper, const ArchiveHeader& header, const MoveOptions& options, Progress& progress) {
  auto code = secret_line(options.code_file);
  if (!code) return pass(std::move(code.error()), "the code");
  progress.begin("the code opens the cluster");
  if (auto opened = said(session, keeper, {"import-open"}, 60s, *code + "\n"); !opened) {
    progress.fail();
    return std::unexpected(std::move(opened.error()));
  }
  progress.end();
  if (auto free = drop_annotation(session, keeper.space, keeper.cluster, header.id); !free) return std::unexpected(std::move(free.error()));
  progress.begin("Slurm answers");
  if (auto settled = settle_restored(context, session, keeper); !settled) {
    progress.fail();
    return std::unexpected(std::move(settled.error()));
  }
  progress.end();
  if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"cluster", keeper.cluster}, {"namespace", keeper.space}, {"export", header.id}, {"step", "open"}})));
  else fmt::print("cluster {} runs in namespace {}, with the queue, the ids and the records of export {}\n", keeper.cluster, keeper.space, header.id);
  return 0;
}

}  // namespace

Result<int> run_import(Context& context, const MoveOptions& options) {
  auto reader = ArchiveReader::open(options.file);
  if (!reader) return std::unexpected(std::move(reader.error()));
  const ArchiveHeader header = reader->header();
  const std::string space = options.space.empty() ? header.space : options.space;
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  Progress progress(context.look(), context.wants("json"));

  // Filled before: only the code is wanted.
  if (!options.dry_run) {
    if (auto keeper = find_set_keeper(*session, space, header.cluster))
      if (auto there = under_way(*session, *keeper, "import"); there && (*there)["id"].string() == header.id && (*there)["sum"].string() == header.code_sum && (*there)["step"].string() != "fill") {
        if (!options.code_file.empty()) return open_target(context, *session, *keeper, header, options, progress);
        if (auto free = drop_annotation(*session, space, header.cluster, header.id); !free) return std::unexpected(std::move(free.error()));
        fmt::print("export {} is in namespace {} already; {}\n", header.id, space, (*there)["step"].string() == "open" ? "it is open" : "it waits for its code: --code-file");
        return 0;
      }
  }
  auto passphrase = passphrase_of(options, false);
  if (!passphrase) return std::unexpected(std::move(passphrase.error()));
  if (auto open = reader->unlock(*passphrase); !open) return std::unexpected(std::move(open.error()));
  progress.begin("the export is read");
  auto objects = read_objects(*reader);
  if (!objects) return std::unexpected(std::move(objects.error()));
  auto size = size_of_set(*reader);
  if (!size) return std::unexpected(std::move(size.error()));
  const std::uint64_t bytes = *size;
  progress.end(fmt::format("{} MiB", bytes >> 20));
  if (options.dry_run) {
    fmt::print("export {} of cluster {} ({}): the whole of it can be read. In namespace {} would be made: {}\nnothing is changed\n", header.id, header.cluster, header.time, space, titles_of(*objects));
    return 0;
  }
  const auto give_up = [&](Error error) -> Result<int> {
    progress.fail();
    return pass(std::move(error), "the cluster is not imported yet; what is done stays, type the same again");
  };
  progress.begin("objects");
  if (auto made = create_objects(*session, header, space, *objects, progress); !made) {
    progress.fail();
    return std::unexpected(std::move(made.error()));
  }
  progress.end();
  progress.begin("the pod that fills the volumes");
  auto keeper = wait_for_keeper(context, *session, space, header.cluster, progress);
  if (!keeper) return give_up(std::move(keeper.error()));
  progress.end();
  progress.begin("accounting, where the cluster has it");
  if (auto ready = wait_for_records(context, *session, *keeper, progress); !ready) return give_up(std::move(ready.error()));
  progress.end();
  progress.begin("the set is sent");
  if (auto begun = said(*session, *keeper, {"import-begin", header.id, header.cluster, header.code_sum, header.set, std::to_string(bytes)}, 60s); !begun) return give_up(std::move(begun.error()));
  if (auto sent = send_set(*session, *keeper, options, *passphrase, header, bytes, progress); !sent) return give_up(std::move(sent.error()));
  progress.end();
  progress.begin("the volumes are filled");
  while (true) {
    auto filled = said(*session, *keeper, {"import-fill", header.id}, 4h);
    if (!filled) return give_up(std::move(filled.error()));
    if (*filled == "filled") break;
    progress.note(*filled);
    progress.redraw();
    std::this_thread::sleep_for(1s);
  }
  progress.end();
  // The hold keeps slurmctld from running now.
  if (auto free = drop_annotation(*session, space, header.cluster, header.id); !free) return give_up(std::move(free.error()));
  if (!options.code_file.empty()) return open_target(context, *session, *keeper, header, options, progress);
  if (context.wants("json")) fmt::print("{}\n", kube::print_json(Json::object({{"cluster", header.cluster}, {"namespace", space}, {"export", header.id}, {"step", "filled"}})));
  else
    fmt::print("cluster {} is in namespace {} and waits for its code. At the source: fairlead slurm export {} -n {} --hand-over --code-file CODE; then here: fairlead slurm import {} -n {} --code-file CODE\n", header.cluster, space, header.cluster, header.space, options.file, space);
  return 0;
}

}  // namespace fairlead::cli
