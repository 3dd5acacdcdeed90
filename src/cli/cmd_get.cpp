// SPDX-License-Identifier: Apache-2.0
// get: objects as tables made by the server, or whole.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/encoding.h"
#include "cli/command.h"

namespace fairlead::cli {

using kube::Json;

namespace {

constexpr const char* kTableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

struct Options {
  std::vector<std::string> what;
  std::string space, selector;
  bool all_namespaces = false, watch = false, no_headers = false;
};

std::string cell_text(const Json& cell) {
  if (cell.is_string()) return clean(cell.string());
  if (cell.is_null()) return "<none>";
  return kube::print_json(cell);
}

std::string upper(std::string text) {
  for (char& one : text) one = static_cast<char>(one >= 'a' && one <= 'z' ? one - 'a' + 'A' : one);
  return text;
}

// Columns keep their widths between the events of a watch, so that rows stay below their headings.
class TablePrinter {
 public:
  TablePrinter(bool wide, bool with_namespace, bool headers) : wide_(wide), with_namespace_(with_namespace), headers_(headers) {}
  void print(const Json& table) {
    if (!table["columnDefinitions"].items().empty()) {
      columns_.clear();
      for (const auto& column : table["columnDefinitions"].items()) columns_.push_back({column["name"].string(), column["priority"].integer() == 0 || wide_});
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : table["rows"].items()) {
      std::vector<std::string> cells;
      if (with_namespace_) cells.push_back(kube::space_of(row["object"]));
      const auto& values = row["cells"].items();
      for (std::size_t i = 0; i < std::min(values.size(), columns_.size()); ++i)
        if (columns_[i].second) cells.push_back(cell_text(values[i]));
      rows.push_back(std::move(cells));
    }
    if (rows.empty()) return;
    if (headers_ && !printed_) {
      std::vector<std::string> head;
      if (with_namespace_) head.push_back("NAMESPACE");
      for (const auto& [name, shown] : columns_)
        if (shown) head.push_back(upper(name));
      rows.insert(rows.begin(), head);
    }
    printed_ = true;
    for (const auto& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (widths_.size() <= i) widths_.push_back(0);
        widths_[i] = std::max(widths_[i], columns_of(row[i]));
      }
    for (const auto& row : rows) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) line += i + 1 == row.size() ? row[i] : pad_to(row[i], widths_[i] + 3);
      fmt::print("{}\n", line);
    }
    std::fflush(stdout);
  }
  bool printed() const { return printed_; }

 private:
  bool wide_, with_namespace_, headers_;
  bool printed_ = false;
  std::vector<std::pair<std::string, bool>> columns_;
  std::vector<int> widths_;
};

Result<int> watch_table(Session& session, const std::string& path, const std::string& query, const std::string& version, TablePrinter& printer) {
  auto body = session.api().open_raw(path + "?watch=true&resourceVersion=" + version + query, kTableAccept);
  if (!body) return std::unexpected(std::move(body.error()));
  std::string pending;
  for (;;) {
    auto piece = (*body)->read(std::chrono::hours(1));
    if (!piece) return std::unexpected(std::move(piece.error()));
    if (!*piece) continue;
    if ((*piece)->empty()) return 0;
    pending += **piece;
    if ((*body)->status() >= 300) return std::unexpected(kube::error_of((*body)->status(), pending));
    for (auto end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      auto event = kube::parse_json(std::string_view(pending).substr(0, end));
      pending.erase(0, end + 1);
      if (!event) continue;
      const std::string& type = (*event)["type"].string();
      if (type == "ERROR") return fail(Code::Expired, (*event)["object"]["message"].string_or("the watch ended"));
      if (type != "BOOKMARK") printer.print((*event)["object"]);
    }
  }
}

