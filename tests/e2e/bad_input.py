#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends a real fairlead-server what breaks parsers, limits and patience, over TLS sockets of its own (a client library would refuse to send most of it).

  bad_input.py FAIRLEAD_SERVER

Every answer must be a 4xx, with a Status object where the request could be read; none may stop the server or stay in its memory."""
import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

JSON = 'application/json'
YAML = 'application/yaml'
PROTOBUF = 'application/vnd.kubernetes.protobuf'
MAPS = '/api/v1/namespaces/default/configmaps'
PODS = '/api/v1/namespaces/default/pods'
BATCHES = 4  # of five rounds each, before memory that grew in every one of them is a fault


def request(method, target, content_type='', body=b'', headers=()):
    body = body if isinstance(body, bytes) else body.encode()
    lines = [f'{method} {target} HTTP/1.1', 'Host: localhost', *headers]
    if body or method in ('POST', 'PUT', 'PATCH'):
        lines += [f'Content-Type: {content_type}', f'Content-Length: {len(body)}']
    return '\r\n'.join(lines).encode() + b'\r\n\r\n' + body


def config_map(**parts):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'bad'}, **parts}


def pod(**spec):
    return {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'bad'}, 'spec': {'containers': [{'name': 'a', 'image': 'busybox', **spec}]}}


def nested(depth):
    return '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"data":' + '{"a":' * depth + '1' + '}' * depth + '}'


def laughs(levels):
    """Aliases of aliases: a few hundred bytes that unfold into gigabytes."""
    lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x]']
    for level in range(1, levels):
        lines.append(f'a{level}: &a{level} [' + ', '.join([f'*a{level - 1}'] * 9) + ']')
    return '\n'.join(lines)


# name, content type, body, statuses that are right
BODIES = [
    ('nothing', JSON, '', (400,)),
    ('cut JSON', JSON, '{"apiVersion":"v1","kind":"Conf', (400,)),
    ('two documents', JSON, '{}{}', (400,)),
    ('not an object', JSON, '[1,2]', (400,)),
    ('a NUL in JSON', JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\x00b"}}', (400,)),
    ('JSON that is not UTF-8', JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"data":{"a":"\xff\xfe\xc0\x80"}}', (400, 422)),
    ('half a surrogate', JSON, r'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"\ud800"}}', (400, 422)),
    ('a number out of range', JSON, json.dumps(pod(ports=[{'containerPort': 1}])).replace(': 1}', ': 1e400}'), (400,)),
    ('JSON 100,000 deep', JSON, nested(100_000), (400,)),
    ('open brackets alone', JSON, '[' * 1_000_000, (400,)),
    ('wrong types', JSON, json.dumps(config_map(data=['a'])), (400,)),
    ('metadata is text', JSON, json.dumps({**config_map(), 'metadata': 'x'}), (400,)),
    ('another kind', JSON, json.dumps({**config_map(), 'kind': 'Secret'}), (400,)),
    ('a bad name', JSON, json.dumps({**config_map(), 'metadata': {'name': '../../etc'}}), (422,)),
    ('a bad label', JSON, json.dumps({**config_map(), 'metadata': {'name': 'bad', 'labels': {'a b': '-'}}}), (422,)),
    ('a name without an end', JSON, json.dumps({**config_map(), 'metadata': {'name': 'a' * 100_000}}), (422,)),
    ('cut YAML', YAML, 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ', (400,)),
    ('YAML with tabs', YAML, 'apiVersion: v1\nmetadata:\n\tname: bad\n', (400,)),
    ('YAML that unfolds', YAML, laughs(12), (400, 413)),
    ('YAML that contains itself', YAML, 'a: &a [*a]', (400,)),
    ('YAML 10,000 deep', YAML, '[' * 10_000, (400,)),
    ('YAML of two documents', YAML, 'a: 1\n---\nb: 2\n', (400,)),
    ('YAML with a tag', YAML, '!!python/object/apply:os.system ["true"]', (400,)),
    ('protobuf without its magic', PROTOBUF, b'\x0a\x02v1', (400,)),
    ('protobuf: the magic alone', PROTOBUF, b'k8s\0', (400,)),
    ('protobuf: a length past the end', PROTOBUF, b'k8s\0\x0a\xff\xff\xff\xff\x0f', (400,)),
    ('protobuf: a length of 2^63', PROTOBUF, b'k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f', (400,)),
    ('protobuf: a varint without an end', PROTOBUF, b'k8s\0' + b'\xff' * 64, (400,)),
    ('protobuf: groups in groups', PROTOBUF, b'k8s\0' + b'\x0b' * 100_000, (400,)),
    ('protobuf of an unknown kind', PROTOBUF, b'k8s\0\x0a\x0b\x0a\x02v1\x12\x05Thing\x12\x00', (400,)),
    ('protobuf for a pod that is JSON', PROTOBUF, json.dumps(pod()), (400,)),
    ('a type nobody reads', 'text/html', '<p>', (415,)),
    ('a type that is no type', '/;;;', '{}', (415,)),
    ('a body over the limit', JSON, json.dumps(config_map(data={'a': 'x' * 9_000_000})), (413,)),
]
POD_BODIES = [
    ('a quantity that is none', pod(resources={'requests': {'cpu': 'much'}}), (400, 422)),
    ('a quantity of 200 digits', pod(resources={'requests': {'memory': '9' * 200}}), (400, 422)),
    ('a negative quantity', pod(resources={'requests': {'cpu': '-1'}}), (422,)),
    ('a path out of its volume', {**pod(), 'spec': {**pod()['spec'], 'volumes': [{'name': 'v', 'configMap': {'name': 'c', 'items': [{'key': 'a', 'path': '../../etc/passwd'}]}}]}}, (422,)),
]
# name, method, target, statuses
TARGETS = [
    ('a label selector that is none', 'GET', PODS + '?labelSelector=a%20b%20c', (400,)),
    ('a field selector of an unknown field', 'GET', PODS + '?fieldSelector=spec.frob%3D1', (400,)),
    ('a long selector', 'GET', PODS + '?labelSelector=' + ','.join(['a=b'] * 20_000), (400, 414, 431)),
    ('a page token that is none', 'GET', PODS + '?limit=1&continue=%2F%2F%2F', (400,)),
    ('a limit that is none', 'GET', PODS + '?limit=many', (400,)),
    ('a version that is none', 'GET', PODS + '?watch=1&resourceVersion=soon', (400,)),
    ('a version of the future', 'GET', PODS + '?resourceVersion=99999999999&resourceVersionMatch=Exact', (400, 410, 504)),
    ('dots in the path', 'GET', '/api/v1/namespaces/../../../../etc/passwd', (400, 404)),
    ('an encoded slash in a name', 'GET', '/api/v1/namespaces/default/configmaps/a%2F..%2Fb', (400, 404)),
    ('a path of 7,000 segments', 'GET', '/a' * 7_000, (400, 404, 414, 431)),
    ('a path over the limit', 'GET', '/' + 'a' * 1_000_000, (400, 414, 431)),
    ('an unknown group', 'GET', '/apis/none.example/v1/things', (404,)),
    ('a method of our own', 'FROB', MAPS, (400, 405)),
    ('exec without an upgrade', 'GET', PODS + '/none/exec?command=a', (400, 404)),
]
# name, bytes on the wire, statuses; the connection ends, a Status is not demanded: the request was not understood
WIRE = [
    ('no HTTP', b'\x16\x03\x01\x02\x00\x01\x00\r\n\r\n', (400,)),
    ('two lengths', b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}', (400,)),
    ('a length and chunks', b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', (400,)),
    ('a negative length', b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n', (400,)),
    ('a length of 2^70', b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nContent-Length: 1180591620717411303424\r\n\r\n', (400, 413)),
    ('a chunk of 2^60', b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\nx', (400, 413)),
    ('a chunk that is none', b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n', (400,)),
    ('a header line of 1 MB', b'GET /api HTTP/1.1\r\nHost: a\r\nX: ' + b'a' * 1_000_000 + b'\r\n\r\n', (400, 431)),
    ('100,000 header lines', b'GET /api HTTP/1.1\r\nHost: a\r\n' + b'X: a\r\n' * 100_000 + b'\r\n', (400, 431)),
    ('a bad escape', request('GET', '/api/v1/namespaces/%zz'), (400,)),
    ('a NUL in the path', request('GET', '/api/v1/namespaces/a%00b'), (400,)),
    ('a folded header', b'GET /api HTTP/1.1\r\nHost: a\r\nX: a\r\n\x00b\r\n\r\n', (400,)),
]


class Server:
    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix='fairlead-bad-input-', dir='/var/tmp')
        self.log = os.path.join(self.folder, 'log')
        with open(self.log, 'w', encoding='utf-8') as log:
            self.process = subprocess.Popen([program, '--state-dir', self.folder + '/state', '--listen', '127.0.0.1:0'], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not (found := re.search(r' serving .*?127\.0\.0\.1:(\d+)', self.text())):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError('the server did not start:\n' + self.text())
            time.sleep(0.05)
        self.port = int(found[1])
        config = open(self.folder + '/state/pki/admin.kubeconfig', encoding='utf-8').read()
        self.ca = self.save('ca.crt', config, 'certificate-authority-data')
        self.admin = self.save('admin.crt', config, 'client-certificate-data'), self.save('admin.key', config, 'client-key-data')

    def save(self, name, config, field):
        path = os.path.join(self.folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as file:
            file.write(base64.b64decode(re.search(field + r': "?([A-Za-z0-9+/=]+)', config)[1]))
        return path

    def text(self):
        return open(self.log, encoding='utf-8', errors='replace').read()

    def resident(self):
        return int(re.search(r'VmRSS:\s+(\d+)', open(f'/proc/{self.process.pid}/status', encoding='utf-8').read())[1]) / 1024

    def connect(self, certificate=None, timeout=20):
        context = ssl.create_default_context(cafile=self.ca)
        if certificate:
            context.load_cert_chain(*certificate)
        return context.wrap_socket(socket.create_connection(('127.0.0.1', self.port), timeout=timeout), server_hostname='127.0.0.1')

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


def answer(connection, data):
    """(status, body) of one answer; (0, b'') where the connection ends without one. A server that refuses early may close while we still send."""
    try:
        connection.sendall(data)
    except OSError:
        pass
    got = b''
    try:
        while b'\r\n\r\n' not in got:
            piece = connection.recv(65536)
            if not piece:
                return 0, got
            got += piece
        head, body = got.split(b'\r\n\r\n', 1)
        length = re.search(rb'(?i)content-length: *(\d+)', head)
        while length and len(body) < int(length[1]):
            piece = connection.recv(65536)
            if not piece:
                break
            body += piece
        return int(head.split(b' ', 2)[1]), body
    except OSError:
        return 0, got


def encoded(part):
    return base64.urlsafe_b64encode(part if isinstance(part, bytes) else json.dumps(part).encode()).rstrip(b'=').decode()


class Checks:
    def __init__(self, server):
        self.server, self.good, self.bad = server, 0, []

    def tell(self, name, problem=''):
        if problem:
            self.bad.append(name)
            print(f'FAIL {name}: {problem}')
        else:
            self.good += 1

    def ask(self, name, data, statuses, must_be_status=True, certificate='admin'):
        with self.server.connect(self.server.admin if certificate == 'admin' else certificate) as connection:
            status, body = answer(connection, data)
        if status not in statuses:
            return self.tell(name, f'{status} instead of {statuses}: {body[:200]!r}')
        if must_be_status:
            try:
                parsed = json.loads(body)
            except ValueError:
                return self.tell(name, f'{status}, but no JSON: {body[:200]!r}')
            if parsed.get('kind') != 'Status' or parsed.get('code') != status or not parsed.get('message'):
                return self.tell(name, f'no Status: {body[:200]!r}')
        return self.tell(name)

    def bodies(self):
        for name, content_type, body, statuses in BODIES:
            self.ask(name, request('POST', MAPS, content_type, body), statuses)
        for name, body, statuses in POD_BODIES:
            self.ask(name, request('POST', PODS, JSON, json.dumps(body)), statuses)
        strict = '?fieldValidation=Strict'
        self.ask('an unknown field, strictly', request('POST', MAPS + strict, JSON, json.dumps(config_map(frob=1))), (400,))
        self.ask('a key twice, strictly', request('POST', MAPS + strict, JSON, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"data":{"a":"1","a":"2"}}'), (400,))
        self.ask('a key twice in YAML, strictly', request('POST', MAPS + strict, YAML, 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\ndata: {a: "1", a: "2"}\n'), (400,))
        for content_type in ('json-patch+json', 'merge-patch+json', 'strategic-merge-patch+json', 'apply-patch+yaml'):
            for name, body in (('cut', '[{"op":'), ('a number', '7'), ('deep', '[' * 100_000)):
                self.ask(f'{content_type}: {name}', request('PATCH', MAPS + '/kept?fieldManager=a', 'application/' + content_type, body), (400, 415, 422))
        many = json.dumps([{'op': 'copy', 'from': '', 'path': '/data/a'}] * 40)
        self.ask('a JSON patch that doubles itself', request('PATCH', MAPS + '/kept', 'application/json-patch+json', many), (400, 413, 422))

    def targets(self):
        for name, method, target, statuses in TARGETS:
            self.ask(name, request(method, target), statuses, must_be_status=not {414, 431} & set(statuses))

    def wire(self):
        for name, data, statuses in WIRE:
            self.ask(name, data, (0, *statuses), must_be_status=False)

    def chunks_over_the_limit(self):
        head = b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n'
        self.ask('chunks over the limit', head + (b'100000\r\n' + b'x' * 0x100000 + b'\r\n') * 12, (413,), must_be_status=False)

    def patience(self):
        """Clients that say nothing, half of something, or stop listening must cost the others nothing."""
        server = self.server
        silent = [socket.create_connection(('127.0.0.1', server.port), timeout=20) for _ in range(200)]
        halves = [server.connect(server.admin) for _ in range(20)]
        for connection in halves:
            connection.sendall(b'POST ' + MAPS.encode() + b' HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"a":')
        deaf = [server.connect(server.admin) for _ in range(20)]
        for connection in deaf:
            connection.sendall(request('GET', '/openapi/v3/api/v1') * 20)
        self.ask('others are served meanwhile', request('GET', MAPS), (200,), must_be_status=False)
        for connection in silent + halves + deaf:
            connection.close()
        plain = socket.create_connection(('127.0.0.1', server.port), timeout=20)
        status, _ = answer(plain, request('GET', '/api'))
        self.tell('HTTP without TLS', '' if status in (0, 400) else f'{status}')
        plain.close()

    def half_closed(self):
        """A client that has said all and closes its sending half still gets its answer; one that closes in mid-request gets none, and no object is made."""
        connection = self.server.connect(self.server.admin)
        connection.sendall(request('POST', MAPS, JSON, json.dumps(config_map(metadata={'name': 'half'})))[:-5])
        connection.close()
        self.ask('half an object is none', request('GET', MAPS + '/half'), (404,))

    def credentials(self):
        server, folder = self.server, self.server.folder
        whoami = '/api/v1/namespaces/default/configmaps'
        self.ask('nobody', request('GET', whoami), (401, 403), certificate=None)
        key = os.urandom(32)
        claims = {'iss': 'https://kubernetes.default.svc.cluster.local', 'aud': ['https://kubernetes.default.svc.cluster.local'], 'sub': 'system:serviceaccount:kube-system:default', 'exp': 4102444800, 'iat': 0}
        none = encoded({'alg': 'none', 'typ': 'JWT'}) + '.' + encoded(claims) + '.'
        hs = encoded({'alg': 'HS256'}) + '.' + encoded(claims)
        # The public certificate as an HMAC key: the classic confusion of algorithms.
        confused = hs + '.' + encoded(hmac.new(open(server.ca, 'rb').read(), hs.encode(), hashlib.sha256).digest())
        tokens = {'rubbish': 'x', 'nothing': '', 'dots': '...', 'unsigned': none, 'signed by us': hs + '.' + encoded(hmac.new(key, hs.encode(), hashlib.sha256).digest()), 'with the public key as secret': confused,
                  '1 MB': 'a' * 1_000_000, 'bytes': '\xff\xfe', 'deep': encoded(b'{"alg":' + b'[' * 50_000) + '.' + encoded(claims) + '.a'}
        for name, token in tokens.items():
            self.ask(f'a token: {name}', request('GET', whoami, headers=()).replace(b'\r\n\r\n', b'\r\nAuthorization: Bearer ' + token.encode('latin-1') + b'\r\n\r\n'), (0, 400, 401, 403, 431), must_be_status=False, certificate=None)
        run = lambda *words: subprocess.run(['openssl', *words], check=True, capture_output=True, cwd=folder)
        subject = '/O=system:masters/CN=admin'
        run('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', 'own.key', '-out', 'own.crt', '-subj', subject, '-days', '2')
        issuer = subprocess.run(['openssl', 'x509', '-in', server.ca, '-noout', '-subject', '-nameopt', 'compat'], check=True, capture_output=True, text=True).stdout.split('=', 1)[1].strip()
        run('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', 'false-ca.key', '-out', 'false-ca.crt', '-subj', issuer if issuer.startswith('/') else '/CN=' + issuer.split('=')[-1].strip(), '-days', '2')
        run('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', 'false.key', '-out', 'false.csr', '-subj', subject)
        run('x509', '-req', '-in', 'false.csr', '-CA', 'false-ca.crt', '-CAkey', 'false-ca.key', '-CAcreateserial', '-out', 'false.crt', '-days', '2')
        ca_key = os.path.join(folder, 'state/pki/ca.key')
        made = [('signed by itself', 'own'), ('of an authority of the same name', 'false')]
        if os.path.exists(ca_key):
            open(folder + '/index', 'w', encoding='utf-8').close()
            run('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', 'old.key', '-out', 'old.csr', '-subj', subject)
            with open(folder + '/ca.cnf', 'w', encoding='utf-8') as config:
                config.write('[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index\nserial=serial\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n[p]\norganizationName=optional\ncommonName=supplied\n')
            run('ca', '-batch', '-config', 'ca.cnf', '-cert', server.ca, '-keyfile', ca_key, '-in', 'old.csr', '-out', 'old.crt', '-startdate', '20200101000000Z', '-enddate', '20200102000000Z', '-notext')
            made.append(('that has expired', 'old'))
        else:
            self.tell('an expired certificate', 'the key of the authority is not at state/pki/ca.key: the check cannot be made')
        for name, stem in made:
            try:
                with server.connect((f'{folder}/{stem}.crt', f'{folder}/{stem}.key')) as connection:
                    status, body = answer(connection, request('GET', whoami))
            except ssl.SSLError:
                status, body = 0, b''
            self.tell(f'a certificate {name}', '' if status in (0, 401) else f'{status}: {body[:200]!r}')

    def whole_round(self):
        for part in (self.bodies, self.targets, self.wire, self.chunks_over_the_limit, self.patience, self.half_closed):
            part()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server ends with an interrupted run, too
    server = Server(sys.argv[1])
    try:
        checks = Checks(server)
        with server.connect(server.admin) as connection:
            status, body = answer(connection, request('POST', MAPS, JSON, json.dumps(config_map(metadata={'name': 'kept'}, data={'a': 'kept'}))))
            assert status == 201, body
        checks.credentials()
        # The allocator keeps some of what it got once: it has all that after a few rounds.
        for _ in range(3):
            checks.whole_round()
        # What it keeps depends on which threads met which bodies, so one batch may end a step higher; memory that grows does so in every batch.
        # One 9 MB body a round that is never given back would be 45 MB in each.
        levels = [server.resident()]
        while len(levels) < 2 or (levels[-1] >= levels[-2] + 32 and len(levels) <= BATCHES):
            for _ in range(5):
                checks.whole_round()
            levels.append(server.resident())
        told = ', '.join(f'{level:.0f}' for level in levels)
        checks.tell('memory', '' if levels[-1] < levels[-2] + 32 else f'grows with every five rounds of everything: {told} MB')
        checks.ask('the object of before is there', request('GET', MAPS + '/kept'), (200,), must_be_status=False)
        with server.connect(server.admin) as connection:
            items = [item['metadata']['name'] for item in json.loads(answer(connection, request('GET', MAPS))[1])['items']]
        checks.tell('nothing bad was stored', '' if set(items) <= {'kept', 'kube-root-ca.crt'} else f'{items}')
        checks.tell('the server runs', '' if server.process.poll() is None else f'ended with {server.process.returncode}')
        if checks.bad:
            print('--- last lines of the server:\n' + '\n'.join(server.text().splitlines()[-15:]))
        print(f'{checks.good} checks passed, {len(checks.bad)} failed; resident before and after each five rounds of everything: {told} MB')
        return 1 if checks.bad else 0
    finally:
        server.close()


if __name__ == '__main__':
    sys.exit(main())
