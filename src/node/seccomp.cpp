// SPDX-License-Identifier: Apache-2.0
#include "node/seccomp.h"

#include <sched.h>
#include <seccomp.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>

namespace fairlead::node {
namespace {
using kube::Json;

struct Refused {
  const char* call;
  const char* unless;  // this capability; nullptr: always refused
};
// What concerns the kernel as a whole, other containers' memory, keys (not namespaced), or new namespaces with their larger attack surface.
constexpr Refused refused[] = {{"acct", "CAP_SYS_PACCT"},
                               {"add_key", nullptr},
                               {"keyctl", nullptr},
                               {"request_key", nullptr},
                               {"bpf", "CAP_BPF"},
                               {"perf_event_open", "CAP_PERFMON"},
                               {"lookup_dcookie", "CAP_SYS_ADMIN"},
                               {"clock_adjtime", "CAP_SYS_TIME"},
                               {"clock_settime", "CAP_SYS_TIME"},
                               {"settimeofday", "CAP_SYS_TIME"},
                               {"stime", "CAP_SYS_TIME"},
                               {"adjtimex", "CAP_SYS_TIME"},
                               {"create_module", nullptr},
                               {"delete_module", "CAP_SYS_MODULE"},
                               {"init_module", "CAP_SYS_MODULE"},
                               {"finit_module", "CAP_SYS_MODULE"},
                               {"get_kernel_syms", nullptr},
                               {"query_module", nullptr},
                               {"kexec_load", nullptr},
                               {"kexec_file_load", nullptr},
                               {"reboot", "CAP_SYS_BOOT"},
                               {"mount", "CAP_SYS_ADMIN"},
                               {"umount", "CAP_SYS_ADMIN"},
                               {"umount2", "CAP_SYS_ADMIN"},
                               {"pivot_root", "CAP_SYS_ADMIN"},
                               {"move_mount", "CAP_SYS_ADMIN"},
                               {"open_tree", "CAP_SYS_ADMIN"},
                               {"fsopen", "CAP_SYS_ADMIN"},
                               {"fsconfig", "CAP_SYS_ADMIN"},
                               {"fsmount", "CAP_SYS_ADMIN"},
                               {"fspick", "CAP_SYS_ADMIN"},
                               {"mount_setattr", "CAP_SYS_ADMIN"},
                               {"setns", "CAP_SYS_ADMIN"},
                               {"unshare", "CAP_SYS_ADMIN"},
                               {"quotactl", "CAP_SYS_ADMIN"},
                               {"quotactl_fd", "CAP_SYS_ADMIN"},
                               {"sethostname", "CAP_SYS_ADMIN"},
                               {"setdomainname", "CAP_SYS_ADMIN"},
                               {"fanotify_init", "CAP_SYS_ADMIN"},
                               {"swapon", nullptr},
                               {"swapoff", nullptr},
                               {"nfsservctl", nullptr},
                               {"vm86", nullptr},
                               {"vm86old", nullptr},
                               {"uselib", nullptr},
                               {"ustat", nullptr},
                               {"sysfs", nullptr},
                               {"_sysctl", nullptr},
                               {"syslog", "CAP_SYSLOG"},
                               {"vhangup", "CAP_SYS_TTY_CONFIG"},
                               {"iopl", "CAP_SYS_RAWIO"},
                               {"ioperm", "CAP_SYS_RAWIO"},
                               {"open_by_handle_at", "CAP_DAC_READ_SEARCH"},
                               {"userfaultfd", nullptr},
                               {"io_uring_setup", nullptr},
                               {"io_uring_enter", nullptr},
                               {"io_uring_register", nullptr},
                               {"kcmp", "CAP_SYS_PTRACE"},
                               {"process_madvise", "CAP_SYS_PTRACE"},
                               {"move_pages", "CAP_SYS_NICE"},
                               {"mbind", "CAP_SYS_NICE"},
                               {"set_mempolicy", "CAP_SYS_NICE"},
                               {"get_mempolicy", "CAP_SYS_NICE"},
                               {"migrate_pages", "CAP_SYS_NICE"}};

}  // namespace

Json default_seccomp(const std::vector<std::string>& capabilities) {
  const auto has = [&](const char* name) { return std::find(capabilities.begin(), capabilities.end(), name) != capabilities.end(); };
  std::set<std::string> allowed, denied;
  const std::uint32_t arch = seccomp_arch_native();
  for (int number = 0; number < 1024; ++number) {
    char* name = seccomp_syscall_resolve_num_arch(arch, number);
    if (name == nullptr) continue;
    allowed.emplace(name);
    std::free(name);
  }
  for (const Refused& one : refused) {
    if (one.unless != nullptr && has(one.unless)) continue;
    if (allowed.erase(one.call) != 0) denied.emplace(one.call);
  }
  const bool namespaces = has("CAP_SYS_ADMIN");
  if (!namespaces) {
    allowed.erase("clone");
    allowed.erase("clone3");
  }
  const auto list = [](const std::set<std::string>& names) {
    Json out = Json::array();
    for (const std::string& name : names) out.push(name);
    return out;
  };
  Json calls = Json::array();
  calls.push(Json::object({{"names", list(allowed)}, {"action", "SCMP_ACT_ALLOW"}}));
  calls.push(Json::object({{"names", list(denied)}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", EPERM}}));
  if (!namespaces) {
    // New namespaces only with CAP_SYS_ADMIN. The flags of clone3 are in memory, out of reach of a filter: ENOSYS makes libraries use clone.
    constexpr std::int64_t flags = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    Json masked = Json::object({{"index", 0}, {"value", flags}, {"valueTwo", 0}, {"op", "SCMP_CMP_MASKED_EQ"}});
    calls.push(Json::object({{"names", Json::array({"clone"})}, {"action", "SCMP_ACT_ALLOW"}, {"args", Json::array({std::move(masked)})}}));
    calls.push(Json::object({{"names", Json::array({"clone3"})}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", ENOSYS}}));
  }
  Json arches = Json::array();
#if defined(__x86_64__)
  arches.push("SCMP_ARCH_X86_64");
#elif defined(__aarch64__)
  arches.push("SCMP_ARCH_AARCH64");
#endif
  return Json::object(
      {{"defaultAction", "SCMP_ACT_ERRNO"}, {"defaultErrnoRet", ENOSYS}, {"architectures", std::move(arches)}, {"syscalls", std::move(calls)}});
}

}  // namespace fairlead::node
