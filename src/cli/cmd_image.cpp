// SPDX-License-Identifier: Apache-2.0
// image build | import | list | rm: the local image store.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <set>

#include "base/files.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/site_files.h"

namespace fairlead::cli {

using kube::Json;

namespace {

// Images that objects name, with one that does.
Result<std::map<std::string, std::string>> images_in_use(Context& context) {
  std::map<std::string, std::string> used;
  if (!running_server(context.globals.state_dir)) return used;
  auto session = context.session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto pods = session->list(kube::resources::pods);
  if (!pods) return std::unexpected(std::move(pods.error()));
  for (const auto& pod : *pods)
    for (const char* list : {"initContainers", "containers"})
      for (const auto& container : pod["spec"][list].items()) used.try_emplace(container["image"].string(), kube::space_of(pod) + "/" + kube::name_of(pod));
  return used;
}

// Runs a script that speaks to the user itself.
Result<int> run_to_the_end(const std::vector<std::string>& argv) {
  auto child = Child::start({.argv = argv, .environment = {}, .working_directory = "", .stdin_fd = -1, .stdout_fd = STDOUT_FILENO, .stderr_fd = STDERR_FILENO});
  if (!child) return std::unexpected(std::move(child.error()));
  for (;;) {
    auto exit = child->wait(std::chrono::hours(1));
    if (!exit) return std::unexpected(std::move(exit.error()));
    if (*exit) return (*exit)->code == 0 ? 0 : 1;  // it has said why
  }
}

}  // namespace

void add_image(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("image", "Node images: build, import, list, remove");
  command->require_subcommand(1);
  add_globals(*command, context);
  set_examples(*command, {{"sudo fairlead image build slurm", "from images/slurm, unless it is there already"}, {"fairlead image list", "what is in the store"}});

  struct Build {
    std::string recipe;
    bool force = false, verify = false;
  };
  auto build_options = std::make_shared<Build>();
  CLI::App* build = command->add_subcommand("build", "Build an image from its recipe into the store");
  build->add_option("recipe", build_options->recipe, "name of a recipe (slurm, busybox) or a folder with recipe.yaml")->required();
  build->add_flag("--force", build_options->force, "build even if it is up to date");
  build->add_flag("--verify", build_options->verify, "only check what is stored");
  add_globals(*build, context);
  set_examples(*build, {{"sudo fairlead image build slurm", "a minute or two the first time"}});
  build->callback([build_options, &context] {
    context.action = [build_options, &context]() -> Result<int> {
      const std::string builder = find_data(context.own_dir, "images/build.sh");
      if (builder.empty()) return fail(Code::NotFound, fmt::format("images/build.sh was not found above {}: run the fairlead of a checkout or a whole installation", context.own_dir));
      std::string recipe = build_options->recipe;
      if (!exists(recipe + "/recipe.yaml")) recipe = builder.substr(0, builder.rfind('/')) + "/" + build_options->recipe.substr(0, build_options->recipe.find(':'));
      if (!exists(recipe + "/recipe.yaml")) return fail(Code::NotFound, fmt::format("there is no recipe \"{}\": recipes are the folders beside {}", build_options->recipe, builder));
      if (::geteuid() != 0) return fail(Code::Forbidden, "not root: an image is a root file system, so run it again with sudo");
      if (auto made = make_dirs(context.globals.state_dir + "/images"); !made) return std::unexpected(std::move(made.error()));
      std::vector<std::string> argv{"/bin/bash", builder, recipe, context.globals.state_dir + "/images"};
      if (build_options->force) argv.emplace_back("--force");
      if (build_options->verify) argv.emplace_back("--verify");
      return run_to_the_end(argv);
    };
  });

  struct Import {
    std::string source, name;
  };
  auto import_options = std::make_shared<Import>();
  CLI::App* import = command->add_subcommand("import", "Take an image that somebody else built into the store");
  import->add_option("source", import_options->source, "a docker-archive or oci-archive file, oci:DIR, docker-archive:FILE or oci-archive:FILE")->required();
  import->add_option("--name", import_options->name, "NAME:TAG in the store; default: the last part of the image's own reference");
  add_globals(*import, context);
  set_examples(*import, {{"sudo fairlead image import fairlead-server.tar", "as `docker save` or skopeo wrote it"},
                         {"sudo fairlead image import oci:layout --name tools:1", "a folder in the OCI layout"}});
  import->callback([import_options, &context] {
    context.action = [import_options, &context]() -> Result<int> {
      const std::string importer = find_data(context.own_dir, "images/import.sh");
      if (importer.empty()) return fail(Code::NotFound, fmt::format("images/import.sh was not found above {}: run the fairlead of a checkout or a whole installation", context.own_dir));
      if (::geteuid() != 0) return fail(Code::Forbidden, "not root: an image is a root file system, so run it again with sudo");
      std::vector<std::string> argv{"/bin/bash", importer, import_options->source, context.globals.state_dir + "/images"};
      if (!import_options->name.empty()) argv.push_back(import_options->name);
      return run_to_the_end(argv);
    };
  });

  CLI::App* listing = command->add_subcommand("list", "Images in the store");
  add_globals(*listing, context);
  set_examples(*listing, {{"fairlead image list", ""}, {"fairlead image list -o json", "for a script"}});
  listing->callback([&context] {
    context.action = [&context]() -> Result<int> {
      const auto images = list_images(context.globals.state_dir);
      if (!context.wants("table")) {
        Json out = Json::array();
        for (const auto& image : images) {
          Json one = Json::object({{"name", image.name}, {"digest", image.digest}, {"sizeBytes", image.size_bytes}});
          if (image.created) one.set("created", print_time(*image.created));
          out.push(std::move(one));
        }
        print_json_or_yaml(out, context.globals.output);
        return 0;
      }
      if (images.empty()) {
        fmt::print(stderr, "No images in {}/images; build one with `sudo fairlead image build slurm`.\n", context.globals.state_dir);
        return 0;
      }
      std::vector<Row> rows{{{.text = "NAME", .style = Style::Dim}, {.text = "DIGEST", .style = Style::Dim}, {.text = "SIZE", .style = Style::Dim, .right = true}, {.text = "AGE", .style = Style::Dim, .right = true}}};
      for (const auto& image : images)
        rows.push_back({{.text = image.name}, {.text = image.digest.substr(0, 12)}, {.text = fmt::format("{} MB", image.size_bytes / 1'000'000), .right = true},
                        {.text = image.created ? print_age(std::max(context.clock.now() - *image.created, std::chrono::nanoseconds(0))) : "-", .right = true}});
      fmt::print("{}", draw_rows(rows, "", context.look()));
      return 0;
    };
  });

  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* remove = command->add_subcommand("rm", "Remove images that no pod uses");
  remove->add_option("name", *names, "NAME:TAG")->required();
  add_globals(*remove, context);
  set_examples(*remove, {{"sudo fairlead image rm slurm:22.05", ""}});
  remove->callback([names, &context] {
    context.action = [names, &context]() -> Result<int> {
      auto used = images_in_use(context);
      if (!used) return std::unexpected(std::move(used.error()).in("find out which images are in use"));
      for (const auto& name : *names) {
        const auto colon = name.find(':');
        const std::string first = name.substr(0, colon), tag = colon == std::string::npos ? "" : name.substr(colon + 1);
        const auto plain = [](const std::string& part) { return !part.empty() && part[0] != '.' && part.find('/') == std::string::npos; };
        if (!plain(first) || !plain(tag)) return fail(Code::Invalid, fmt::format("\"{}\" is not NAME:TAG as `fairlead image list` shows it", name));
        const std::string dir = image_dir(context.globals.state_dir, name);
        if (!exists(dir)) return fail(Code::NotFound, fmt::format("there is no image {}: see `fairlead image list`", name));
        if (const auto by = used->find(name); by != used->end()) return fail(Code::Conflict, fmt::format("pod {} uses the image {}: delete the pod first", by->second, name));
        // Its name goes first, so that nothing finds half an image.
        const std::string doomed = context.globals.state_dir + "/images/.old-" + first + "-" + tag;
        if (::rename(dir.c_str(), doomed.c_str()) != 0) return fail_errno(errno, "remove " + name);
        if (auto done = remove_tree(doomed); !done) return std::unexpected(std::move(done.error()));
        ::rmdir(dir.substr(0, dir.rfind('/')).c_str());
        fmt::print("image {} removed\n", name);
      }
      return 0;
    };
  });
}

}  // namespace fairlead::cli
