// SPDX-License-Identifier: GPL-3.0-or-later
// Writes small tar archives for tests, good and bad ones.
#pragma once
#include <fmt/format.h>
#include <zlib.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::companion {

class TestTar {
 public:
  TestTar& entry(const std::string& path, char type, const std::string& content = "", unsigned mode = 0644, const std::string& link = "") {
    std::string block(512, '\0');
    const auto put = [&](std::size_t at, const std::string& value) { block.replace(at, value.size(), value); };
    put(0, path.substr(0, 100));
    put(100, fmt::format("{:07o}", mode));
    put(108, "0000000");
    put(116, "0000000");
    put(124, fmt::format("{:011o}", content.size()));
    put(136, fmt::format("{:011o}", 1000000000));
    block[156] = type;
    put(157, link.substr(0, 100));
    put(257, std::string("ustar\0" "00", 8));
    put(148, "        ");
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    text_ += block + content + std::string((512 - content.size() % 512) % 512, '\0');
    return *this;
  }
  TestTar& file(const std::string& path, const std::string& content, unsigned mode = 0644) { return entry(path, '0', content, mode); }
  TestTar& folder(const std::string& path, unsigned mode = 0755) { return entry(path, '5', "", mode); }
  TestTar& link(const std::string& path, const std::string& to) { return entry(path, '2', "", 0777, to); }
  TestTar& hard(const std::string& path, const std::string& to) { return entry(path, '1', "", 0644, to); }
  TestTar& pax(const std::vector<std::pair<std::string, std::string>>& records) {
    std::string content;
    for (const auto& [name, value] : records) {
      std::size_t size = name.size() + value.size() + 3;
      while (std::to_string(size).size() + name.size() + value.size() + 3 != size) ++size;
      content += fmt::format("{} {}={}\n", size, name, value);
    }
    return entry("pax", 'x', content);
  }
  std::string text() const { return text_ + std::string(1024, '\0'); }

 private:
  std::string text_;
};

inline std::string gzipped(const std::string& bytes) {
  z_stream zip{};
  ::deflateInit2(&zip, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&zip, bytes.size()) + 64, '\0');
  zip.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zip.avail_in = static_cast<uInt>(bytes.size());
  zip.next_out = reinterpret_cast<Bytef*>(out.data());
  zip.avail_out = static_cast<uInt>(out.size());
  ::deflate(&zip, Z_FINISH);
  out.resize(out.size() - zip.avail_out);
  ::deflateEnd(&zip);
  return out;
}

}  // namespace fairlead::companion
