// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/s3.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/encoding.h"
#include "http/server_rules.h"
#include "hyperpod/query_protocol.h"
#include "hyperpod/text.h"

namespace fairlead::hyperpod {
namespace {

constexpr const char* name_space = "http://s3.amazonaws.com/doc/2006-03-01/";
constexpr std::size_t most_keys = 1000;

struct Place {
  std::string bucket, key;
};
// Of the path: /BUCKET/KEY.
std::optional<Place> place_of(const http::Request& request) {
  const auto path = percent_decode(request.target.path);
  if (!path || path->empty() || path->front() != '/') return std::nullopt;
  const auto slash = path->find('/', 1);
  return Place{path->substr(1, slash == path->npos ? path->npos : slash - 1), slash == path->npos ? "" : path->substr(slash + 1)};
}

bool asks(const http::Request& request, std::string_view name) {
  return std::any_of(request.target.query.begin(), request.target.query.end(), [&](const auto& pair) { return pair.first == name; });
}

http::Response xml(const std::string& id, std::string body) { return {.status = 200, .headers = {{"Content-Type", "application/xml"}, {"x-amz-request-id", id}}, .body = R"(<?xml version="1.0" encoding="UTF-8"?>)" "\n" + std::move(body), .parts = {}}; }

// As a URI where the client asked for that: XML cannot hold every key.
std::string uri_of(const std::string& text) {
  std::string out;
  const auto parts = split(text, '/');
  for (std::size_t i = 0; i < parts.size(); ++i) out += (i == 0 ? "" : "/") + http::escape(parts[i]);
  return out;
}

class Answerer {
 public:
  Answerer(const http::Request& request, const Call& call, const Buckets& buckets) : request_(request), call_(call), buckets_(buckets) {}

  Answer<http::Response> run() {
    const auto place = place_of(request_);
    if (!place) return refuse("InvalidURI", "Couldn't parse the specified URI.");
    bucket_ = place->bucket, key_ = place->key;
    const std::string operation = s3_operation(request_);
    if (operation.empty()) return refuse("NotImplemented", "This part of S3 is not served: buckets and objects are listed, objects of at most a MiB read, written and deleted", 501);
    if (operation == "ListBuckets") return list_buckets();
    if (!is_bucket_name(bucket_)) return refuse("InvalidBucketName", "The specified bucket is not valid.");
    if (!key_.empty() && !is_object_key(key_)) return refuse("InvalidArgument", "Keys are paths here: no empty parts, no \".\" and \"..\", no control characters");
    if (operation == "CreateBucket") return create_bucket();
    if (operation == "HeadBucket" || operation == "GetBucketLocation") return look_at_bucket(operation);
    if (operation == "ListObjects" || operation == "ListObjectsV2") return list_objects(operation == "ListObjectsV2");
    if (operation == "GetObject" || operation == "HeadObject") return get_object();
    if (operation == "PutObject") return put_object();
    return delete_object();
  }

 private:
  std::string arn(const std::string& key = {}) const { return "arn:aws:s3:::" + bucket_ + (key.empty() ? "" : "/" + key); }
  static std::unexpected<AwsError> failed(const Error& error, const char* not_found) {
    switch (error.code) {
      case Code::NotFound: return refuse(not_found, not_found == std::string_view("NoSuchBucket") ? "The specified bucket does not exist" : "The specified key does not exist.", 404);
      case Code::Conflict: return refuse("InvalidRequest", error.message, 409);
      case Code::Forbidden: return refuse("AccessDenied", "The folder of this site's buckets does not let this be done: " + error.message, 403);
      case Code::Exhausted: return refuse("InvalidRequest", error.message);
      default: return refuse("InternalError", "We encountered an internal error. Please try again.", 500);
    }
  }
  std::optional<std::string> parameter(std::string_view name) const {
    for (const auto& [found, value] : request_.target.query)
      if (found == name) return value;
    return std::nullopt;
  }