Result<int> get_kind(Context& context, Session& session, const Options& options, const std::string& kind_text, const std::vector<std::string>& names, bool& found) {
  auto kind = session.find_kind(kind_text);
  if (!kind) return std::unexpected(std::move(kind.error()));
  const bool everywhere = options.all_namespaces && kind->resource.namespaced;
  const std::string space = everywhere ? "" : options.space.empty() ? session.default_namespace() : options.space;
  const std::string& output = context.globals.output;
  std::string query;
  if (!options.selector.empty()) query += "&labelSelector=" + http::escape(options.selector);

  if (output == "table" || output == "wide") {
    TablePrinter printer(output == "wide", everywhere, !options.no_headers);
    std::vector<std::string> wanted = names.empty() ? std::vector<std::string>{""} : names;
    std::string version;
    for (const auto& name : wanted) {
      const std::string path = kube::path_of(kind->resource, space, name);
      auto table = session.request("GET", path + (name.empty() && !query.empty() ? "?" + query.substr(1) : ""), {}, "", kTableAccept);
      if (!table) return std::unexpected(std::move(table.error()));
      printer.print(*table);
      version = kube::version_of(*table);
    }
    found = found || printer.printed();
    if (!options.watch) return 0;
    if (names.size() == 1) query += "&fieldSelector=" + http::escape("metadata.name=" + names.front());
    return watch_table(session, kube::path_of(kind->resource, space, ""), query, version, printer);
  }

  std::vector<Json> objects;
  if (names.empty()) {
    auto all = session.list(kind->resource, space, options.selector);
    if (!all) return std::unexpected(std::move(all.error()));
    objects = std::move(*all);
  } else {
    for (const auto& name : names) {
      auto one = session.get(kind->resource, space, name);
      if (!one) return std::unexpected(std::move(one.error()));
      objects.push_back(std::move(*one));
    }
  }
  found = found || !objects.empty();
  if (output == "name") {
    for (const auto& object : objects) fmt::print("{}{}/{}\n", kind->singular.empty() ? kind->resource.plural : kind->singular, kind->resource.group.empty() ? "" : "." + kind->resource.group, kube::name_of(object));
  } else if (names.size() == 1) {
    print_json_or_yaml(objects.front(), output);
  } else {
    print_json_or_yaml(Json::object({{"apiVersion", "v1"}, {"kind", "List"}, {"items", Json::array(std::move(objects))}}), output);
  }
  return 0;
}

}  // namespace

void add_get(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("get", "Show objects of a kind");
  command->add_option("what", options->what, "KIND [NAME...], KIND,KIND or KIND/NAME")->required();
  command->add_option("-n,--namespace", options->space, "namespace")->type_name("NAME");
  command->add_flag("-A,--all-namespaces", options->all_namespaces, "all namespaces");
  command->add_option("-l,--selector", options->selector, "only with these labels, e.g. app=web")->type_name("LABELS");
  command->add_flag("-w,--watch", options->watch, "go on and show changes");
  command->add_flag("--no-headers", options->no_headers, "no headings");
  add_globals(*command, context);
  set_examples(*command, {{"fairlead get nodes", "the nodes"}, {"fairlead get pods -A -o wide", "all pods with their nodes"}, {"fairlead get machine worker-0 -o yaml", "one object, whole"}});
  command->callback([options, &context] {
    context.action = [options, &context]() -> Result<int> {
      const std::string& output = context.globals.output;
      constexpr std::string_view kForms[] = {"table", "wide", "json", "yaml", "name"};
      if (std::find(std::begin(kForms), std::end(kForms), output) == std::end(kForms))
        return fail(Code::Invalid, fmt::format("usage: -o {} is not known here; use table, wide, json, yaml or name", output));
      auto session = context.session();
      if (!session) return std::unexpected(std::move(session.error()));
      bool found = false;
      if (options->what.front().find('/') != std::string::npos) {
        for (const auto& word : options->what) {
          const auto slash = word.find('/');
          if (slash == std::string::npos) return fail(Code::Invalid, "usage: give either KIND/NAME each time, or KIND NAME...");
          auto done = get_kind(context, *session, *options, word.substr(0, slash), {word.substr(slash + 1)}, found);
          if (!done) return done;
        }
        return 0;
      }
      const auto kinds = split(options->what.front(), ',');
      const std::vector<std::string> names(options->what.begin() + 1, options->what.end());
      for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (i > 0 && found && output == "table") fmt::print("\n");
        auto done = get_kind(context, *session, *options, kinds[i], names, found);
        if (!done) return done;
      }
      if (!found && (output == "table" || output == "wide")) {
        const auto kind = session->find_kind(kinds.front());
        const bool cluster_wide = kinds.size() == 1 && kind && !kind->resource.namespaced;
        fmt::print(stderr, "No {} found{}.\n", options->what.front(), options->all_namespaces || cluster_wide ? "" : fmt::format(" in namespace {} (-A looks in all)", options->space.empty() ? session->default_namespace() : options->space));
      }
      return 0;
    };
  });
}

}  // namespace fairlead::cli
