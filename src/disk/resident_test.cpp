// SPDX-License-Identifier: Apache-2.0
#include "disk/resident.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace fairlead::disk {
namespace {

constexpr std::size_t kPage = 4096;

struct Segment {
  const char* at = nullptr;
  std::size_t pages = 0;
  std::string bytes() const { return {at, pages * kPage}; }  // touches all of it
  std::size_t in_memory() const {
    std::size_t out = 0;
    const Fd map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    for (std::size_t i = 0; i < pages; ++i) {
      std::uint64_t entry = 0;
      if (::pread(map.get(), &entry, sizeof entry, static_cast<off_t>((reinterpret_cast<std::uintptr_t>(at) / kPage + i) * sizeof entry)) == sizeof entry && entry >> 63 == 1) ++out;
    }
    return out;
  }
};
// Of the library that AES comes from: its code, and what the loader has relocated and made read-only again.
struct Library {
  Segment code, relocated;
};
Library crypto() {
  Library out;
  ::dl_iterate_phdr([](dl_phdr_info* object, std::size_t, void* into) {
    if (std::string_view(object->dlpi_name).find("libcrypto.so") == std::string_view::npos) return 0;
    const auto segment = [&](const ElfW(Phdr)& one) { return Segment{reinterpret_cast<const char*>((object->dlpi_addr + one.p_vaddr + kPage - 1) / kPage * kPage), one.p_memsz / kPage - 1}; };
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& one = object->dlpi_phdr[i];
      if (one.p_type == PT_LOAD && (one.p_flags & PF_X) != 0) static_cast<Library*>(into)->code = segment(one);
      if (one.p_type == PT_GNU_RELRO) static_cast<Library*>(into)->relocated = segment(one);
    }
    return 1;
  }, &out);
  return out;
}

TEST(GiveBackCode, TakesWhatTheFileHasAndLeavesWhatTheLoaderHasWritten) {
  const auto [code, relocated] = crypto();
  ASSERT_GT(code.pages, 100U);
  ASSERT_GT(relocated.pages, 2U);
  const std::string before = code.bytes(), own = relocated.bytes();
  ASSERT_EQ(code.in_memory(), code.pages);
  give_back_code();
  EXPECT_LT(code.in_memory(), code.pages / 2);
  EXPECT_EQ(code.bytes(), before);
  EXPECT_EQ(relocated.bytes(), own);
  // What is locked, too; and what comes again is locked as it was.
  if (::mlock2(code.at, code.pages * kPage, MLOCK_ONFAULT) != 0) return;  // it may not be locked here
  ASSERT_EQ(code.in_memory(), code.pages);
  give_back_code();
  utsname kernel{};
  ASSERT_EQ(::uname(&kernel), 0);
  if (std::atof(kernel.release) >= 6) {
    EXPECT_LT(code.in_memory(), code.pages / 2) << "since Linux 5.18";
  }
  EXPECT_EQ(code.bytes(), before);
  EXPECT_EQ(::madvise(const_cast<char*>(code.at), kPage, MADV_DONTNEED), -1) << "it is not locked any more";
  ::munlock(code.at, code.pages * kPage);
}

TEST(Resident, SwapIsNamedOrItIsNotKnownThatThereIsNone) {
  char path[] = "/tmp/fairlead-swaps-XXXXXX";
  const Fd file(::mkstemp(path));
  ASSERT_TRUE(file);
  const auto says = [&](const std::string& text) {
    EXPECT_EQ(::ftruncate(file.get(), 0), 0);
    EXPECT_EQ(::pwrite(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return has_no_swap(path);
  };
  const std::string titles = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
  EXPECT_TRUE(says(titles));
  EXPECT_FALSE(says(titles + "/dev/dm-1                               partition\t8388604\t\t0\t\t-2\n"));
  EXPECT_FALSE(says(titles + "/swap"));
  EXPECT_FALSE(says(""));
  EXPECT_FALSE(says("\n"));
  ::unlink(path);
  EXPECT_FALSE(has_no_swap(path)) << "it is not known";
  std::ifstream real("/proc/swaps");
  const std::string all((std::istreambuf_iterator<char>(real)), {});
  if (!all.empty()) { EXPECT_EQ(has_no_swap(), all.find('/') == std::string::npos); }
}

TEST(Rest, BeginsOnceAfterTheLastThatWasDone) {
  using namespace std::chrono_literals;
  Rest rest;
  EXPECT_FALSE(rest.begins(0, 50s));
  EXPECT_FALSE(rest.begins(0, 59s));
  EXPECT_TRUE(rest.begins(0, 60s)) << "its beginning is over";
  EXPECT_FALSE(rest.begins(0, 100s)) << "once";
  EXPECT_FALSE(rest.begins(5, 101s));
  EXPECT_FALSE(rest.begins(5, 110s));
  EXPECT_FALSE(rest.begins(6, 110s + 900ms));
  EXPECT_FALSE(rest.begins(6, 111s));
  EXPECT_TRUE(rest.begins(6, 121s));
  EXPECT_FALSE(rest.begins(6, 200s)) << "once";
  EXPECT_FALSE(rest.begins(7, 200s));
  EXPECT_TRUE(rest.begins(7, 210s));
}

}  // namespace
}  // namespace fairlead::disk
