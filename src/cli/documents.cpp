// SPDX-License-Identifier: Apache-2.0
// Files of objects: reading them and bringing the site to what they say.
#include <fmt/format.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/files.h"
#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;

namespace {

Result<std::string> read_all_of_stdin() {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0) return fail_errno(errno, "read stdin");
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

std::string lower(std::string text) {
  for (char& one : text) one = static_cast<char>(one >= 'A' && one <= 'Z' ? one - 'A' + 'a' : one);
  return text;
}

}  // namespace

std::string title_of(const Json& object) { return lower(object["kind"].string()) + "/" + kube::name_of(object); }

Result<std::vector<Json>> read_documents(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const auto& path : paths) {
    struct stat about {};
    if (path != "-" && ::stat(path.c_str(), &about) != 0) return fail(Code::NotFound, fmt::format("{}: no such file; give a YAML or JSON file of objects, e.g. examples/demo.yaml", path));
    if (path == "-" || !S_ISDIR(about.st_mode)) {
      files.push_back(path);
      continue;
    }
    auto names = list_dir(path);
    if (!names) return std::unexpected(std::move(names.error()));
    for (const auto& name : *names)
      if (name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json")) files.push_back(path + "/" + name);
  }
  std::vector<Json> documents;
  for (const auto& file : files) {
    auto text = file == "-" ? read_all_of_stdin() : read_file(file);
    if (!text) return std::unexpected(std::move(text.error()));
    auto parsed = kube::parse_yaml(*text);
    if (!parsed) return pass(std::move(parsed.error()), file);
    std::size_t number = 0;
    for (auto& document : *parsed) {
      ++number;
      std::vector<Json> objects;
      if (document["kind"].string() == "List")
        objects = document["items"].items();
      else
        objects.push_back(std::move(document));
      for (auto& object : objects) {
        for (const char* member : {"apiVersion", "kind"})
          if (object[member].string().empty()) return fail(Code::Invalid, fmt::format("{}: document {} has no {}", file == "-" ? "stdin" : file, number, member));
        if (kube::name_of(object).empty()) return fail(Code::Invalid, fmt::format("{}: document {} ({}) has no metadata.name", file, number, object["kind"].string()));
        documents.push_back(std::move(object));
      }
    }
  }
  if (documents.empty()) return fail(Code::Invalid, "there are no objects in what was given with -f");
  return documents;
}

namespace {

// For servers that do not know server-side apply: create, or a merge patch. What a file does not name any more stays.
Result<Json> create_or_merge(Session& session, const kube::Resource& resource, const std::string& space, const Json& object, bool there, bool dry_run) {
  const std::string options = std::string("?fieldManager=fairlead&fieldValidation=Strict") + (dry_run ? "&dryRun=All" : "");
  if (!there) return session.request("POST", kube::path_of(resource, space, "") + options, object);
  return session.request("PATCH", kube::path_of(resource, space, kube::name_of(object)) + options, object, "application/merge-patch+json");
}

// What a controller may have written between our look and our write does not count as ours.
bool same_but_status(Json a, Json b) {
  for (Json* const one : {&a, &b}) {
    one->erase("status");
    one->child("metadata").erase("resourceVersion");
    one->child("metadata").erase("managedFields");
  }
  return a == b;
}

}  // namespace

Result<Applied> apply_document(Session& session, const Json& document, ApplyHow how) {
  const std::string title = title_of(document);
  auto kind = session.find_kind(document["apiVersion"].string(), document["kind"].string());
  if (!kind) return pass(std::move(kind.error()), title);
  const auto& resource = kind->resource;
  Json object = document;
  std::string space;
  if (resource.namespaced) {
    space = kube::space_of(object);
    if (space.empty()) {
      space = session.default_namespace();
      object.child("metadata").set("namespace", space);
    }
  }
  const std::string options = std::string("?fieldManager=fairlead&fieldValidation=Strict") + (how.dry_run ? "&dryRun=All" : "") + (how.force ? "&force=true" : "");
  // Two rounds: somebody else may create or delete it between our look and our write.
  for (int round = 0;; ++round) {
    auto before = session.get(resource, space, kube::name_of(object));
    if (!before && before.error().code != Code::NotFound) return pass(std::move(before.error()), title);
    auto after = session.request("PATCH", kube::path_of(resource, space, kube::name_of(object)) + options, object, "application/apply-patch+yaml");
    if (!after && after.error().code == Code::Unsupported) after = create_or_merge(session, resource, space, object, before.has_value(), how.dry_run);
    if (after) return !before ? Applied::Created : kube::version_of(*after) == kube::version_of(*before) || same_but_status(*before, *after) ? Applied::Unchanged : Applied::Configured;
    if (after.error().code == Code::Conflict) after.error().message += "; --force-conflicts takes these fields over";
    if (round > 0 || (after.error().code != Code::Exists && after.error().code != Code::NotFound)) return pass(std::move(after.error()), title);
  }
}

void print_json_or_yaml(const Json& value, const std::string& output) {
  const std::string text = output == "yaml" ? kube::print_yaml(value) : kube::print_json_indented(value) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace fairlead::cli
