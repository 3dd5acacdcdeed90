// SPDX-License-Identifier: Apache-2.0
#include "ceph/store_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/encoding.h"
#include "blocks/words.h"
#include "disk/resident.h"

namespace fairlead::ceph {
namespace {

using blocks::Words;

Result<std::int64_t> number(const std::string& text) {
  std::int64_t out = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && out >= 0 ? Result<std::int64_t>(out) : fail(Code::Invalid, "a number is expected");
}
Result<Use> use_of(const std::string& text) { return text == "writes" ? Result<Use>(Use::Writes) : text == "reads" ? Result<Use>(Use::Reads) : fail(Code::Invalid, "writes or reads is expected"); }
Result<Words> nothing(Result<void> done) { return done ? Result<Words>(Words()) : std::unexpected(std::move(done.error())); }
Result<Words> encoded(Result<std::string> bytes) { return bytes ? Result<Words>(Words{base64(*bytes)}) : std::unexpected(std::move(bytes.error())); }

std::string_view name_of(Image::Kind kind) {
  switch (kind) {
    case Image::Kind::None: return "none";
    case Image::Kind::Part: return "part";
    case Image::Kind::Volume: return "volume";
    case Image::Kind::Snapshot: return "snapshot";
    default: return "foreign";
  }
}

struct Call {
  Store& store;
  const Words& words;  // behind the verb
  const Store::Alive& alive;
};
using Do = Result<Words> (*)(const Call&);
struct Verb {
  std::size_t words;
  Do carry_out;
};
// One row a verb.
const std::map<std::string, Verb, std::less<>> verbs{
    {"room", {0, [](const Call& c) -> Result<Words> { auto text = c.store.room(); return text ? Result<Words>(Words{*text}) : std::unexpected(std::move(text.error())); }}},
    {"look", {1, [](const Call& c) -> Result<Words> {
       const auto seen = c.store.look(c.words[0]);
       if (!seen) return std::unexpected(seen.error());
       return Words{std::string(name_of(seen->kind)), std::to_string(seen->size), std::to_string(seen->born), seen->luks ? "luks" : "plain"};
     }}},
    {"ids", {0, [](const Call& c) -> Result<Words> { auto all = c.store.ids(); return all ? Result<Words>(std::move(*all)) : std::unexpected(std::move(all.error())); }}},
    {"make", {3, [](const Call& c) -> Result<Words> {
       const auto size = number(c.words[1]);
       const auto header = parse_base64(c.words[2]);
       return size && header ? nothing(c.store.make(c.words[0], *size, *header)) : fail(Code::Invalid, "a size and a header are expected");
     }}},
    {"copy", {3, [](const Call& c) -> Result<Words> { const auto size = number(c.words[2]); return size ? nothing(c.store.copy(c.words[0], c.words[1], *size, c.alive)) : std::unexpected(size.error()); }}},
    {"drop", {1, [](const Call& c) -> Result<Words> { return nothing(c.store.drop(c.words[0], c.alive)); }}},
    {"publish", {2, [](const Call& c) -> Result<Words> { return nothing(c.store.publish(c.words[0], c.words[1] == "snapshot")); }}},
    {"remove", {1, [](const Call& c) -> Result<Words> { return nothing(c.store.remove(c.words[0], c.alive)); }}},
    {"grow", {2, [](const Call& c) -> Result<Words> { const auto size = number(c.words[1]); return size ? nothing(c.store.grow(c.words[0], *size, c.alive)) : std::unexpected(size.error()); }}},
    {"header", {1, [](const Call& c) -> Result<Words> { return encoded(c.store.header(c.words[0])); }}},
    {"set-header", {2, [](const Call& c) -> Result<Words> { const auto bytes = parse_base64(c.words[1]); return bytes ? nothing(c.store.set_header(c.words[0], *bytes)) : std::unexpected(bytes.error()); }}},
    {"allow", {4, [](const Call& c) -> Result<Words> { const auto generation = number(c.words[2]); const auto use = use_of(c.words[3]); return !use ? std::unexpected(use.error()) : generation ? nothing(c.store.allow(c.words[0], c.words[1], *generation, *use)) : std::unexpected(generation.error()); }}},
    {"withdraw", {2, [](const Call& c) -> Result<Words> { const auto generation = number(c.words[1]); return generation ? nothing(c.store.withdraw(c.words[0], *generation)) : std::unexpected(generation.error()); }}},
    {"shut-out", {3, [](const Call& c) -> Result<Words> { const auto generation = number(c.words[1]); const auto use = use_of(c.words[2]); return !use ? std::unexpected(use.error()) : generation ? nothing(c.store.shut_out(c.words[0], *generation, *use)) : std::unexpected(generation.error()); }}},
    {"ended", {2, [](const Call& c) -> Result<Words> { const auto generation = number(c.words[1]); return generation ? nothing(c.store.ended(c.words[0], *generation)) : std::unexpected(generation.error()); }}},
    {"journal", {0, [](const Call& c) -> Result<Words> { return encoded(c.store.journal()); }}},
    {"append", {1, [](const Call& c) -> Result<Words> { const auto bytes = parse_base64(c.words[0]); return bytes ? nothing(c.store.append(*bytes)) : std::unexpected(bytes.error()); }}},
    {"cut", {1, [](const Call& c) -> Result<Words> { const auto size = number(c.words[0]); return size ? nothing(c.store.cut(static_cast<std::size_t>(*size))) : std::unexpected(size.error()); }}},
    {"replace", {1, [](const Call& c) -> Result<Words> { const auto bytes = parse_base64(c.words[0]); return bytes ? nothing(c.store.replace(*bytes)) : std::unexpected(bytes.error()); }}},
};

class Out {
 public:
  explicit Out(int fd) : fd_(fd) {}
  // Nobody hears any more: nothing is done for nobody.
  void tell(const std::string& line) {
    const std::lock_guard lock(mutex_);
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t put = ::write(fd_, line.data() + sent, line.size() - sent);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) ::_exit(1);
      sent += static_cast<std::size_t>(put);
    }
  }

