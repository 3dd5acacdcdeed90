// SPDX-License-Identifier: Apache-2.0
#include "ceph/store.h"

#include <endian.h>
#include <fmt/format.h>
#include <rbd/librbd.hpp>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/encoding.h"
#include "base/log.h"
#include "ceph/rbd_image.h"

namespace fairlead::ceph {
namespace {

constexpr const char* key = "fairlead.volume";
constexpr const char* part_key = "fairlead.part";  // the id that a half made image is to have
constexpr std::string_view left = "fairlead.left.";   // images that are deleted, but for a watch that nobody has; no id of a volume
constexpr const char* journal_object = "fairlead.journal";
constexpr std::uint64_t features = RBD_FEATURE_LAYERING | RBD_FEATURE_EXCLUSIVE_LOCK | RBD_FEATURE_OBJECT_MAP | RBD_FEATURE_FAST_DIFF | RBD_FEATURE_DEEP_FLATTEN;
constexpr int deepest = 8;  // copies of copies: each is one more place where a read may have to look

std::string header_of(const std::string& id) { return "fairlead.luks." + id; }
std::string making(const std::string& id) { return "making." + id; }
std::string snap_of(const std::string& id) { return "fairlead." + id; }
class Progress final : public librbd::ProgressContext {
 public:
  explicit Progress(const Store::Alive& alive) : alive_(alive) {}
  int update_progress(std::uint64_t, std::uint64_t) override {
    if (alive_) alive_();
    return 0;
  }

 private:
  const Store::Alive& alive_;
};

class Options {
 public:
  Options() {
    rbd_image_options_create(&all_);
    rbd_image_options_set_uint64(all_, RBD_IMAGE_OPTION_FORMAT, 2);
    rbd_image_options_set_uint64(all_, RBD_IMAGE_OPTION_FEATURES, features);
  }
  ~Options() { rbd_image_options_destroy(all_); }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  rbd_image_options_t get() const { return all_; }

