// SPDX-License-Identifier: Apache-2.0
#include "node/spdy.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>

namespace fairlead::node {
namespace {

constexpr std::size_t control_limit = 64 << 10, header_limit = 64 << 10;
constexpr std::uint32_t header_count_limit = 256;
enum Type : std::uint16_t { SynStream = 1, SynReply = 2, RstStream = 3, Settings = 4, Ping = 6, GoAway = 7, Headers = 8, WindowUpdate = 9 };

void put32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFFU);
}

std::uint32_t get32(std::string_view bytes, std::size_t at) {
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<unsigned char>(bytes[at + i]);
  return out;
}

// The text that both sides have zlib know beforehand (draft 3, section 2.6.10.1): words with their lengths, then a tail without.
const std::string& dictionary() {
  static const std::string text = [] {
    std::string out;
    for (const std::string_view word : {"options",
                                        "head",
                                        "post",
                                        "put",
                                        "delete",
                                        "trace",
                                        "accept",
                                        "accept-charset",
                                        "accept-encoding",
                                        "accept-language",
                                        "accept-ranges",
                                        "age",
                                        "allow",
                                        "authorization",
                                        "cache-control",
                                        "connection",
                                        "content-base",
                                        "content-encoding",
                                        "content-language",
                                        "content-length",
                                        "content-location",
                                        "content-md5",
                                        "content-range",
                                        "content-type",
                                        "date",
                                        "etag",
                                        "expect",
                                        "expires",
                                        "from",
                                        "host",
                                        "if-match",
                                        "if-modified-since",
                                        "if-none-match",
                                        "if-range",
                                        "if-unmodified-since",
                                        "last-modified",
                                        "location",
                                        "max-forwards",
                                        "pragma",
                                        "proxy-authenticate",
                                        "proxy-authorization",
                                        "range",
                                        "referer",
                                        "retry-after",
                                        "server",
                                        "te",
                                        "trailer",
                                        "transfer-encoding",
                                        "upgrade",
                                        "user-agent",
                                        "vary",
                                        "via",
                                        "warning",
                                        "www-authenticate",
                                        "method",
                                        "get",
                                        "status",
                                        "200 OK",
                                        "version",
                                        "HTTP/1.1",
                                        "url",
                                        "public",
                                        "set-cookie",
                                        "keep-alive",
                                        "origin"}) {
      put32(out, static_cast<std::uint32_t>(word.size()));
      out += word;
    }
    out +=
        "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Information204 No "
        "Content301 "
        "Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service "
        "UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, "
        "GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/"
        "javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
    return out;
  }();
  return text;
}

Bytef* bytes_of(std::string_view text) { return reinterpret_cast<Bytef*>(const_cast<char*>(text.data())); }

std::string control_head(Type type, unsigned flags, std::size_t size) {
  std::string out;
  put32(out, 0x8003'0000U | type);
  put32(out, flags << 24 | static_cast<std::uint32_t>(size));
  return out;
}

}  // namespace

struct SpdyReader::Inflater {
  z_stream stream{};
  bool fine = false;
  Inflater() { fine = inflateInit(&stream) == Z_OK; }
  ~Inflater() {
    if (fine) inflateEnd(&stream);
  }
  Result<std::string> unpack(std::string_view packed) {
    std::string out;
    std::array<char, 4096> chunk;
    stream.next_in = bytes_of(packed);
    stream.avail_in = static_cast<uInt>(packed.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
      stream.avail_out = chunk.size();
      int code = fine ? inflate(&stream, Z_SYNC_FLUSH) : Z_MEM_ERROR;
      if (code == Z_NEED_DICT) {
        code = inflateSetDictionary(&stream, bytes_of(dictionary()), static_cast<uInt>(dictionary().size()));
        if (code == Z_OK) continue;
      }
      // Z_BUF_ERROR: nothing more comes out of this input.
      if (code != Z_OK && code != Z_BUF_ERROR) return fail(Code::Invalid, "SPDY: a header block cannot be unpacked");
      out.append(chunk.data(), chunk.size() - stream.avail_out);
      if (out.size() > header_limit) return fail(Code::Invalid, "SPDY: headers of more than 64 KiB");
      if (code == Z_BUF_ERROR) break;
    } while (stream.avail_in > 0 || stream.avail_out == 0);
    return out;
  }
};

