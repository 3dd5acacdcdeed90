// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fairlead {

std::string_view name(Code code) {
  switch (code) {
    case Code::NotFound: return "NotFound";
    case Code::Exists: return "Exists";
    case Code::Conflict: return "Conflict";
    case Code::Invalid: return "Invalid";
    case Code::Forbidden: return "Forbidden";
    case Code::Unauthorized: return "Unauthorized";
    case Code::Exhausted: return "Exhausted";
    case Code::Expired: return "Expired";
    case Code::Unavailable: return "Unavailable";
    case Code::Unsupported: return "Unsupported";
    case Code::Internal: return "Internal";
  }
  return "Internal";
}

std::unexpected<Error> fail_errno(int error, std::string_view doing) {
  Code code = Code::Internal;
  switch (error) {
    case ENOENT: case ESRCH: code = Code::NotFound; break;
    case EEXIST: code = Code::Exists; break;
    case EACCES: case EPERM: code = Code::Forbidden; break;
    case ENOSPC: case EDQUOT: case ENOMEM: case EMFILE: case ENFILE: code = Code::Exhausted; break;
    case EAGAIN: case ECONNREFUSED: case ECONNRESET: case ETIMEDOUT: case EPIPE: case EHOSTUNREACH: case ENETUNREACH: case EBUSY:
      code = Code::Unavailable;
      break;
    case EINVAL: case ENAMETOOLONG: case ENOTDIR: case ELOOP: case EXDEV: code = Code::Invalid; break;
    default: break;
  }
  char text[128];
  return fail(code, std::string(doing) + ": " + strerror_r(error, text, sizeof text));
}

void invariant_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
  std::abort();
}

}  // namespace fairlead