  Answer<http::Response> list_buckets() {
    if (auto done = call_.allow("s3:ListAllMyBuckets", "*"); !done) return std::unexpected(done.error());
    const auto all = buckets_.list();
    if (!all) return failed(all.error(), "NoSuchBucket");
    std::string list;
    for (const auto& [name, made] : *all) list += "<Bucket>" + xml_element("Name", name) + xml_element("CreationDate", print_time(made)) + "</Bucket>";
    return xml(call_.request_id, fmt::format("<ListAllMyBucketsResult xmlns=\"{}\"><Owner><ID>{}</ID></Owner><Buckets>{}</Buckets></ListAllMyBucketsResult>", name_space, call_.site.account, list));
  }
  Answer<http::Response> create_bucket() {
    if (auto done = call_.allow("s3:CreateBucket", arn()); !done) return std::unexpected(done.error());
    const auto made = buckets_.make(bucket_);
    if (!made && made.error().code == Code::Exists) return refuse("BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded and you already own it.", 409);
    if (!made) return failed(made.error(), "NoSuchBucket");
    return http::Response{.status = 200, .headers = {{"Location", "/" + bucket_}, {"x-amz-request-id", call_.request_id}}, .body = {}, .parts = {}};
  }
  Answer<http::Response> look_at_bucket(const std::string& operation) {
    if (auto done = call_.allow(operation == "HeadBucket" ? "s3:ListBucket" : "s3:GetBucketLocation", arn()); !done) return std::unexpected(done.error());
    const auto all = buckets_.list();
    if (!all) return failed(all.error(), "NoSuchBucket");
    if (std::none_of(all->begin(), all->end(), [&](const auto& one) { return one.first == bucket_; })) return refuse("NoSuchBucket", "The specified bucket does not exist", 404);
    if (operation == "HeadBucket") return http::Response{.status = 200, .headers = {{"x-amz-bucket-region", call_.site.region}, {"x-amz-request-id", call_.request_id}}, .body = {}, .parts = {}};
    return xml(call_.request_id, fmt::format("<LocationConstraint xmlns=\"{}\">{}</LocationConstraint>", name_space, xml_escape(call_.site.region)));
  }

  Answer<http::Response> list_objects(bool v2) {
    const std::string prefix = parameter("prefix").value_or(""), delimiter = parameter("delimiter").value_or("");
    iam::Keys keys;
    if (const auto said = parameter("prefix")) keys.set("s3:prefix", {*said});
    if (!delimiter.empty()) keys.set("s3:delimiter", {delimiter});
    if (auto done = call_.allow("s3:ListBucket", arn(), keys); !done) return std::unexpected(done.error());
    std::size_t most = most_keys;
    if (const auto said = parameter("max-keys"); said && !said->empty()) {
      const auto read = std::from_chars(said->data(), said->data() + said->size(), most);
      if (read.ec != std::errc() || read.ptr != said->data() + said->size()) return refuse("InvalidArgument", "Provided max-keys not an integer or within integer range");
      most = std::min(most, most_keys);
    }
    std::string after = parameter(v2 ? "start-after" : "marker").value_or("");
    const auto token = v2 ? parameter("continuation-token") : std::nullopt;
    if (token) {
      const auto decoded = parse_base64(*token);
      if (!decoded || decoded->empty()) return refuse("InvalidArgument", "The continuation token provided is incorrect");
      after = *decoded;
    }
    const auto all = buckets_.objects(bucket_, prefix);
    if (!all) return failed(all.error(), "NoSuchBucket");
    const bool as_uri = parameter("encoding-type").value_or("") == "url";
    const auto text = [&](const std::string& value) { return as_uri ? uri_of(value) : xml_escape(value); };
    std::string contents, folders, last;
    std::size_t count = 0;
    bool cut = false;
    std::set<std::string> seen;
    for (const ObjectInfo& object : *all) {
      std::string shown_as = object.key;
      bool folder = false;
      if (!delimiter.empty())
        if (const auto at = object.key.find(delimiter, prefix.size()); at != object.key.npos) shown_as = object.key.substr(0, at + delimiter.size()), folder = true;
      // A folder that was told is behind all its objects.
      if (shown_as <= after || (folder && after.starts_with(shown_as)) || (folder && seen.contains(shown_as))) continue;
      if (count >= most) {
        cut = true;
        break;
      }
      ++count;
      last = shown_as;
      if (folder) {
        seen.insert(shown_as);
        folders += fmt::format("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", text(shown_as));
      } else {
        contents += fmt::format("<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>", text(object.key), print_milli(object.modified), object.etag, object.bytes);
      }
    }
    std::string head = xml_element("Name", bucket_) + fmt::format("<Prefix>{}</Prefix>", text(prefix)) + fmt::format("<MaxKeys>{}</MaxKeys><IsTruncated>{}</IsTruncated>", most, cut);
    if (!delimiter.empty()) head += fmt::format("<Delimiter>{}</Delimiter>", text(delimiter));
    if (as_uri) head += "<EncodingType>url</EncodingType>";
    if (v2) {
      head += fmt::format("<KeyCount>{}</KeyCount>", count);
      if (token) head += xml_element("ContinuationToken", *token);
      if (cut) head += xml_element("NextContinuationToken", base64(last));
    } else {
      head += fmt::format("<Marker>{}</Marker>", text(parameter("marker").value_or("")));
      if (cut) head += fmt::format("<NextMarker>{}</NextMarker>", text(last));
    }
    return xml(call_.request_id, fmt::format("<ListBucketResult xmlns=\"{}\">{}{}{}</ListBucketResult>", name_space, head, contents, folders));
  }
  static std::string print_milli(Instant time) {
    std::string out = print_time(std::chrono::floor<std::chrono::seconds>(time));
    return out.substr(0, out.size() - 1) + ".000Z";
  }

