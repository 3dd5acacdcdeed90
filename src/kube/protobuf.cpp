// SPDX-License-Identifier: Apache-2.0
// Kubernetes' protobuf bodies to JSON by the type table: no generated classes. kubectl >= 1.32 and typed client-go send them, with no way back.
// The envelope is "k8s\0" and a runtime.Unknown {typeMeta {apiVersion, kind}, raw, contentEncoding, contentType}.
#include <fmt/format.h>
#include <simdjson.h>

#include <cstring>
#include <unordered_map>

#include "base/clock.h"
#include "base/encoding.h"
#include "kube/type_table.h"

namespace fairlead::kube {

namespace {

// Of messages; each may be two levels of JSON (a list or map, and the object in it), so that the whole stays within what parse_json accepts.
constexpr int depth_limit = 64;
constexpr std::size_t json_depth_limit = 100;  // of JSON inside
constexpr std::string_view magic("k8s\0", 4);

// Thrown and caught in this file only: a malformed body unwinds from any depth.
struct Malformed {
  std::string why;
};

struct Entry {  // one field of a message
  std::uint32_t number = 0;
  unsigned wire = 0;
  std::uint64_t value = 0;  // wire types 0, 1, 5
  std::string_view bytes;   // wire type 2
};

class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) throw Malformed{"unexpected end"};
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw Malformed{"varint longer than 10 bytes"};
  }

  Entry next() {
    const std::uint64_t tag = varint();
    Entry entry;
    entry.wire = static_cast<unsigned>(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) throw Malformed{fmt::format("field number {}", tag >> 3)};
    entry.number = static_cast<std::uint32_t>(tag >> 3);
    switch (entry.wire) {
      case 0: entry.value = varint(); break;
      case 1: entry.value = fixed(8); break;
      case 2: {
        const std::uint64_t length = varint();
        if (length > rest_.size()) throw Malformed{"unexpected end"};
        entry.bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
        break;
      }
      case 5: entry.value = fixed(4); break;
      default: throw Malformed{fmt::format("wire type {}", entry.wire)};
    }
    return entry;
  }

 private:
  std::uint64_t fixed(std::size_t size) {
    if (rest_.size() < size) throw Malformed{"unexpected end"};
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    rest_.remove_prefix(size);
    return value;
  }
  std::string_view rest_;
};

std::string_view bytes_of(const Entry& entry) {
  if (entry.wire != 2) throw Malformed{fmt::format("field {} has wire type {}", entry.number, entry.wire)};
  return entry.bytes;
}
std::uint64_t varint_of(const Entry& entry) {
  if (entry.wire != 0) throw Malformed{fmt::format("field {} has wire type {}", entry.number, entry.wire)};
  return entry.value;
}
Json text_of(std::string_view bytes) {
  if (!simdjson::validate_utf8(bytes.data(), bytes.size())) throw Malformed{"a string is not UTF-8"};
  return bytes;
}

class Decoder {
 public:
  explicit Decoder(const TypeTable& table) : table_(table) {}

  Json envelope(std::string_view body) {
    enter();
    std::string api_version, kind, content_type;
    std::string_view raw;
    for (Wire wire(body.substr(magic.size())); !wire.done();) {
      const Entry entry = wire.next();
      if (entry.number == 1) {
        for (Wire meta(bytes_of(entry)); !meta.done();) {
          const Entry part = meta.next();
          if (part.number == 1) api_version = text_of(bytes_of(part)).string();
          if (part.number == 2) kind = text_of(bytes_of(part)).string();
        }
      } else if (entry.number == 2) {
        raw = bytes_of(entry);
      } else if (entry.number == 3 && !bytes_of(entry).empty()) {
        throw Malformed{fmt::format("content encoding \"{}\" is not supported", text_of(bytes_of(entry)).string())};
      } else if (entry.number == 4) {
        content_type = text_of(bytes_of(entry)).string();
      }
    }
    Json object = Json::object({{"apiVersion", api_version}, {"kind", kind}});
    if (content_type == "application/json") {
      object = json(raw);
    } else {
      const Type* type = table_.find_kind(api_version, kind);
      if (!type) throw Malformed{fmt::format("no kind \"{}\" is known for version \"{}\"", kind, api_version)};
      fields(object, raw, *type);
    }
    leave();
    return object;
  }