 private:
  std::mutex mutex_;
  const int fd_;
};

void answer(Store& store, Out& out, const Words& words, std::uint64_t request) {
  const auto verb = verbs.find(words.size() < 2 ? "" : words[1]);
  if (verb == verbs.end() || words.size() != verb->second.words + 2) return out.tell(blocks::print_answer(request, fail(Code::Invalid, "a request that is not understood")));
  const Words rest(words.begin() + 2, words.end());
  const Store::Alive alive = [&] { out.tell(blocks::print_words({std::to_string(request), "goes"})); };
  out.tell(blocks::print_answer(request, verb->second.carry_out({store, rest, alive})));
}

}  // namespace

int serve_store(const Claim& claim, int in, int to) {
  Out out(to);
  auto store = Store::open(claim);
  out.tell(blocks::print_answer(0, store ? Result<Words>(Words{(*store)->id()}) : std::unexpected(store.error())));
  if (!store) return 1;
  disk::give_back_code();  // of the beginning, which is most of it
  std::thread([&store = **store] {
    for (;; std::this_thread::sleep_for(std::chrono::minutes(10))) store.sweep();
  }).detach();
  std::string rest;
  std::string piece(64 << 10, '\0');
  for (;;) {
    const ssize_t got = ::read(in, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) ::_exit(0);  // what is under way is looked at by the next one
    rest.append(piece.data(), static_cast<std::size_t>(got));
    std::size_t from = 0;
    for (std::size_t end = 0; (end = rest.find('\n', from)) != rest.npos; from = end + 1) {
      auto words = blocks::read_words(std::string_view(rest).substr(from, end - from));
      const auto request = words && !words->empty() ? number(words->front()) : fail(Code::Invalid, "a number is expected");
      if (!request) return 1;
      // As many as whoever asks has under way: its threads wait.
      std::thread([&store = **store, &out, words = std::move(*words), request = static_cast<std::uint64_t>(*request)] { answer(store, out, words, request); }).detach();
    }
    rest.erase(0, from);
  }
}

int tell_header(const Place& place, const std::string& id) {
  const auto cluster = Cluster::connect(place);
  const auto bytes = cluster ? (*cluster)->read("fairlead.luks." + id) : std::unexpected(cluster.error());
  if (!bytes || !*bytes) {
    fmt::print(stderr, "fairlead-rbd: {}\n", bytes ? "the header of the encrypted volume " + id + " is not there" : bytes.error().message);
    return 1;
  }
  fmt::print("{}\n", base64(**bytes));
  return 0;
}

}  // namespace fairlead::ceph