  static http::Headers headers_of(const ObjectInfo& object, const std::string& id) { return {{"ETag", "\"" + object.etag + "\""}, {"Last-Modified", http::http_date(object.modified)}, {"Content-Type", "binary/octet-stream"}, {"Accept-Ranges", "bytes"}, {"x-amz-request-id", id}}; }

  Answer<http::Response> get_object() {
    if (auto done = call_.allow("s3:GetObject", arn(key_)); !done) return std::unexpected(done.error());
    auto found = buckets_.read(bucket_, key_);
    if (!found) return failed(found.error(), "NoSuchKey");
    auto& [object, bytes] = *found;
    http::Response out{.status = 200, .headers = headers_of(object, call_.request_id), .body = {}, .parts = {}};
    if (const std::string_view range = http::find(request_.headers, "range"); range.starts_with("bytes=") && range.find(',') == range.npos) {
      const std::string_view text = range.substr(6);
      const auto dash = text.find('-');
      std::uint64_t first = 0, last = bytes.empty() ? 0 : bytes.size() - 1;
      const auto number = [](std::string_view digits, std::uint64_t& into) {
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), into);
        return !digits.empty() && read.ec == std::errc() && read.ptr == digits.data() + digits.size();
      };
      bool good = dash != text.npos;
      if (good && dash == 0) {  // the last so many
        std::uint64_t count = 0;
        good = number(text.substr(1), count) && count > 0;
        first = count >= bytes.size() ? 0 : bytes.size() - count;
      } else if (good) {
        good = number(text.substr(0, dash), first);
        if (good && dash + 1 < text.size()) {
          std::uint64_t end = 0;
          good = number(text.substr(dash + 1), end) && end >= first;
          last = std::min<std::uint64_t>(last, end);
        }
      }
      if (good && (bytes.empty() || first >= bytes.size())) return refuse("InvalidRange", "The requested range is not satisfiable", 416);
      if (good) {
        out.status = 206;
        out.headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", first, last, bytes.size()));
        out.body = bytes.substr(first, last - first + 1);
        return out;
      }
    }
    out.body = std::move(bytes);  // of a HEAD its length alone is sent
    return out;
  }

  Answer<http::Response> put_object() {
    if (auto done = call_.allow("s3:PutObject", arn(key_)); !done) return std::unexpected(done.error());
    std::string decoded;
    const bool chunked = http::find(request_.headers, "content-encoding").find("aws-chunked") != std::string_view::npos || http::find(request_.headers, "x-amz-content-sha256").starts_with("STREAMING-");
    if (chunked) {
      auto bytes = read_chunked(request_.body);
      const std::string_view said = http::find(request_.headers, "x-amz-decoded-content-length");
      if (!bytes || (!said.empty() && said != std::to_string(bytes->size()))) return refuse("IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header");
      decoded = std::move(*bytes);
    }
    const auto done = buckets_.write(bucket_, key_, chunked ? std::string_view(decoded) : std::string_view(request_.body));
    if (!done) return failed(done.error(), "NoSuchBucket");
    return http::Response{.status = 200, .headers = {{"ETag", "\"" + done->etag + "\""}, {"x-amz-request-id", call_.request_id}}, .body = {}, .parts = {}};
  }
  Answer<http::Response> delete_object() {
    if (auto done = call_.allow("s3:DeleteObject", arn(key_)); !done) return std::unexpected(done.error());
    const auto done = buckets_.remove(bucket_, key_);
    if (!done) return failed(done.error(), "NoSuchBucket");
    return http::Response{.status = 204, .headers = {{"x-amz-request-id", call_.request_id}}, .body = {}, .parts = {}};
  }

