// SPDX-License-Identifier: GPL-3.0-or-later
// Preloaded into slurmctld and slurmdbd: their connections send at once (TCP_NODELAY).
//
// Slurm hands the length of a message and the message to the kernel one after the other (slurm_persist_conn.c, slurm_protocol_socket.c). On a connection that lasts, Nagle's algorithm keeps the second back until the
// other side has acknowledged the first, and that waits for 40 ms whether it has something to say itself (RFC 1122, 4.2.3.2 and 4.2.3.4): 88 ms for each question of slurmctld to slurmdbd and its answer, of which it has
// eight before it serves. What is accepted on a listening socket has the option of that one.
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

extern "C" __attribute__((visibility("default"))) int socket(int domain, int type, int protocol) noexcept {
  static int (*const next)(int, int, int) = [] {
    int (*function)(int, int, int) = nullptr;
    void* found = dlsym(RTLD_NEXT, "socket");
    memcpy(&function, &found, sizeof found);
    return function;
  }();
  if (!next) {
    errno = ENOSYS;
    return -1;
  }
  const int fd = next(domain, type, protocol);
  const int error = errno;
  const int yes = 1;
  if (fd >= 0 && (domain == AF_INET || domain == AF_INET6) && (type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) == SOCK_STREAM) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);  // else it is as slow as before
  errno = error;
  return fd;
}
