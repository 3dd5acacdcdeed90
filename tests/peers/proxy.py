#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and an API server and fails on command. It ends TLS on both sides, so clients show themselves by token.

  proxy.py UPSTREAM-PORT CA CERTIFICATE KEY      listens on 127.0.0.1; prints its port and that of its control

Control, over HTTP: GET /cut ends every connection but those about leases (the election goes on, as it may in life: it has connections of its own) and refuses
new ones; the answer comes when they are gone. GET /heal lets new ones in.
"""
import asyncio
import ssl
import sys


class Proxy:
    def __init__(self, port: int, trust: ssl.SSLContext):
        self.port, self.trust, self.cut, self.open = port, trust, False, set()

    async def serve(self, reader, writer):
        upstream = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            election = b"/leases" in head.split(b"\r\n", 1)[0]
            if self.cut and not election:
                return
            from_server, upstream = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)
            pair = (writer, upstream)
            if not election:
                self.open.add(pair)
            try:
                upstream.write(head)
                tasks = [asyncio.create_task(self.pump(reader, upstream)), asyncio.create_task(self.pump(from_server, writer))]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
            finally:
                self.open.discard(pair)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    @staticmethod
    async def pump(source, sink):
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except (OSError, ssl.SSLError):
            pass

    async def control(self, reader, writer):
        words = (await reader.readuntil(b"\r\n\r\n")).split()
        self.cut = words[1] == b"/cut"
        if self.cut:
            for pair in list(self.open):
                for end in pair:
                    end.transport.abort()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


async def main(port: str, ca: str, certificate: str, key: str):
    trust = ssl.create_default_context(cafile=ca)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(certificate, key)
    proxy = Proxy(int(port), trust)
    front = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=shown)
    control = await asyncio.start_server(proxy.control, "127.0.0.1", 0)
    print(front.sockets[0].getsockname()[1], control.sockets[0].getsockname()[1], flush=True)
    await asyncio.gather(front.serve_forever(), control.serve_forever())


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
