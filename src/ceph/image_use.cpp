// SPDX-License-Identifier: Apache-2.0
#include "ceph/image_use.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/encoding.h"

namespace fairlead::ceph {
namespace {

constexpr const char *lock_name = "fairlead.use", *tag = "fairlead";
constexpr int most_tries = 10;

std::optional<std::int64_t> number(const std::string& text) {
  std::int64_t out = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && out > 0 ? std::optional(out) : std::nullopt;
}

}  // namespace

std::string print(const Allowance& allowance) {
  std::string out = allowance.use == Use::Reads ? "read" : "";
  for (const auto& [host, generation] : allowance.who) out += fmt::format("{}{} {}", out.empty() ? "" : " ", host, generation);
  return out;
}
std::optional<Allowance> read_allowance(std::string_view text) {
  auto words = split(text, ' ');
  Allowance out;
  if (!words.empty() && words[0] == "read") out.use = Use::Reads, words.erase(words.begin());
  if (words.empty() || words.size() % 2 != 0 || (out.use == Use::Writes && words.size() != 2)) return std::nullopt;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto generation = number(words[i + 1]);
    if (words[i].empty() || !generation) return std::nullopt;
    out.who.emplace_back(words[i], *generation);
  }
  std::sort(out.who.begin(), out.who.end());
  return out;
}
Allowance with(const std::optional<Allowance>& before, const std::string& host, std::int64_t generation, Use use) {
  Allowance out{.use = use, .who = {}};
  if (before && use == Use::Reads && before->use == Use::Reads) out.who = before->who;
  std::erase_if(out.who, [&](const auto& one) { return one.first == host; });
  out.who.emplace_back(host, generation);
  std::sort(out.who.begin(), out.who.end());
  return out;
}
std::optional<Allowance> without(const std::optional<Allowance>& before, std::int64_t generation) {
  if (!before) return std::nullopt;
  Allowance out = *before;
  std::erase_if(out.who, [&](const auto& one) { return one.second == generation; });
  return out.who.empty() ? std::nullopt : std::optional(std::move(out));
}

Result<std::vector<User>> users_of(const Cluster& cluster, const OpenImage& image) {
  const auto header = image.header();
  if (!header) return std::unexpected(header.error());
  std::vector<char> mark(256), clients(4096), cookies(4096), addresses(4096);
  for (;;) {
    int exclusive = 0;
    std::size_t mark_size = mark.size(), clients_size = clients.size(), cookies_size = cookies.size(), addresses_size = addresses.size();
    const auto count = rados_list_lockers(cluster.io(), header->c_str(), lock_name, &exclusive, mark.data(), &mark_size, clients.data(), &clients_size, cookies.data(), &cookies_size, addresses.data(), &addresses_size);
    if (count == -ERANGE) {
      mark.resize(std::max(mark.size(), mark_size)), clients.resize(std::max(2 * clients.size(), clients_size)), cookies.resize(std::max(2 * cookies.size(), cookies_size)), addresses.resize(std::max(2 * addresses.size(), addresses_size));
      continue;
    }
    if (count == -ENOENT) return std::vector<User>();
    if (count < 0) return fail_ceph(static_cast<int>(count), "ask who uses an image");
    // Each list: texts that end with a zero, one behind the other.
    std::vector<User> out;
    const char *client = clients.data(), *cookie = cookies.data(), *address = addresses.data();
    for (ssize_t i = 0; i < count; ++i) {
      out.push_back({.client = client, .cookie = cookie, .address = plain_address(address)});
      client += std::strlen(client) + 1, cookie += std::strlen(cookie) + 1, address += std::strlen(address) + 1;
    }
    return out;
  }
}

namespace {
Result<void> break_one(const Cluster& cluster, const std::string& header, const User& user) {
  const int error = rados_break_lock(cluster.io(), header.c_str(), lock_name, user.client.c_str(), user.cookie.c_str());
  return error < 0 && error != -ENOENT ? Result<void>(fail_ceph(error, "take an image from an engine that is shut out")) : Result<void>();
}
Result<void> end(Cluster& cluster, const std::string& header, const User& user, Cluster::State state) {
  auto done = cluster.shut_out(user.address, state);
  return done ? break_one(cluster, header, user) : done;
}
}  // namespace

Result<void> take_use(Cluster& cluster, const OpenImage& image, const std::string& id, Use use, std::int64_t generation, const std::set<std::string>& dead) {
  const auto header = image.header();
  const auto own = cluster.address();
  if (!header) return std::unexpected(header.error());
  if (!own) return std::unexpected(own.error());
  const std::string cookie = std::to_string(generation);
  std::set<std::string> watch;  // who was seen to: a client that lives may be without its watch for a moment
  for (int tries = 0;; ++tries) {
    const int error = use == Use::Writes ? rados_lock_exclusive(cluster.io(), header->c_str(), lock_name, cookie.c_str(), "", nullptr, 0) : rados_lock_shared(cluster.io(), header->c_str(), lock_name, cookie.c_str(), tag, "", nullptr, 0);
    if (error < 0 && error != -EEXIST && error != -EBUSY) return fail_ceph(error, "take the image of " + id);
    const auto users = users_of(cluster, image);
    if (!users) return std::unexpected(users.error());
    std::string who;
    for (const User& user : *users) {
      if (user.address == *own) continue;
      // Beside others that read, too: what the dead have left would be in the way of the next one that writes.
      if (dead.contains(user.address)) {
        if (auto done = end(cluster, *header, user, Cluster::State::Dead); !done) return done;
        continue;
      }
      if (error != -EBUSY) continue;
      const auto lives = image.is_watched_by_client(user.client);
      if (!lives) return std::unexpected(lives.error());
      if (*lives) watch.insert(user.address);
      if (tries < most_tries || watch.contains(user.address)) {
        who = user.address;
      } else if (auto done = end(cluster, *header, user, Cluster::State::MayBeAway); !done) {
        return done;
      }
    }
    if (error != -EBUSY) return {};
    if (tries >= most_tries && (!who.empty() || tries > most_tries + 3)) return fail(Code::Conflict, fmt::format("the image of {} is {} by an engine of this pool at {}: that has to end first", id, use == Use::Writes ? "used" : "written", who));
    if (!who.empty()) ::usleep(200'000);
  }
}

void let_go_of_use(const Cluster& cluster, const OpenImage& image, std::int64_t generation) {
  if (const auto header = image.header()) (void)rados_unlock(cluster.io(), header->c_str(), lock_name, std::to_string(generation).c_str());
}

Result<void> break_use(const Cluster& cluster, const OpenImage& image, const std::string& address) {
  const auto header = image.header();
  const auto users = header ? users_of(cluster, image) : std::unexpected(header.error());
  if (!users) return std::unexpected(users.error());
  for (const User& user : *users)
    if (user.address == address)
      if (auto done = break_one(cluster, *header, user); !done) return done;
  return {};
}

}  // namespace fairlead::ceph