SpdyReader::SpdyReader() : inflater_(std::make_unique<Inflater>()) {}
SpdyReader::~SpdyReader() = default;

Result<std::vector<std::pair<std::string, std::string>>> SpdyReader::headers(std::string_view packed) {
  auto text = inflater_->unpack(packed);
  if (!text) return std::unexpected(std::move(text.error()));
  const std::string_view block = *text;
  std::size_t at = 0;
  const auto bad = [] { return fail(Code::Invalid, "SPDY: a malformed header block"); };
  const auto take = [&](std::string& into) {
    if (block.size() - at < 4) return false;
    const std::uint32_t size = get32(block, at);
    at += 4;
    if (size > block.size() - at) return false;
    into = block.substr(at, size);
    at += size;
    return true;
  };
  if (block.size() < 4) return bad();
  const std::uint32_t count = get32(block, 0);
  at = 4;
  if (count > header_count_limit) return bad();
  std::vector<std::pair<std::string, std::string>> out;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string name, value;
    if (!take(name) || !take(value) || name.empty()) return bad();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    out.emplace_back(std::move(name), std::move(value));
  }
  return out;
}

Result<void> SpdyReader::control(std::string_view frame, const std::function<void(SpdyEvent)>& each) {
  const std::uint32_t head = get32(frame, 0);
  if ((head >> 16 & 0x7FFFU) != 3) return fail(Code::Invalid, fmt::format("SPDY: version {} is not spoken here", head >> 16 & 0x7FFFU));
  const auto flags = static_cast<unsigned char>(frame[4]);
  const std::string_view body = frame.substr(8);
  const auto short_frame = [] { return fail(Code::Invalid, "SPDY: a frame is too short"); };
  SpdyEvent event;
  switch (head & 0xFFFFU) {
    case SynStream: {
      if (body.size() < 10) return short_frame();
      auto list = headers(body.substr(10));
      if (!list) return std::unexpected(std::move(list.error()));
      event = {.kind = SpdyEvent::Kind::Open,
               .stream = get32(body, 0) & 0x7FFF'FFFFU,
               .headers = std::move(*list),
               .bytes = {},
               .last = (flags & 1U) != 0};
      if (event.stream == 0) return fail(Code::Invalid, "SPDY: stream 0 cannot be opened");
      each(std::move(event));
      return {};
    }
    case SynReply:
    case Headers: {  // the packer's memory must see them; what they say is not needed
      if (body.size() < 4) return short_frame();
      if (auto list = headers(body.substr(4)); !list) return std::unexpected(std::move(list.error()));
      if ((flags & 1U) != 0) each({.kind = SpdyEvent::Kind::Data, .stream = get32(body, 0) & 0x7FFF'FFFFU, .headers = {}, .bytes = {}, .last = true});
      return {};
    }
    case RstStream:
      if (body.size() < 8) return short_frame();
      each({.kind = SpdyEvent::Kind::Reset, .stream = get32(body, 0) & 0x7FFF'FFFFU, .headers = {}, .bytes = {}, .last = true});
      return {};
    case Ping:
      if (body.size() < 4) return short_frame();
      each({.kind = SpdyEvent::Kind::Ping, .stream = get32(body, 0), .headers = {}, .bytes = {}, .last = false});
      return {};
    case GoAway:
      each({.kind = SpdyEvent::Kind::GoAway, .stream = 0, .headers = {}, .bytes = {}, .last = false});
      return {};
    default:  // SETTINGS, WINDOW_UPDATE and what a later draft may add
      return {};
  }
}

Result<void> SpdyReader::feed(std::string_view bytes, const std::function<void(SpdyEvent)>& each) {
  while (!bytes.empty()) {
    if (data_left_ > 0) {
      const std::size_t size = std::min<std::size_t>(data_left_, bytes.size());
      data_left_ -= static_cast<std::uint32_t>(size);
      each({.kind = SpdyEvent::Kind::Data,
            .stream = data_stream_,
            .headers = {},
            .bytes = std::string(bytes.substr(0, size)),
            .last = data_left_ == 0 && data_last_});
      bytes.remove_prefix(size);
      continue;
    }
    // A head first, then, of a control frame, all of it.
    std::size_t wanted = 8;
    if (pending_.size() >= 8) wanted += get32(pending_, 4) & 0xFF'FFFFU;
    const std::size_t size = std::min(wanted - pending_.size(), bytes.size());
    pending_.append(bytes.substr(0, size));
    bytes.remove_prefix(size);
    if (pending_.size() < 8) return {};
    const std::uint32_t length = get32(pending_, 4) & 0xFF'FFFFU;
    if ((static_cast<unsigned char>(pending_[0]) & 0x80U) == 0) {
      data_stream_ = get32(pending_, 0);
      data_last_ = (static_cast<unsigned char>(pending_[4]) & 1U) != 0;
      data_left_ = length;
      pending_.clear();
      if (length == 0 && data_last_) each({.kind = SpdyEvent::Kind::Data, .stream = data_stream_, .headers = {}, .bytes = {}, .last = true});
      continue;
    }
    if (length > control_limit) return fail(Code::Invalid, "SPDY: a control frame of more than 64 KiB");
    if (pending_.size() < 8 + length) continue;
    const std::string frame = std::exchange(pending_, {});
    if (auto done = control(frame, each); !done) return done;
  }
  return {};
}

struct SpdyWriter::Deflater {
  z_stream stream{};
  bool fine = false;
  Deflater() {
    fine = deflateInit(&stream, Z_DEFAULT_COMPRESSION) == Z_OK &&
           deflateSetDictionary(&stream, bytes_of(dictionary()), static_cast<uInt>(dictionary().size())) == Z_OK;
  }
  ~Deflater() { deflateEnd(&stream); }
};

SpdyWriter::SpdyWriter() : deflater_(std::make_unique<Deflater>()) { INVARIANT(deflater_->fine); }
SpdyWriter::~SpdyWriter() = default;

std::string SpdyWriter::pack(const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string block;
  put32(block, static_cast<std::uint32_t>(headers.size()));
  for (const auto& [name, value] : headers) {
    put32(block, static_cast<std::uint32_t>(name.size()));
    block += name;
    put32(block, static_cast<std::uint32_t>(value.size()));
    block += value;
  }
  std::string out;
  std::array<char, 4096> chunk;
  z_stream& stream = deflater_->stream;
  stream.next_in = bytes_of(block);
  stream.avail_in = static_cast<uInt>(block.size());
  do {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = chunk.size();
    (void)deflate(&stream, Z_SYNC_FLUSH);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  } while (stream.avail_out == 0);
  return out;
}

std::string SpdyWriter::open(std::uint32_t stream, const std::vector<std::pair<std::string, std::string>>& headers, bool last) {
  std::string body;
  put32(body, stream);
  put32(body, 0);
  body.append(2, '\0');
  body += pack(headers);
  return control_head(SynStream, last ? 1 : 0, body.size()) + body;
}

std::string SpdyWriter::reply(std::uint32_t stream) {
  std::string body;
  put32(body, stream);
  body += pack({});
  return control_head(SynReply, 0, body.size()) + body;
}

std::string SpdyWriter::data(std::uint32_t stream, std::string_view bytes, bool last) {
  INVARIANT(bytes.size() < (1U << 24));
  std::string out;
  put32(out, stream & 0x7FFF'FFFFU);
  put32(out, (last ? 1U << 24 : 0) | static_cast<std::uint32_t>(bytes.size()));
  out += bytes;
  return out;
}

std::string SpdyWriter::reset(std::uint32_t stream, std::uint32_t status) {
  std::string out = control_head(RstStream, 0, 8);
  put32(out, stream);
  put32(out, status);
  return out;
}

std::string SpdyWriter::ping(std::uint32_t number) {
  std::string out = control_head(Ping, 0, 4);
  put32(out, number);
  return out;
}

std::string SpdyWriter::go_away(std::uint32_t last_stream) {
  std::string out = control_head(GoAway, 0, 8);
  put32(out, last_stream);
  put32(out, 0);
  return out;
}

}  // namespace fairlead::node
