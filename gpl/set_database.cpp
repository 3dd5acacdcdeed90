// SPDX-License-Identifier: GPL-3.0-or-later
#include "set_database.h"

#include <fmt/format.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "database.h"

namespace fairlead::companion {
namespace {

std::string request_path(const std::string& folder) { return folder + "/requests/database"; }
std::string answer_path(const std::string& folder) { return folder + "/requests/database.answer"; }
std::string taken_path(const std::string& folder) { return folder + "/requests/database.taken"; }

Result<Card> carry_out(const std::string& folder, const Card& request) {
  const std::string path = folder + "/" + value_of(request, "path"), cluster = value_of(request, "cluster");
  Card out;
  if (value_of(request, "do") == "dump") {
    // Before the dump: what it holds more is no id less.
    auto last = last_accounted_job(cluster);
    if (!last) return std::unexpected(std::move(last.error()));
    auto sum = dump_accounting(path);
    if (!sum) return std::unexpected(std::move(sum.error()));
    out["database.sum"] = *sum;
    out["database.last-id"] = std::to_string(*last);
    return out;
  }
  if (value_of(request, "do") != "restore") return fail(Code::Invalid, "the container beside the database does not know the request " + value_of(request, "do"));
  // Of what is replaced, too: those ids were given.
  auto last = last_accounted_job(cluster);
  if (!last) return std::unexpected(std::move(last.error()));
  const std::string note = folder + "/requests/database.last";
  if (auto noted = read_card("request", note); noted && value_of(*noted, "id") == value_of(request, "id")) {
    // Of the time before the first try, whose end is not known.
  } else if (auto written = write_card("request", note, {{"id", value_of(request, "id")}, {"last-id", std::to_string(*last)}}); !written) return std::unexpected(std::move(written.error()));
  auto kept = put_back_accounting(path, value_of(request, "sum"));
  if (!kept) return std::unexpected(std::move(kept.error()));
  out["last-id"] = std::to_string(*last);
  if (!kept->empty()) out["kept"] = *kept;
  return out;
}

Result<void> request(const std::string& folder, const Card& card) {
  if (auto made = make_dirs(folder + "/requests", 0700); !made) return made;
  if (auto there = read_card("request", request_path(folder)); there && value_of(*there, "id") == value_of(card, "id")) return {};
  return write_card("request", request_path(folder), card);
}

Result<Card> answer_to(const std::string& folder, const std::string& id) {
  auto answer = read_card("answer", answer_path(folder));
  if (!answer && answer.error().code != Code::NotFound && answer.error().code != Code::Invalid) return answer;
  if (!answer || value_of(*answer, "id") != id) return fail(Code::Unavailable, "waits for the container beside the database");
  if (value_of(*answer, "ok") != "yes") return fail(Code::Invalid, value_of(*answer, "error"));
  return answer;
}

}  // namespace

void answer_request(const std::string& folder) {
  auto card = read_card("request", request_path(folder));
  if (!card) return;
  const std::string id = value_of(*card, "id");
  if (auto answer = read_card("answer", answer_path(folder)); answer && value_of(*answer, "id") == id) return;
  if (auto taken = write_card("answer", taken_path(folder), {{"id", id}}); !taken) return;
  // Whoever takes a request back removes it and then looks whether it was taken: one of both sees the other.
  auto still = read_card("request", request_path(folder));
  auto done = still && value_of(*still, "id") == id ? carry_out(folder, *card) : Result<Card>(fail(Code::Invalid, "the request was taken back"));
  Card answer = done ? *done : Card{{"error", done.error().message}};
  answer["id"] = id;
  answer["ok"] = done ? "yes" : "no";
  if (auto written = write_card("answer", answer_path(folder), answer); !written) log_warn("the volume of the sets cannot be written", {{"reason", written.error().message}});
  log_info(done ? "asked for a set of the cluster: done" : "asked for a set of the cluster: not done", {{"request", id}, {"reason", done ? "" : done.error().message}});
}

void serve_sets() {
  if (!exists(kSetsFolder)) return;
  std::thread([] {
    while (true) {
      answer_request(kSetsFolder);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }).detach();
}

Result<Card> ask_for_dump(const std::string& folder, const std::string& path, const std::string& cluster, std::chrono::seconds patience) {
  const SystemClock clock;
  const std::string id = fmt::format("dump-{}", std::chrono::duration_cast<std::chrono::nanoseconds>(clock.now().time_since_epoch()).count());
  if (auto asked = request(folder, {{"id", id}, {"do", "dump"}, {"path", path}, {"cluster", cluster}}); !asked) return std::unexpected(std::move(asked.error()));
  const auto began = clock.monotonic();
  while (true) {
    auto answer = answer_to(folder, id);
    if (answer || answer.error().code != Code::Unavailable) {
      ::unlink(request_path(folder).c_str());
      if (answer)
        for (const char* name : {"id", "ok"}) answer->erase(name);
      return answer;
    }
    auto taken = read_card("answer", taken_path(folder));
    const bool at_work = taken && value_of(*taken, "id") == id;
    if (clock.monotonic() - began > (at_work ? std::chrono::seconds(3 * 3600) : patience)) {
      ::unlink(request_path(folder).c_str());
      return fail(Code::Unavailable, at_work ? "the dump of the database has not ended within three hours" : fmt::format("container backup of the database's pod has not taken the request within {} s; is the database away?", patience.count()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Result<Card> ask_for_restore(const std::string& folder, const std::string& id, const std::string& path, const std::string& sum, const std::string& cluster) {
  auto answer = answer_to(folder, id);
  if (!answer && answer.error().code == Code::Unavailable) {
    if (auto taken = read_card("answer", taken_path(folder)); taken && value_of(*taken, "id") == id && !exists(request_path(folder))) return answer;  // taken as it was being taken back: its answer comes
    if (auto asked = request(folder, {{"id", id}, {"do", "restore"}, {"path", path}, {"sum", sum}, {"cluster", cluster}}); !asked) return std::unexpected(std::move(asked.error()));
    return answer;
  }
  if (answer) {
    // Asked twice, the second time it sees what the first had put there: the higher one counts.
    auto last = read_card("request", folder + "/requests/database.last");
    if (last && value_of(*last, "id") == id && number_of(*last, "last-id") > number_of(*answer, "last-id")) (*answer)["last-id"] = value_of(*last, "last-id");
  }
  return answer;
}

bool withdraw_request(const std::string& folder, const std::string& id) {
  ::unlink(request_path(folder).c_str());
  auto taken = read_card("answer", taken_path(folder));
  if (!taken) return taken.error().code == Code::NotFound;
  return value_of(*taken, "id") != id;
}

}  // namespace fairlead::companion
