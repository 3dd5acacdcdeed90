#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what a client asks: a plain HTTP proxy on loopback in front of one API server.

  record.py --to KUBECONFIG --out FILE.jsonl -- COMMAND...     COMMAND sees the proxy in $CORPUS_URL and as a kubeconfig in $KUBECONFIG; it works in the namespace `corpusrecord`

Watches, logs and exec pass through unrecorded. Nothing of the credentials is written.
"""
import argparse
import base64
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from client import Server, Session

SPACE = 'corpusrecord'


def handler(server, out, lock):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def log_message(self, *_):
            pass

        def any(self):
            length = int(self.headers.get('Content-Length') or 0)
            body = self.rfile.read(length) if length else None
            headers = {k.lower(): v for k, v in self.headers.items() if k.lower() in ('accept', 'content-type', 'user-agent')}
            if 'watch=' in self.path:
                self.pass_through(headers)
                return
            with lock:
                status, answered, data = server.send(self.command, self.path, body, {k.title(): v for k, v in headers.items()})
                try:
                    answer = None if self.path.startswith('/openapi') else json.loads(data)
                except (ValueError, UnicodeDecodeError):
                    answer = None
                out.write(json.dumps({'method': self.command, 'path': self.path.replace(SPACE, 'SPACE'), 'headers': headers, 'body': base64.b64encode(body).decode() if body else '',
                                      'answer': made(answer)}, separators=(',', ':')) + '\n')
            self.send_response(status)
            for key in ('content-type', 'etag', 'warning'):
                if key in answered:
                    self.send_header(key, answered[key])
            self.send_header('Content-Length', str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def pass_through(self, headers):
            """A watch: on a connection of its own, for three seconds at most."""
            connection = server.connect()
            headers = {**headers, **({'Authorization': 'Bearer ' + server.token} if server.token else {})}
            connection.request('GET', self.path + '&timeoutSeconds=3', headers=headers)
            answer = connection.getresponse()
            self.send_response(answer.status)
            self.send_header('Content-Type', answer.getheader('Content-Type', 'application/json'))
            self.send_header('Connection', 'close')
            self.end_headers()
            try:
                while line := answer.readline():
                    self.wfile.write(line)
                    self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has seen enough
            finally:
                connection.close()
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = any

    return Handler


def made(answer):
    """Of an answer only what the server makes, in its place."""
    if isinstance(answer, dict):
        kept = {k: v if k in ('uid', 'resourceVersion', 'continue') and isinstance(v, str) else made(v) for k, v in answer.items() if k != 'managedFields'}
        return {k: v for k, v in kept.items() if v not in (None, {}, [], '')} or None
    if isinstance(answer, list):
        kept = [made(v) for v in answer]
        return kept if any(kept) else None
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--to', required=True)
    parser.add_argument('--out', required=True)
    parser.add_argument('command', nargs='+')
    arguments = parser.parse_args()
    server = Server('recorded', arguments.to)
    namespace = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': SPACE}}
    for _ in range(120):  # an earlier recording's may still be going away
        if Session(server, SPACE).post('/api/v1/namespaces', namespace, keep=False).status == 201:
            break
        time.sleep(0.5)
    while Session(server, SPACE).get(f'/api/v1/namespaces/{SPACE}/serviceaccounts/default', keep=False).status != 200:
        time.sleep(0.2)
    with open(arguments.out, 'w', encoding='utf-8') as out, tempfile.TemporaryDirectory() as folder:
        proxy = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler(server, out, threading.Lock()))
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        url = f'http://127.0.0.1:{proxy.server_port}'
        config = os.path.join(folder, 'config')
        with open(config, 'w', encoding='utf-8') as file:
            json.dump({'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'c', 'clusters': [{'name': 'c', 'cluster': {'server': url}}], 'users': [{'name': 'u', 'user': {}}],
                       'contexts': [{'name': 'c', 'context': {'cluster': 'c', 'user': 'u', 'namespace': SPACE}}]}, file)
        status = subprocess.run(arguments.command, env={**os.environ, 'CORPUS_URL': url, 'KUBECONFIG': config, 'HOME': folder}, check=False).returncode
        proxy.shutdown()
    Session(server, SPACE).delete(f'/api/v1/namespaces/{SPACE}', keep=False)
    return status


if __name__ == '__main__':
    sys.exit(main())
