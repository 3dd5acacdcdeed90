#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a terminal of its own and plays a person at it: terminal.py ROWSxCOLUMNS STEP... -- COMMAND...

A step is "<PATTERN": wait until what came since the last wait has this regular expression; ">TEXT": type it, with Enter; "#ROWSxCOLUMNS": the window
changes; ".": type the end of input. All that the command prints is printed. Exit status: the command's; 99 where a wait lasts longer than a minute ($TERMINAL_LIMIT: seconds).
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

LIMIT = int(os.environ.get('TERMINAL_LIMIT', '60'))


def set_size(fd, text):
    rows, columns = map(int, text.split('x'))
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))


class Screen:
    def __init__(self, fd):
        self.fd, self.seen, self.open = fd, '', True

    def read(self, seconds):
        """Takes what comes within this time."""
        if not self.open or not select.select([self.fd], [], [], seconds)[0]:
            return
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the last user of the terminal is gone
            data = b''
        self.open = bool(data)
        sys.stdout.write(data.decode(errors='replace'))
        self.seen += data.decode(errors='replace')

    def wait_for(self, pattern):
        end = time.monotonic() + LIMIT
        while not (found := re.search(pattern, self.seen)):
            if not self.open or time.monotonic() > end:
                return False
            self.read(1)
        self.seen = self.seen[found.end():]
        return True


def main():
    at = sys.argv.index('--')
    size, steps, command = sys.argv[1], sys.argv[2:at], sys.argv[at + 1:]
    pid, fd = pty.fork()
    if pid == 0:
        while os.get_terminal_size(0).lines == 0:  # the size is there before the command asks
            time.sleep(0.01)
        os.execvp(command[0], command)
    set_size(fd, size)
    screen = Screen(fd)
    for step in steps:
        kind, text = step[0], step[1:]
        if kind == '<' and not screen.wait_for(text):
            print(f'\nterminal.py: "{text}" did not come', file=sys.stderr)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 99
        if kind == '>':
            os.write(fd, text.encode() + b'\r')
        elif kind == '#':
            set_size(fd, text)
        elif kind == '.':
            os.write(fd, b'\x04')
    end = time.monotonic() + LIMIT
    while screen.open and time.monotonic() < end:
        screen.read(1)
    if screen.open:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 99 if screen.open else status


sys.exit(main())
