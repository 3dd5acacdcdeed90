// SPDX-License-Identifier: Apache-2.0
#include "apiserver/registry_bytes.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <string.h>

#include "base/result.h"

namespace fairlead::apiserver {

namespace {

constexpr std::string_view version_mark = "\"metadata\":{\"resourceVersion\":\"";
constexpr std::string_view managed_mark = ",\"managedFields\":";
constexpr std::string_view api_mark = "{\"apiVersion\":\"";

struct Reader {
  simdjson::ondemand::parser parser;
  std::string padded;
  simdjson::ondemand::document document;
};
Reader& reader_of_this_thread() {
  thread_local Reader reader;
  return reader;
}

}  // namespace

Template canonical(const kube::Json& object, const kube::Resource& resource, std::string_view managed_fields) {
  Template out;
  out.before.reserve(128);
  out.before.append(api_mark).append(resource.api_version()).append("\",\"kind\":\"").append(resource.kind).append("\",").append(version_mark);
  out.after.reserve(2048 + managed_fields.size());
  out.after += '"';
  if (!managed_fields.empty()) out.after.append(managed_mark).append(managed_fields);
  for (const auto& [name, value] : object["metadata"].members()) {
    if (name == "resourceVersion" || name == "managedFields") continue;
    out.after += ',';
    kube::append_json_string(out.after, name);
    out.after += ':';
    kube::append_json(out.after, value);
  }
  out.after += '}';
  for (const auto& [name, value] : object.members()) {
    if (name == "apiVersion" || name == "kind" || name == "metadata") continue;
    out.after += ',';
    kube::append_json_string(out.after, name);
    out.after += ':';
    kube::append_json(out.after, value);
  }
  out.after += '}';
  return out;
}

std::string join(const Template& parts, Revision revision) {
  const std::string number = std::to_string(revision);
  std::string out;
  out.reserve(parts.before.size() + number.size() + parts.after.size());
  return out.append(parts.before).append(number).append(parts.after);
}

Around around_revision(std::string_view bytes) {
  const auto mark = bytes.find(version_mark);
  INVARIANT(mark != std::string_view::npos);
  const auto start = mark + version_mark.size();
  const auto end = bytes.find('"', start);
  INVARIANT(end != std::string_view::npos);
  return {bytes.substr(0, start), bytes.substr(start, end - start), bytes.substr(end)};
}

std::string_view managed_fields_of(std::string_view bytes) {
  const auto mark = bytes.find(version_mark);
  const auto quote = mark == std::string_view::npos ? mark : bytes.find('"', mark + version_mark.size());
  if (quote == std::string_view::npos || bytes.substr(quote + 1, managed_mark.size()) != managed_mark) return {};
  const auto start = quote + 1 + managed_mark.size();
  int depth = 0;
  bool in_string = false;
  for (auto at = start; at < bytes.size(); ++at) {
    const char c = bytes[at];
    if (in_string) {
      if (c == '\\') ++at;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && --depth == 0) {
      return bytes.substr(start, at + 1 - start);
    }
  }
  return {};
}

std::string without_managed_fields(std::string_view bytes) {
  const std::string_view managed = managed_fields_of(bytes);
  if (managed.empty()) return std::string(bytes);
  const auto start = static_cast<std::size_t>(managed.data() - bytes.data());
  std::string out;
  out.reserve(bytes.size() - managed.size());
  return out.append(bytes.substr(0, start - managed_mark.size())).append(bytes.substr(start + managed.size()));
}

void common_parts(std::string_view bytes, std::vector<std::string_view>& parts) {
  constexpr std::string_view fields_mark = "\"fieldsV1\":";
  const std::string_view managed = managed_fields_of(bytes);
  std::size_t start = 0;  // of the fields that are being read; 0: none
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < managed.size(); ++at) {
    const char c = managed[at];
    if (in_string) {
      if (c == '\\') ++at;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
      if (depth == 2 && managed.substr(at, fields_mark.size()) == fields_mark) start = at + fields_mark.size();
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
      if (depth == 2 && start > 0) parts.push_back(managed.substr(start, at + 1 - start));
      if (depth == 2) start = 0;
    }
  }
}