  const http::Request& request_;
  const Call& call_;
  const Buckets& buckets_;
  std::string bucket_, key_;
};

}  // namespace

std::string s3_operation(const http::Request& request) {
  const auto place = place_of(request);
  if (!place) return "";
  static const std::set<std::string, std::less<>> of_signing = {"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Security-Token", "x-id"};
  static const std::set<std::string, std::less<>> of_lists = {"list-type", "prefix", "delimiter", "max-keys", "marker", "start-after", "continuation-token", "encoding-type", "fetch-owner"};
  bool lists = false, location = false, other = false;
  for (const auto& [name, value] : request.target.query) {
    if (of_signing.contains(name)) continue;
    if (of_lists.contains(name)) lists = true;
    else if (name == "location") location = true;
    else other = true;
  }
  if (other || !http::find(request.headers, "x-amz-copy-source").empty()) return "";
  const std::string& method = request.method;
  if (place->bucket.empty()) return method == "GET" && !lists && !location ? "ListBuckets" : "";
  if (place->key.empty()) {
    if (location) return method == "GET" && !lists ? "GetBucketLocation" : "";
    if (method == "GET") return asks(request, "list-type") ? "ListObjectsV2" : "ListObjects";
    if (lists) return "";
    return method == "HEAD" ? "HeadBucket" : method == "PUT" ? "CreateBucket" : "";
  }
  if (lists || location) return "";
  return method == "GET" ? "GetObject" : method == "HEAD" ? "HeadObject" : method == "PUT" ? "PutObject" : method == "DELETE" ? "DeleteObject" : "";
}

http::Response s3_error(const AwsError& error, const std::string& resource, const std::string& request_id) {
  static const std::map<std::string, std::pair<const char*, int>, std::less<>> names = {
      {"AccessDeniedException", {"AccessDenied", 403}},        {"InvalidSignatureException", {"SignatureDoesNotMatch", 403}}, {"UnrecognizedClientException", {"InvalidAccessKeyId", 403}}, {"ExpiredTokenException", {"ExpiredToken", 400}},
      {"IncompleteSignatureException", {"AuthorizationHeaderMalformed", 400}}, {"MissingAuthenticationTokenException", {"AccessDenied", 403}}, {"ThrottlingException", {"SlowDown", 503}},      {"ServiceUnavailable", {"ServiceUnavailable", 503}},
      {"AccessDenied", {"AccessDenied", 403}}};
  const auto known = names.find(error.code);
  const std::string code = known == names.end() ? error.code : known->second.first;
  const int status = known == names.end() ? error.status : known->second.second;
  return {.status = status, .headers = {{"Content-Type", "application/xml"}, {"x-amz-request-id", request_id}},
          .body = R"(<?xml version="1.0" encoding="UTF-8"?>)" "\n<Error>" + xml_element("Code", code) + xml_element("Message", error.message) + xml_element("Resource", resource) + xml_element("RequestId", request_id) + "</Error>", .parts = {}};
}

http::Response answer_s3(const http::Request& request, const Call& call, const Buckets& buckets, std::optional<AwsError>& error) {
  auto answer = Answerer(request, call, buckets).run();
  if (answer) return std::move(*answer);
  error = answer.error();
  return s3_error(answer.error(), request.target.path, call.request_id);
}

std::optional<std::string> read_chunked(std::string_view body) {
  std::string out;
  for (;;) {
    const auto line = body.find("\r\n");
    if (line == body.npos) return std::nullopt;
    const std::string_view head = body.substr(0, std::min(line, body.find(';')));
    std::size_t bytes = 0;
    const auto read = std::from_chars(head.data(), head.data() + head.size(), bytes, 16);
    if (head.empty() || head.size() > 8 || read.ec != std::errc() || read.ptr != head.data() + head.size()) return std::nullopt;
    body.remove_prefix(line + 2);
    if (bytes == 0) return out;  // what follows are checksums
    if (body.size() < bytes + 2 || body.substr(bytes, 2) != "\r\n") return std::nullopt;
    out += body.substr(0, bytes);
    body.remove_prefix(bytes + 2);
  }
}

}  // namespace fairlead::hyperpod
