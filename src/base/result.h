// SPDX-License-Identifier: Apache-2.0
// Expected failures are values; broken invariants stop the process.
#pragma once
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace fairlead {

// Decides what the caller does. Mapped once per edge to HTTP statuses, exit statuses and conditions.
enum class Code {
  NotFound,     // it is not there
  Exists,       // it is there already
  Conflict,     // decided on an older version: read again, decide again
  Invalid,      // the input is wrong: tell the user
  Forbidden,    // known, but not allowed
  Unauthorized, // not known
  Exhausted,    // no room (disk, quota, queue): later, or never without help
  Expired,      // the history asked for is gone: list again
  Unavailable,  // not now: try again
  Unsupported,  // we do not do this, and say so
  Internal,     // a defect
};
std::string_view name(Code code);

struct Error {
  Code code = Code::Internal;
  std::string message;  // for a human: outer action first, cause last, with the values
  Error&& in(std::string_view doing) && {
    message.insert(0, std::string(doing) + ": ");
    return std::move(*this);
  }
  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
struct [[nodiscard]] Result : std::expected<T, Error> {
  using std::expected<T, Error>::expected;
};

inline std::unexpected<Error> fail(Code code, std::string why) { return std::unexpected(Error{code, std::move(why)}); }
// The same with the text of errno (pass errno itself): "mount /dev/x: Invalid argument". The code follows errno.
std::unexpected<Error> fail_errno(int error, std::string_view doing);
// Hands an error up with what was being done.
inline std::unexpected<Error> pass(Error error, std::string_view doing) { return std::unexpected(std::move(error).in(doing)); }

// For what no input can cause: prints and aborts, in release builds too.
[[noreturn]] void invariant_failed(const char* condition, const char* file, int line);
#define INVARIANT(condition) ((condition) ? void(0) : ::fairlead::invariant_failed(#condition, __FILE__, __LINE__))

}  // namespace fairlead