 private:
  void enter() {
    if (++depth_ > depth_limit) throw Malformed{fmt::format("nested deeper than {} levels", depth_limit)};
  }
  void leave() { --depth_; }

  static Json json(std::string_view raw) {
    auto parsed = parse_json(raw, {.depth_limit = json_depth_limit});
    if (!parsed) throw Malformed{parsed.error().message};
    return *std::move(parsed);
  }

  void fields(Json& object, std::string_view bytes, const Type& type) {
    enter();
    bool has_maps = false;
    for (Wire wire(bytes); !wire.done();) {
      const Entry entry = wire.next();
      const Field* field = type.find(entry.number);
      if (!field) continue;  // from a newer client: Go ignores it too
      if (field->map) {
        map_entry(object.child(field->json), bytes_of(entry), *field);
        has_maps = true;
      } else if (field->repeated) {
        items(object.child(field->json), entry, *field);
      } else if (field->inlined) {
        fields(object, bytes_of(entry), *field->message);
      } else {
        Json value = single(entry, *field);
        if (value.is_null() || (field->omit_empty && is_zero(value))) continue;
        object.set(field->json, std::move(value));
      }
    }
    if (has_maps) {
      for (const Field& field : type.fields)
        if (field.map)
          if (Json* map = object.find(field.json)) last_of_each_key(*map);
    }
    leave();
  }

  static bool is_zero(const Json& value) {
    return (value.is_string() && value.string().empty()) || (value.is_bool() && !value.boolean()) || (value.is_number() && value.number() == 0);
  }

  void items(Json& list, const Entry& entry, const Field& field) {
    if (!list.is_array()) list = Json::array();
    const bool number = field.type == FieldType::Bool || field.type == FieldType::Int32 || field.type == FieldType::Int64;
    if (number && entry.wire == 2) {  // packed
      for (Wire wire(entry.bytes); !wire.done();) list.push(single({.number = entry.number, .wire = 0, .value = wire.varint(), .bytes = {}}, field));
      return;
    }
    list.push(single(entry, field));
  }

  // Appends blindly: a look-up for each entry would be quadratic for what a hostile client can send.
  void map_entry(Json& map, std::string_view bytes, const Field& field) {
    if (!map.is_object()) map = Json::object();
    std::string key;
    Json value = field.type == FieldType::String || field.type == FieldType::Bytes ? Json("") : Json();
    for (Wire wire(bytes); !wire.done();) {
      const Entry entry = wire.next();
      if (entry.number == 1) key = text_of(bytes_of(entry)).string();
      if (entry.number == 2) value = single(entry, field);
    }
    map.members().emplace_back(std::move(key), std::move(value));
  }

  static void last_of_each_key(Json& map) {
    auto& members = map.members();
    std::unordered_map<std::string, std::size_t> places;
    std::vector<JsonMember> kept;
    for (JsonMember& member : members) {
      const auto [place, fresh] = places.emplace(member.first, kept.size());
      if (fresh) {
        kept.push_back(std::move(member));
      } else {
        kept[place->second].second = std::move(member.second);
      }
    }
    members = std::move(kept);
  }

