// SPDX-License-Identifier: Apache-2.0
#include "apiserver/table.h"

#include <fmt/format.h>

namespace fairlead::apiserver {
namespace {

Column name_column() {
  return {.name = "Name", .type = "string", .format = "name", .description = "Name must be unique within a namespace.", .priority = 0, .path = ".metadata.name", .cell = {}};
}
Column age_column() {
  return {.name = "Age", .type = "date", .format = "", .description = "Time since the object was created.", .priority = 0, .path = ".metadata.creationTimestamp", .cell = {}};
}

std::string text_of(const kube::Json& value) { return value.is_string() ? value.string() : kube::print_json(value); }

// How apiserver's CRD tables convert a found value to the column's type; what does not fit is null.
kube::Json convert(const std::vector<const kube::Json*>& found, const Column& column, Instant now) {
  if (found.empty() || found.front()->is_null()) return column.type == "date" ? kube::Json("<unknown>") : kube::Json();
  const kube::Json& first = *found.front();
  if (column.type == "integer") return first.is_number() ? kube::Json(first.integer()) : kube::Json();
  if (column.type == "number") return first.is_number() ? first : kube::Json();
  if (column.type == "boolean") return first.is_bool() ? first : kube::Json();
  if (column.type == "date") {
    const auto time = parse_time(first.string());
    return time ? kube::Json(print_age(now - *time)) : kube::Json("<invalid>");
  }
  std::string text;
  for (const kube::Json* value : found) {
    if (!text.empty()) text += ',';
    text += text_of(*value);
  }
  return text;
}

}  // namespace

Result<Include> parse_include(std::string_view text) {
  if (text.empty() || text == "Metadata") return Include::Metadata;
  if (text == "Object") return Include::Object;
  if (text == "None") return Include::None;
  return fail(Code::Invalid, fmt::format("Unable to convert to Table as requested: includeObject: Invalid value: \"{}\": must be 'Metadata', 'Object', 'None', or empty", text));
}

TableShape::TableShape(const Kind& kind) {
  std::vector<Column> columns = kind.columns;
  if (columns.empty()) columns = {name_column(), age_column()};
  const bool computed = static_cast<bool>(columns.front().cell);  // a built-in kind puts its Name where it wants: events, last
  if (columns.front().name != "Name" && !computed) columns.insert(columns.begin(), name_column());
  if (columns.front().name == "Name" && columns.front().format.empty()) columns.front().format = "name";
  for (Column& column : columns) {
    Shaped shaped{.column = std::move(column), .path = {}};
    if (auto path = TablePath::parse(shaped.column.path)) {
      shaped.path = std::move(*path);
    } else {
      shaped.broken = true;
    }
    columns_.push_back(std::move(shaped));
  }
}

kube::Json TableShape::definitions() const {
  std::vector<kube::Json> out;
  for (const Shaped& shaped : columns_) {
    const Column& column = shaped.column;
    out.push_back(kube::Json::object({{"name", column.name},
                                      // A date is computed to an age here: kubectl prints it as it comes.
                                      {"type", column.type},
                                      {"format", column.format},
                                      {"description", column.description},
                                      {"priority", column.priority}}));
  }
  return kube::Json::array(std::move(out));
}

kube::Json TableShape::row(const kube::Json& object, Include include, Instant now) const {
  std::vector<kube::Json> cells;
  cells.reserve(columns_.size());
  for (const Shaped& shaped : columns_) {
    if (shaped.column.cell) {
      cells.push_back(shaped.column.cell(object, now));
    } else if (shaped.broken || shaped.column.path.empty()) {
      cells.push_back(shaped.column.name == "Name" ? kube::Json(kube::name_of(object)) : kube::Json());
    } else {
      cells.push_back(convert(shaped.path.find(object), shaped.column, now));
    }
  }
  kube::Json row = kube::Json::object();
  row.set("cells", kube::Json::array(std::move(cells)));
  if (include == Include::Object) row.set("object", object);
  if (include == Include::Metadata) row.set("object", partial_object(object));
  if (include == Include::None) row.set("object", nullptr);
  return row;
}

kube::Json table_frame(const TableShape& shape, kube::Json metadata, std::vector<kube::Json> rows, bool with_definitions) {
  kube::Json table = kube::Json::object({{"kind", "Table"}, {"apiVersion", "meta.k8s.io/v1"}});
  table.set("metadata", std::move(metadata));
  table.set("columnDefinitions", with_definitions ? shape.definitions() : kube::Json::array());
  table.set("rows", kube::Json::array(std::move(rows)));
  return table;
}

kube::Json partial_object(const kube::Json& object) {
  kube::Json out = kube::Json::object({{"kind", "PartialObjectMetadata"}, {"apiVersion", "meta.k8s.io/v1"}});
  out.set("metadata", object["metadata"]);
  return out;
}

}  // namespace fairlead::apiserver
