#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes blocks with checksums for as long as it is let, and says later whether what is there is a whole beginning of that.

    blocks.py write FOLDER     until FOLDER/stop is there. Each block is synced before its checksum is written, and the checksum before the next block. Prints BLOCKS BYTES_OF_THE_FILE_SYSTEM once a second; when the file
                               system has grown it fills more room than there was before, and prints `grown`
    blocks.py check FOLDER     prints how many blocks there are; fails where one of them is not what was written
"""
import hashlib
import os
import sys
import time

SIZE = 64 * 1024


def room(folder):
    there = os.statvfs(folder)
    return there.f_blocks * there.f_frsize


def write(folder):
    began, grown, said, number = room(folder), False, 0.0, 0
    with open(f"{folder}/blocks", "wb", buffering=0) as blocks, open(f"{folder}/sums", "wb", buffering=0) as sums:
        while not os.path.exists(f"{folder}/stop"):
            block = os.urandom(SIZE)
            if blocks.write(block) != SIZE:
                raise OSError("a block was not written whole")
            os.fdatasync(blocks.fileno())
            sums.write(f"{number} {hashlib.sha256(block).hexdigest()}\n".encode())
            os.fdatasync(sums.fileno())
            number += 1
            now = room(folder)
            if now > began * 1.5 and not grown:
                with open(f"{folder}/large", "wb") as large:
                    os.posix_fallocate(large.fileno(), 0, began + SIZE)
                    os.fsync(large.fileno())
                grown = True
                print("grown", flush=True)
            if time.monotonic() > said + 1:
                said = time.monotonic()
                print(number, now, flush=True)
            time.sleep(0.01)
    print("written", number, flush=True)


def check(folder):
    number = 0
    with open(f"{folder}/blocks", "rb") as blocks, open(f"{folder}/sums", "rb") as sums:
        for line in sums:
            if not line.endswith(b"\n"):
                break                          # it was being written
            if line.decode() != f"{number} {hashlib.sha256(blocks.read(SIZE)).hexdigest()}\n":
                sys.exit(f"block {number} is not what was written")
            number += 1
        rest = len(blocks.read())
    if rest > SIZE:                            # at most the one whose checksum was not there yet
        sys.exit(f"{rest} bytes without a checksum")
    print(number)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