 private:
  rbd_image_options_t all_ = nullptr;
};

struct Snap {
  std::string name;
  bool trash = false;  // deleted, and kept by Ceph for what was made of it
};
Result<std::vector<Snap>> snaps_of(const OpenImage& image) {
  std::vector<librbd::snap_info_t> all;
  if (const int error = image.get().snap_list(all); error < 0) return fail_ceph(error, "list the snapshots of an image");
  std::vector<Snap> out;
  for (const librbd::snap_info_t& one : all) {
    librbd::snap_namespace_type_t type = RBD_SNAP_NAMESPACE_TYPE_USER;
    if (const int error = image.get().snap_get_namespace_type(one.id, &type); error < 0) return fail_ceph(error, "look at the snapshots of an image");
    out.push_back({.name = one.name, .trash = type == RBD_SNAP_NAMESPACE_TYPE_TRASH});
  }
  return out;
}

// The snapshot that an image is a copy of, by its name; nothing: it is none.
std::optional<std::string> copied_from(const OpenImage& image) {
  librbd::linked_image_spec_t parent;
  librbd::snap_spec_t snap;
  return image.get().get_parent(&parent, &snap) < 0 ? std::nullopt : std::optional(snap.name);
}
bool is_copy(const OpenImage& image) { return copied_from(image).has_value(); }

Result<bool> is_empty(const OpenImage& image, std::int64_t size) {
  bool any = false;
  const auto found = [](std::uint64_t, std::size_t, int, void* seen) {
    *static_cast<bool*>(seen) = true;
    return -EEXIST;  // one is enough
  };
  const int error = image.get().diff_iterate2(nullptr, 0, static_cast<std::uint64_t>(size), false, true, found, &any);
  if (error < 0 && !any) return fail_ceph(error, "look whether an image is empty");
  return !any;
}
Result<void> set(const OpenImage& image, const char* what, const std::string& value) {
  const int error = image.get().metadata_set(what, value);
  return error < 0 ? Result<void>(fail_ceph(error, "mark the image " + value)) : Result<void>();
}

// Whether what is noted to be made under this name is this image: it has our mark of that; or a death came before the mark, and then it is a copy of the snapshot that was taken for it, or nothing has ever been written to it. Whatever else there is somebody has made in that moment.
Result<bool> is_part(const OpenImage& image, const std::string& id, std::int64_t size, bool marked) {
  std::string text;
  const int error = image.get().metadata_get(part_key, &text);
  if (error < 0 && error != -ENOENT) return fail_ceph(error, "read the mark of an image");
  if (error >= 0 && text == id) return true;
  if (const auto source = copied_from(image)) return *source == snap_of(id);
  return marked ? Result<bool>(false) : is_empty(image, size);
}

// A string as Ceph encodes it.
std::string encoded(const std::string& text) {
  const std::uint32_t size = htole32(static_cast<std::uint32_t>(text.size()));
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}
int exec(const Cluster& cluster, const char* object, const char* method, const std::string& in) {
  char out[16];
  return rados_exec(cluster.io(), object, "rbd", method, in.data(), in.size(), out, sizeof out);
}

// What librbd says of an image behind its way into the trash (cls_rbd, trash_state_set): from moving (1) to normal (0). false: it was not moving.
bool is_moved(const Cluster& cluster, const std::string& id) { return exec(cluster, "rbd_trash", "trash_state_set", encoded(id).append({'\0', '\1'})) >= 0; }

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const Claim& claim) {
  auto cluster = Cluster::connect(claim.place);
  if (!cluster) return std::unexpected(std::move(cluster.error()));
  auto id = (*cluster)->claim(claim.host, claim.take_over);
  if (!id) return std::unexpected(std::move(id.error()));
  return std::unique_ptr<Store>(new Store(std::move(*cluster), claim.host, std::move(*id)));
}

Result<std::string> Store::room() { return cluster_->mon(R"({"prefix": "df", "format": "json"})"); }

Result<Image> Store::look(const std::string& id) {
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  const auto part = notes->find(making(id));
  Image out;
  const auto image = OpenImage::open(*cluster_, id, true);
  if (!image) {
    if (image.error().code != Code::NotFound) return std::unexpected(image.error());
    // A death came before the image: what there is of it is to go.
    const auto torn = part != notes->end() ? Result<bool>(true) : is_half_removed(id);
    if (!torn) return std::unexpected(torn.error());
    if (*torn) out.kind = Image::Kind::Part;
    return out;
  }
  const auto mark = image->mark();
  const auto size = image->size();
  if (!mark) return std::unexpected(mark.error());
  if (!size) return std::unexpected(size.error());
  out.size = *size;
  timespec born{};
  if (image->get().get_create_timestamp(&born) >= 0) out.born = born.tv_sec * 1'000'000'000LL + born.tv_nsec;
  out.kind = Image::Kind::Foreign;
  if (*mark && (*mark)->id == id) {
    out.kind = (*mark)->snapshot ? Image::Kind::Snapshot : Image::Kind::Volume;
    out.luks = (*mark)->luks;
  } else if (part != notes->end()) {  // a copy has its source's mark until it is published
    const auto ours = is_part(*image, id, out.size, mark->has_value());
    if (!ours) return std::unexpected(ours.error());
    if (*ours) out.kind = Image::Kind::Part;
    out.luks = *ours && part->second.starts_with("luks ");
  }
  return out;
}

Result<std::set<std::string>> Store::images() {
  std::vector<rbd_image_spec_t> room(64);
  std::size_t count = room.size();
  int error = 0;
  while ((error = rbd_list2(cluster_->io(), room.data(), &count)) == -ERANGE) room.resize(count);
  if (error < 0) return fail_ceph(error, "list the images of the Ceph pool");
  std::set<std::string> out;
  for (std::size_t i = 0; i < count; ++i) out.insert(room[i].name);
  rbd_image_spec_list_cleanup(room.data(), count);
  // librbd counts among them what is being removed, by a name that another may have since, or nobody.
  if (const auto all = trash())
    for (const auto& [id, one] : *all) {
      if (one.source != RBD_TRASH_IMAGE_SOURCE_REMOVING || !out.contains(one.name)) continue;
      const auto listed = cluster_->listed_id(one.name);
      if (!listed) return std::unexpected(listed.error());
      if (!*listed) out.erase(one.name);
    }
  return out;
}

// What is deleted goes to the trash first, then loses the object of its name, and at last its line in the directory (librbd, trash::MoveRequest). Behind a death before the last of these nobody opens it, and nobody else gets its name.
Result<bool> Store::is_half_removed(const std::string& name) {
  const auto id = cluster_->listed_id(name);
  if (!id) return std::unexpected(id.error());
  if (!*id) return false;
  const auto named = cluster_->read("rbd_id." + name);
  if (!named) return std::unexpected(named.error());
  if (*named) return false;
  const auto all = trash();
  if (!all) return std::unexpected(all.error());
  // In the trash by somebody's wish it is theirs. One that is not there and has its header has lost its name in another way: nothing says that it is to go.
  if (const auto there = all->find(**id); there != all->end()) return there->second.source == RBD_TRASH_IMAGE_SOURCE_REMOVING;
  const auto header = cluster_->read("rbd_header." + **id);
  if (!header) return std::unexpected(header.error());
  return !*header;
}

// By its object, since librbd's own list leaves out what is being removed.
Result<std::map<std::string, Trashed>> Store::trash() {
  const auto all = cluster_->omap("rbd_trash");
  if (!all) return std::unexpected(all.error());
  std::map<std::string, Trashed> out;
  for (const auto& [name, value] : *all) {
    if (!name.starts_with("id_")) continue;
    auto one = read_trashed(value);
    if (!one) return fail(Code::Internal, fmt::format("what the trash of the Ceph pool says of the image {} is not understood", name.substr(3)));
    out[name.substr(3)] = std::move(*one);
  }
  return out;
}

Result<std::vector<std::string>> Store::ids() {
  auto out = images();
  if (!out) return std::unexpected(std::move(out.error()));
  std::erase_if(*out, [](const std::string& name) { return name.starts_with(left); });
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  for (const auto& [name, value] : *notes)
    if (name.starts_with("making.")) out->insert(name.substr(7));
  return std::vector<std::string>(out->begin(), out->end());
}

Result<void> Store::make(const std::string& id, std::int64_t size, const std::string& header) {
  if (const auto there = OpenImage::open(*cluster_, id, true); there || there.error().code != Code::NotFound) return there ? fail(Code::Exists, fmt::format("there is an image {}", id)) : std::unexpected(there.error());
  // First of all that it is ours: a death after this leaves one that we know.
  if (auto done = cluster_->note(making(id), header.empty() ? "plain 0" : "luks 0", host_); !done) return done;
  if (!header.empty())
    if (auto done = cluster_->write(header_of(id), header); !done) return done;
  const Options options;
  if (const int error = rbd_create4(cluster_->io(), id.c_str(), static_cast<std::uint64_t>(size), options.get()); error < 0) {
    // Somebody was faster: it is not ours.
    if (error == -EEXIST) (void)cluster_->forget(making(id), host_);
    return fail_ceph(error, "make the image " + id);
  }
  const auto image = OpenImage::open(*cluster_, id, false);
  return image ? set(*image, part_key, id) : std::unexpected(image.error());
}

Result<void> Store::copy(const std::string& id, const std::string& source, std::int64_t size, const Alive& alive) {
  if (const auto there = OpenImage::open(*cluster_, id, true); there || there.error().code != Code::NotFound) return there ? fail(Code::Exists, fmt::format("there is an image {}", id)) : std::unexpected(there.error());
  auto from = OpenImage::open(*cluster_, source, false);
  if (!from) return std::unexpected(std::move(from.error()));
  const auto mark = from->mark();
  const auto had = from->size();
  if (!mark) return std::unexpected(mark.error());
  if (!had) return std::unexpected(had.error());
  if (!*mark || (*mark)->id != source) return fail(Code::Conflict, fmt::format("the image {} is not ours", source));
  const bool flat = (*mark)->depth + 1 > deepest;
  if (auto done = cluster_->note(making(id), fmt::format("{} {} {}", (*mark)->luks ? "luks" : "plain", flat ? 0 : (*mark)->depth + 1, source), host_); !done) return done;
  if ((*mark)->luks) {
    const auto bytes = header(source);
    if (!bytes) return std::unexpected(bytes.error());
    if (auto done = cluster_->write(header_of(id), *bytes); !done) return done;
  }
  if (auto done = free_of_dead(*cluster_, *from, id_, host_, source); !done) return done;
  // One of an earlier try is of an earlier moment.
  const auto snaps = snaps_of(*from);
  if (!snaps) return std::unexpected(snaps.error());
  for (const Snap& one : *snaps)
    if (!one.trash && one.name == snap_of(id))
      if (const int error = from->get().snap_remove(one.name.c_str()); error < 0 && error != -ENOENT) return fail_ceph(error, "remove a snapshot of the image " + source);
  if (const int error = from->get().snap_create(snap_of(id).c_str()); error < 0) return fail_ceph(error, "take a snapshot of the image " + source);
  {
    const Options options;
    rbd_image_options_set_uint64(options.get(), RBD_IMAGE_OPTION_CLONE_FORMAT, 2);
    if (const int error = rbd_clone3(cluster_->io(), source.c_str(), snap_of(id).c_str(), cluster_->io(), id.c_str(), options.get()); error < 0) return fail_ceph(error, "copy the image " + source);
  }
  const auto image = OpenImage::open(*cluster_, id, false);
  if (!image) return std::unexpected(image.error());
  if (auto done = set(*image, part_key, id); !done) return done;
  // Deleted it stays for what was made of it, and goes with the last of that; nothing by its name is left, so the copy has its mark before.
  if (const int error = from->get().snap_remove(snap_of(id).c_str()); error < 0 && error != -ENOENT) return fail_ceph(error, "remove a snapshot of the image " + source);
  if (size > *had)
    if (const int error = image->get().resize(static_cast<std::uint64_t>(size)); error < 0) return fail_ceph(error, "make the image " + id + " larger");
  Progress progress(alive);
  if (flat)
    if (const int error = image->get().flatten_with_progress(progress); error < 0) return fail_ceph(error, "copy what the image " + id + " shares");
  return {};
}

Result<void> Store::publish(const std::string& id, bool snapshot) {
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  const auto part = notes->find(making(id));
  if (part == notes->end()) return fail(Code::Internal, fmt::format("there is no half made image {}", id));
  const auto words = split(part->second, ' ');
  int depth = 0;
  if (words.size() < 2 || std::from_chars(words[1].data(), words[1].data() + words[1].size(), depth).ec != std::errc()) return fail(Code::Internal, fmt::format("what is noted of the half made image {} is not understood", id));
  const auto image = OpenImage::open(*cluster_, id, false);
  if (!image) return std::unexpected(image.error());
  const Mark mark{.id = id, .snapshot = snapshot, .luks = words[0] == "luks", .depth = depth};
  if (auto done = set(*image, key, print(mark)); !done) return done;
  if (auto done = cluster_->forget(making(id), host_); !done) return done;
  (void)image->get().metadata_remove(part_key);  // without the note it says nothing
  return {};
}

Result<void> Store::remove_image(const std::string& name, const Alive& alive) {
  librados::IoCtx io = io_of(*cluster_);
  Progress progress(alive);
  const int error = librbd::RBD().remove_with_progress(io, name.c_str(), progress);
  if (error != -EBUSY) return error < 0 && error != -ENOENT ? Result<void>(fail_ceph(error, "remove the image " + name)) : Result<void>();
  {
    const auto image = OpenImage::open(*cluster_, name, true);
    if (!image) return image.error().code == Code::NotFound ? end_move(name) : std::unexpected(image.error());
    const auto watched = image->is_watched(*cluster_);
    if (!watched) return std::unexpected(watched.error());
    if (*watched) return fail(Code::Unavailable, fmt::format("the image {} is watched by somebody still (rbd status): an engine that has just died is for half a minute", name));
  }
  return put_aside(name);
}

// Into the trash, where a death broke that off: librbd refuses to go on behind some steps, and while the image is watched, which by one that was killed may be for ever. Its name is free then, and the image is deleted once nobody watches it.
Result<void> Store::end_move(const std::string& name) {
  const auto line = cluster_->listed_id(name);
  if (!line) return std::unexpected(line.error());
  const auto all = trash();
  if (!all) return std::unexpected(all.error());
  const auto is_removing = [](const Trashed& one) { return one.source == RBD_TRASH_IMAGE_SOURCE_REMOVING; };
  if (*line) {
    if (const auto there = all->find(**line); there == all->end() || !is_removing(there->second)) return fail(Code::Unavailable, fmt::format("the image {} is half removed, and Ceph says that it is in use: rbd trash ls --all and rbd status --image-id {} say by whom", name, **line));
    if (const int error = exec(*cluster_, "rbd_directory", "dir_remove_image", encoded(name) + encoded(**line)); error < 0 && error != -ENOENT) return fail_ceph(error, "free the name of the image " + name);
  }
  for (const auto& [id, one] : *all)
    if (one.name == name && is_removing(one) && is_moved(*cluster_, id) && rbd_trash_remove(cluster_->io(), id.c_str(), 1) < 0) log_info("a deleted image stays in the trash of the Ceph pool until nobody watches it", {{"image", name}, {"id", id}});
  return {};
}

// Under a name that is no volume's, until its OSD has forgotten the watch. Of a rename that a death has ended Ceph keeps both names' objects, and its directory has one: that one is the image's.
Result<void> Store::put_aside(const std::string& name) {
  const auto id = [&]() -> Result<std::string> {
    const auto image = OpenImage::open(*cluster_, name, true);
    return image ? image->id() : std::unexpected(image.error());
  }();
  if (!id) return std::unexpected(id.error());
  const std::string aside = std::string(left) + *id;
  const auto listed = images();
  if (!listed) return std::unexpected(listed.error());
  if (listed->contains(aside)) return cluster_->remove("rbd_id." + name);
  if (auto done = cluster_->remove("rbd_id." + aside); !done) return done;
  if (const int error = rbd_rename(cluster_->io(), name.c_str(), aside.c_str()); error < 0) return fail_ceph(error, "put the image " + name + " aside");
  log_warn("a deleted image is kept for a watch that nobody has: it goes once its OSD was started anew", {{"image", name}, {"as", aside}});
  return {};
}

Result<void> Store::drop(const std::string& id, const Alive& alive) {
  const auto seen = look(id);
  if (!seen) return std::unexpected(seen.error());
  if (seen->kind == Image::Kind::Foreign) return fail(Code::Conflict, fmt::format("the image {} is not ours", id));
  if (seen->kind == Image::Kind::Volume || seen->kind == Image::Kind::Snapshot) return cluster_->forget(making(id), host_);  // it was published
  if (seen->kind == Image::Kind::Part)
    if (auto done = remove_image(id, alive); !done) return done;
  // The first thing that Ceph makes of an image, by which no other has the name; it does not remove it if that was all.
  const auto listed = images();
  if (!listed) return std::unexpected(listed.error());
  if (!listed->contains(id))
    if (auto done = cluster_->remove("rbd_id." + id); !done) return done;
  if (auto done = cluster_->remove(header_of(id)); !done) return done;
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  // The snapshot of its source, if a death came before it was deleted.
  if (const auto part = notes->find(making(id)); part != notes->end())
    if (const auto words = split(part->second, ' '); words.size() == 3) {
      const auto source = OpenImage::open(*cluster_, words[2], false);
      if (!source && source.error().code != Code::NotFound) return std::unexpected(source.error());
      if (source)
        if (auto done = free_of_dead(*cluster_, *source, id_, host_, words[2]); !done) return done;
      if (source)
        if (const int error = source->get().snap_remove(snap_of(id).c_str()); error < 0 && error != -ENOENT) return fail_ceph(error, "remove a snapshot of the image " + words[2]);
    }
  return cluster_->forget(making(id), host_);
}

// Ceph names what it deletes first, and goes on with it after a death when it is asked to. What is kept for copies is refused by it.
void Store::sweep() {
  if (const auto all = images())
    for (const std::string& name : *all)
      if (name.starts_with(left) && rbd_remove(cluster_->io(), name.c_str()) >= 0) log_info("an image that was kept for a watch is deleted", {{"image", name}});
  const auto all = trash();
  if (!all) return log_warn("what is in the trash of the Ceph pool cannot be seen", {{"why", all.error().message}});
  int gone = 0;
  for (const auto& [id, one] : *all) {
    const bool removing = one.source == RBD_TRASH_IMAGE_SOURCE_REMOVING;
    if (!removing && one.source != RBD_TRASH_IMAGE_SOURCE_USER_PARENT) continue;
    // As long as the directory has its name it is for who removes that: the name would stay there, and by it another image might be meant a moment later.
    if (const auto listed = cluster_->listed_id(one.name); !listed || *listed == id) continue;
    int error = rbd_trash_remove(cluster_->io(), id.c_str(), removing);
    // A death came as it was in the trash and that was not said yet.
    if ((error == -EBUSY || error == -EUCLEAN) && removing && is_moved(*cluster_, id)) error = rbd_trash_remove(cluster_->io(), id.c_str(), 1);
    gone += error >= 0 ? 1 : 0;
  }
  if (gone > 0) log_info("the trash of the Ceph pool was gone through", {{"there", std::to_string(all->size())}, {"deleted", std::to_string(gone)}});
}

Result<void> Store::remove(const std::string& id, const Alive& alive) {
  const auto seen = look(id);
  if (!seen) return std::unexpected(seen.error());
  if (seen->kind == Image::Kind::None) return cluster_->remove(header_of(id));
  if (seen->kind != Image::Kind::Volume && seen->kind != Image::Kind::Snapshot) return fail(Code::Conflict, fmt::format("the image {} is not ours", id));
  {
    const auto image = OpenImage::open(*cluster_, id, false);
    if (!image) return std::unexpected(image.error());
    const auto snaps = snaps_of(*image);
    if (!snaps) return std::unexpected(snaps.error());
    bool copied = false;
    for (const Snap& one : *snaps) {
      copied = copied || one.trash;
      if (!one.trash && !one.name.starts_with("fairlead.")) return fail(Code::Conflict, fmt::format("the image {} has the snapshot {}, which is not ours: remove that first (rbd snap rm)", id, one.name));
    }
    if (auto done = free_of_dead(*cluster_, *image, id_, host_, id); !done) return done;
    // Its key goes first: what the disks keep of its data is of no use then. Copies have headers of their own.
    if (seen->luks)
      if (auto done = cluster_->write(header_of(id), std::string(1 << 20, '\0')); !done) return done;
    for (const Snap& one : *snaps)
      if (!one.trash)
        if (const int error = image->get().snap_remove(one.name.c_str()); error < 0 && error != -ENOENT) return fail_ceph(error, "remove a snapshot of the image " + id);
    // Of what copies were made of stays what they share, until the last of them goes; what was written since takes no room. One that is a copy itself would have to be given its source's data for that.
    Progress progress(alive);
    if (copied && !is_copy(*image))
      if (const int error = image->get().resize2(0, true, progress); error < 0) return fail_ceph(error, "empty the image " + id);
  }
  if (auto done = cluster_->remove(header_of(id)); !done) return done;
  // No engine serves it. The image is the last to go: what a death leaves before is gone on with.
  const auto notes = cluster_->notes();
  if (!notes) return std::unexpected(notes.error());
  for (const std::string& note : engine_notes_of(*notes, id))
    if (auto done = cluster_->forget(note, host_); !done) return done;
  return remove_image(id, alive);
}

Result<void> Store::grow(const std::string& id, std::int64_t size, const Alive& alive) {
  const auto image = OpenImage::open(*cluster_, id, false);
  if (!image) return std::unexpected(image.error());
  const auto mark = image->mark();
  const auto had = image->size();
  if (!mark) return std::unexpected(mark.error());
  if (!had) return std::unexpected(had.error());
  if (!*mark || (*mark)->id != id) return fail(Code::Conflict, fmt::format("the image {} is not ours", id));
  if (*had > size) return fail(Code::Internal, id + " is larger than that: it does not shrink");
  if (auto done = free_of_dead(*cluster_, *image, id_, host_, id); !done) return done;
  Progress progress(alive);
  const int error = image->get().resize2(static_cast<std::uint64_t>(size), false, progress);
  return error < 0 ? Result<void>(fail_ceph(error, "make the image " + id + " larger")) : Result<void>();
}

Result<std::string> Store::header(const std::string& id) {
  auto bytes = cluster_->read(header_of(id));
  if (!bytes) return std::unexpected(std::move(bytes.error()));
  return *bytes ? Result<std::string>(std::move(**bytes)) : fail(Code::NotFound, fmt::format("the header of the encrypted volume {} is not there", id));
}
Result<void> Store::set_header(const std::string& id, const std::string& header) { return cluster_->write(header_of(id), header); }

Result<std::string> Store::journal() {
  auto bytes = cluster_->read(journal_object);
  return bytes ? Result<std::string>(bytes->value_or("")) : std::unexpected(std::move(bytes.error()));
}
Result<void> Store::append(const std::string& bytes) { return cluster_->append(journal_object, bytes); }
Result<void> Store::cut(std::size_t size) { return cluster_->cut(journal_object, size); }
Result<void> Store::replace(const std::string& bytes) { return cluster_->write(journal_object, bytes); }

}  // namespace fairlead::ceph