  // null: nothing was sent (a zero time, an empty extension).
  Json single(const Entry& entry, const Field& field) {
    switch (field.type) {
      case FieldType::String: return text_of(bytes_of(entry));
      case FieldType::Bytes: return base64(bytes_of(entry));
      case FieldType::Bool: return varint_of(entry) != 0;
      case FieldType::Int32: return static_cast<std::int64_t>(static_cast<std::int32_t>(static_cast<std::uint32_t>(varint_of(entry))));
      case FieldType::Int64: return static_cast<std::int64_t>(varint_of(entry));
      case FieldType::Double: {
        if (entry.wire != 1) throw Malformed{fmt::format("field {} has wire type {}", entry.number, entry.wire)};
        double number = 0;
        static_assert(sizeof number == sizeof entry.value);
        std::memcpy(&number, &entry.value, sizeof number);
        return number;
      }
      case FieldType::Message: return message(bytes_of(entry), *field.message);
      case FieldType::Quantity: return quantity(bytes_of(entry));
      case FieldType::IntOrString: return int_or_string(bytes_of(entry));
      case FieldType::Time: return time(bytes_of(entry), print_time);
      case FieldType::MicroTime: return time(bytes_of(entry), print_micro_time);
      case FieldType::Any: return any(bytes_of(entry));
      case FieldType::SchemaOr: return schema_or(bytes_of(entry), *field.message);
    }
    return nullptr;
  }

  Json message(std::string_view bytes, const Type& type) {
    if (!type.bare_list()) {
      Json object = Json::object();
      fields(object, bytes, type);
      return object;
    }
    Json list = Json::array();
    for (Wire wire(bytes); !wire.done();) {
      const Entry entry = wire.next();
      if (entry.number == type.fields[0].number) items(list, entry, type.fields[0]);
    }
    return list;
  }

  static Json quantity(std::string_view bytes) {
    Json text = "0";
    for (Wire wire(bytes); !wire.done();)
      if (const Entry entry = wire.next(); entry.number == 1 && !bytes_of(entry).empty()) text = text_of(entry.bytes);
    return text;
  }

  static Json int_or_string(std::string_view bytes) {
    bool is_text = false;
    std::int64_t number = 0;
    Json text = "";
    for (Wire wire(bytes); !wire.done();) {
      const Entry entry = wire.next();
      if (entry.number == 1) is_text = varint_of(entry) != 0;
      if (entry.number == 2) number = static_cast<std::int32_t>(static_cast<std::uint32_t>(varint_of(entry)));
      if (entry.number == 3) text = text_of(bytes_of(entry));
    }
    return is_text ? text : Json(number);
  }

  static Json time(std::string_view bytes, std::string (*print)(Instant)) {
    if (bytes.empty()) return nullptr;
    std::int64_t seconds = 0, nanos = 0;
    for (Wire wire(bytes); !wire.done();) {
      const Entry entry = wire.next();
      if (entry.number == 1) seconds = static_cast<std::int64_t>(varint_of(entry));
      if (entry.number == 2) nanos = static_cast<std::int32_t>(static_cast<std::uint32_t>(varint_of(entry)));
    }
    constexpr std::int64_t most = 9'000'000'000;  // year 2255: what an Instant holds
    if (seconds > most || seconds < -most || nanos < 0 || nanos > 999'999'999) throw Malformed{"a time is out of range"};
    return print(Instant(std::chrono::seconds(seconds)) + std::chrono::nanoseconds(nanos));
  }

  Json any(std::string_view bytes) {
    std::string_view raw;
    for (Wire wire(bytes); !wire.done();)
      if (const Entry entry = wire.next(); entry.number == 1) raw = bytes_of(entry);
    if (raw.empty()) return nullptr;
    return is_protobuf(raw) ? envelope(raw) : json(raw);
  }

  Json schema_or(std::string_view bytes, const Type& type) {
    Json parts = message(bytes, type);
    if (!parts["schema"].is_null()) return parts["schema"];
    for (const char* list : {"jSONSchemas", "property"})
      if (!parts[list].is_null()) return parts[list];
    if (type.find("allows")) return parts["allows"].boolean();
    return nullptr;
  }

  const TypeTable& table_;
  int depth_ = 0;
};

}  // namespace

bool is_protobuf(std::string_view body) { return body.starts_with(magic); }

Result<Json> decode_protobuf(std::string_view body, const TypeTable& table) {
  if (!is_protobuf(body)) return fail(Code::Invalid, "protobuf body: does not start with k8s\\0");
  try {
    return Decoder(table).envelope(body);
  } catch (const Malformed& malformed) {
    return fail(Code::Invalid, "protobuf body: " + malformed.why);
  }
}

}  // namespace fairlead::kube