std::string with_revision(std::string_view bytes, Revision revision) {
  const Around around = around_revision(bytes);
  std::string out;
  out.reserve(bytes.size() + 8);
  return out.append(around.before).append(std::to_string(revision)).append(around.after);
}

bool has_api_version(std::string_view bytes, std::string_view api_version) {
  return bytes.size() > api_mark.size() + api_version.size() && bytes.substr(api_mark.size(), api_version.size()) == api_version &&
         bytes[api_mark.size() + api_version.size()] == '"';
}

std::string with_api_version(std::string_view bytes, std::string_view api_version) {
  const auto end = bytes.find('"', api_mark.size());
  INVARIANT(end != std::string_view::npos);
  std::string out;
  out.reserve(bytes.size() + 8);
  return out.append(api_mark).append(api_version).append(bytes.substr(end));
}

std::string event_line(kube::EventType type, std::string_view object) {
  std::string_view name = "ADDED";
  if (type == kube::EventType::Modified) name = "MODIFIED";
  if (type == kube::EventType::Deleted) name = "DELETED";
  if (type == kube::EventType::Bookmark) name = "BOOKMARK";
  std::string out;
  out.reserve(object.size() + 40);
  return out.append("{\"type\":\"").append(name).append("\",\"object\":").append(object).append("}\n");
}

std::string bookmark_object(const kube::Resource& resource, Revision revision, bool initial_end) {
  return fmt::format(R"({{"apiVersion":"{}","kind":"{}","metadata":{{"resourceVersion":"{}","creationTimestamp":null{}}}}})", resource.api_version(), resource.kind, revision,
                     initial_end ? R"(,"annotations":{"k8s.io/initial-events-end":"true"})" : "");
}

bool mentions(std::string_view bytes, std::string_view text) { return ::memmem(bytes.data(), bytes.size(), text.data(), text.size()) != nullptr; }

Peek::Peek(std::string_view bytes) {
  Reader& reader = reader_of_this_thread();
  reader.padded.reserve(bytes.size() + simdjson::SIMDJSON_PADDING);
  reader.padded.assign(bytes);
  ok_ = reader.parser.iterate(simdjson::padded_string_view(reader.padded.data(), bytes.size(), reader.padded.capacity())).get(reader.document) == simdjson::SUCCESS;
}

std::optional<std::string> Peek::field(std::string_view dotted) {
  if (!ok_) return std::nullopt;
  Reader& reader = reader_of_this_thread();
  reader.document.rewind();
  simdjson::ondemand::object object;
  if (reader.document.get_object().get(object)) return std::nullopt;
  while (true) {
    const auto dot = dotted.find('.');
    simdjson::ondemand::value value;
    if (object.find_field_unordered(dotted.substr(0, dot)).get(value)) return std::nullopt;
    if (dot == std::string_view::npos) {
      simdjson::ondemand::json_type type;
      if (value.type().get(type)) return std::nullopt;
      if (type == simdjson::ondemand::json_type::string) {
        std::string_view text;
        if (value.get_string().get(text)) return std::nullopt;
        return std::string(text);
      }
      if (type == simdjson::ondemand::json_type::boolean) {
        bool flag = false;
        if (value.get_bool().get(flag)) return std::nullopt;
        return flag ? "true" : "false";
      }
      if (type == simdjson::ondemand::json_type::number) {
        std::string_view token = value.raw_json_token();
        while (!token.empty() && (token.back() == ' ' || token.back() == '\n')) token.remove_suffix(1);
        return std::string(token);
      }
      return std::nullopt;
    }
    if (value.get_object().get(object)) return std::nullopt;
    dotted.remove_prefix(dot + 1);
  }
}

std::map<std::string, std::string> Peek::labels() {
  std::map<std::string, std::string> out;
  if (!ok_) return out;
  Reader& reader = reader_of_this_thread();
  reader.document.rewind();
  simdjson::ondemand::object labels;
  if (reader.document["metadata"]["labels"].get_object().get(labels)) return out;
  for (auto field : labels) {
    std::string_view key, text;
    if (field.unescaped_key().get(key)) return out;
    std::string name(key);
    if (field.value().get_string().get(text)) continue;
    out.insert_or_assign(std::move(name), std::string(text));
  }
  return out;
}

}  // namespace fairlead::apiserver
