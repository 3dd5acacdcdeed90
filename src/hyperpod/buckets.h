// SPDX-License-Identifier: Apache-2.0
// S3 as far as lifecycle scripts need it: a folder with a folder for each bucket. Thread-safe: the file system keeps everything.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/cluster.h"
#include "base/clock.h"
#include "base/result.h"

namespace fairlead::hyperpod {

struct ObjectInfo {
  std::string key;
  std::uint64_t bytes = 0;
  Instant modified;
  std::string etag;  // 32 hex digits: another file, another mark; no sum of its content
};

using api::is_bucket_name;
// Of a key that is a path below the bucket: no empty parts, no "." and "..", no control characters, at most 1,024 bytes.
bool is_object_key(std::string_view key);

class Buckets {
 public:
  static constexpr std::size_t most_objects = 10'000;
  explicit Buckets(std::string folder) : folder_(std::move(folder)) {}

  Result<std::vector<std::pair<std::string, Instant>>> list() const;  // by name; none where the folder is not there yet
  // By key, those that begin with the prefix. NotFound: no such bucket. Exhausted: more than most_objects. Links that lead out of the bucket are as if they were not there.
  Result<std::vector<ObjectInfo>> objects(const std::string& bucket, const std::string& prefix) const;
  // NotFound. Exhausted: larger than 64 MiB. Forbidden: a link leads out of the bucket.
  Result<std::pair<ObjectInfo, std::string>> read(const std::string& bucket, const std::string& key) const;
  // Old or new content, never a mixture, on the disk when it returns. NotFound: no such bucket. Conflict: a part of the key is an object, or the key is a folder. Forbidden, Exhausted: the file system's answers.
  Result<ObjectInfo> write(const std::string& bucket, const std::string& key, std::string_view bytes) const;
  Result<void> remove(const std::string& bucket, const std::string& key) const;  // one that is not there: nothing to do
  Result<void> make(const std::string& bucket) const;                            // Exists: it is there

 private:
  const std::string folder_;
};

}  // namespace fairlead::hyperpod
