# SPDX-License-Identifier: Apache-2.0
"""Cases of CRDs whose versions a webhook converts. The webhook is a thread of this process, on this machine, with a certificate of its own: v1 has spec.at "host:port", v2 has host and port. Its path says how it errs."""
import base64
import http.server
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time

from cases import CRDS, case, each, with_

GROUP = 'corpus.fairlead.dev'
PLURALS = ['gears', 'failgears', 'fewgears', 'namegears', 'uidgears', 'versiongears', 'labelgears', 'brokengears']


def convert(obj, to):
    spec = dict(obj.get('spec') or {})
    if to.endswith('/v2') and 'at' in spec:
        spec['host'], _, port = spec.pop('at').partition(':')
        spec['port'] = int(port)
    if to.endswith('/v1') and 'host' in spec:
        spec['at'] = f"{spec.pop('host')}:{spec.pop('port', 0)}"
    metadata = {**obj['metadata'], 'annotations': dict(obj['metadata'].get('annotations') or {})}
    if to.endswith('/v1') and 'mode' in spec:  # v1 has no such field
        metadata['annotations']['mode'] = spec.pop('mode')
    if to.endswith('/v2') and 'mode' in metadata['annotations']:
        spec['mode'] = metadata['annotations'].pop('mode')
    if not metadata['annotations']:
        metadata.pop('annotations')
    return {**obj, 'apiVersion': to, 'metadata': metadata, 'spec': spec}


def answer(path, request):
    objects = [convert(o, request['desiredAPIVersion']) for o in request['objects']]
    response = {'uid': request['uid'], 'result': {'status': 'Success'}, 'convertedObjects': objects}
    if path == '/fail':
        response = {'uid': request['uid'], 'result': {'status': 'Failed', 'message': 'not today'}}
    elif path == '/few':
        objects.pop()
    elif path == '/name':
        objects[0]['metadata'] = {**objects[0]['metadata'], 'name': 'other'}
    elif path == '/uid':
        objects[0]['metadata'] = {**objects[0]['metadata'], 'uid': '00000000-0000-0000-0000-000000000000'}
    elif path == '/version':
        objects[0]['apiVersion'] = GROUP + '/v9'
    elif path == '/label':
        objects[0]['metadata'] = {**objects[0]['metadata'], 'labels': {'by': 'webhook'}, 'annotations': {'seen': 'yes'}, 'finalizers': ['corpus/never'], 'generation': 77}
    return {'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'ConversionReview', 'response': response}


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers['Content-Length'])))['request']
        path = self.path.split('?')[0]  # kube-apiserver adds ?timeout=30s
        body = b'hello' if path == '/broken' else json.dumps(answer(path, request)).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


_hook = None


def hook():
    """Its address and its certificate, which signs itself."""
    global _hook
    if _hook is None:
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = os.path.join(folder, 'k'), os.path.join(folder, 'c')
            subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', certificate, '-days', '2', '-subj', '/CN=hook',
                            '-addext', 'subjectAltName=IP:127.0.0.1'], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Hook)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            with open(certificate, 'rb') as file:
                bundle = base64.b64encode(file.read()).decode()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _hook = f'https://127.0.0.1:{server.server_address[1]}', bundle
    return _hook


def by_hook(path='/convert', **config):
    url, bundle = hook()
    return {'strategy': 'Webhook', 'webhook': {'clientConfig': {'url': url + path, 'caBundle': bundle, **config}, 'conversionReviewVersions': ['v1']}}


def schema(**fields):
    return {'openAPIV3Schema': {'type': 'object', 'properties': {'spec': {'type': 'object', 'properties': fields}, 'status': {'type': 'object', 'properties': {'phase': {'type': 'string'}}}}}}


def crd(plural, conversion):
    kind = plural.capitalize()[:-1]
    v1 = {'name': 'v1', 'served': True, 'storage': False, 'subresources': {'status': {}}, 'schema': schema(at={'type': 'string', 'pattern': '^[a-z]+:[0-9]+$'}, size={'type': 'integer', 'default': 1})}
    v2 = {'name': 'v2', 'served': True, 'storage': True, 'subresources': {'status': {}}, 'schema': schema(host={'type': 'string'}, port={'type': 'integer', 'maximum': 99}, size={'type': 'integer', 'default': 1}, mode={'type': 'string', 'default': 'A'})}
    return {'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition', 'metadata': {'name': f'{plural}.{GROUP}'},
            'spec': {'group': GROUP, 'scope': 'Namespaced', 'names': {'plural': plural, 'singular': kind.lower(), 'kind': kind, 'listKind': kind + 'List'}, 'conversion': conversion, 'versions': [v1, v2]}}


def make(s, plural, path):
    """Paths of its collections in v1 and v2, when both are served."""
    s.post(CRDS, crd(plural, by_hook(path)), keep=False)
    paths = [s.path(plural, group=GROUP, version=v) for v in ('v1', 'v2')]
    for _ in range(100):
        if all(s.get(p, keep=False).status == 200 for p in paths):
            return paths
        time.sleep(0.1)
    raise RuntimeError(f'{plural}: not served')


def gear(plural='gears', name='a', version='v1', **spec):
    return {'apiVersion': f'{GROUP}/{version}', 'kind': plural.capitalize()[:-1], 'metadata': {'name': name, 'labels': {'a': 'b'}}, 'spec': spec}


@case
def converted_life(s):
    v1, v2 = make(s, 'gears', '/convert')
    s.post(v1, gear(at='x:7'), step='create in v1')
    s.get(v2 + '/a', step='read in v2')
    s.get(v1 + '/a', step='read in v1')
    s.post(v1, gear(name='bad', at='7'), step='the schema of v1')
    s.post(v2, gear(name='bad', version='v2', host='x', port=100), step='the schema of v2')
    s.post(v1, gear(name='large', at='x:100'), step='what v1 allows and v2 does not')
    s.post(v2, gear(name='b', version='v2', host='y', port=8, mode='B'), step='create in v2')
    s.get(v1, step='list in v1')
    s.get(v2, step='list in v2')
    s.get(v1, limit=1, step='a page in v1')
    s.get(v1, labelSelector='a=c', step='list nothing')
    s.put(v1 + '/a', with_(s.get(v1 + '/a', keep=False).json, ['spec', 'at'], 'x:9'), step='replace in v1')
    s.patch(v1 + '/a', {'spec': {'at': 'z:1'}}, step='patch in v1')
    s.patch(v2 + '/a', {'spec': {'port': 2}}, step='patch in v2')
    s.patch(v1 + '/a', [{'op': 'replace', 'path': '/spec/size', 'value': 5}], 'json', step='json patch in v1')
    s.patch(v1 + '/a/status', {'status': {'phase': 'Up'}}, step='status in v1')
    s.get(v2 + '/a', step='read again in v2')
    s.post(v1, gear(name='dry', at='x:1'), dryRun='All', step='dry run')
    s.watch(v1, 2, step='watch in v1')
    s.delete(v1 + '/b', step='delete in v1')
    s.delete(v2 + '/large', step='delete in v2')
    s.delete(v1 + '/gone', step='delete nothing')
    s.delete(v1, step='delete all')


@case
def converted_apply(s):
    v1, _ = make(s, 'gears', '/convert')
    s.patch(v1 + '/p', gear(name='p', at='x:1'), 'apply', fieldManager='one', step='apply makes it')
    s.patch(v1 + '/p', gear(name='p', at='x:2'), 'apply', fieldManager='one', step='apply changes it')
    s.patch(v1 + '/p', gear(name='p', at='x:3'), 'apply', fieldManager='two', step='conflict')
    s.patch(v1 + '/p', gear(name='p', at='x:3'), 'apply', fieldManager='two', force='true', step='force')


@each(fail=('failgears', '/fail'), few=('fewgears', '/few'), name=('namegears', '/name'), uid=('uidgears', '/uid'), version=('versiongears', '/version'), label=('labelgears', '/label'), broken=('brokengears', '/broken'))
def converted_badly(s, plural, path):
    v1, v2 = make(s, plural, path)
    s.post(v2, gear(plural, version='v2', host='y', port=8), step='create in v2')
    s.get(v2 + '/a', step='read in v2')
    broken = path == '/broken'  # how an answer is none differs in words
    got = s.get(v1 + '/a', step='read in v1', keep=not broken)
    listed = s.get(v1, step='list in v1', keep=False)
    made = s.post(v1, gear(plural, name='b', at='x:1'), step='create in v1', keep=not broken)
    assert not broken or (got.status, listed.status, made.status) == (500, 500, 500), (got.status, listed.status, made.status)
    s.patch(v2 + '/a', {'spec': {'port': 9}}, step='patch in v2')
    s.delete(v2 + '/a', step='delete in v2')


def config(**parts):
    return with_(crd('gears', by_hook()), ['spec', 'conversion', 'webhook', 'clientConfig'], parts)


@each(nothing={}, both={'url': 'https://a/b', 'service': {'namespace': 'a', 'name': 'b'}}, http={'url': 'http://a/b'}, no_host={'url': 'https:///b'}, user={'url': 'https://me@a/b'}, query={'url': 'https://a/b?c=d'}, fragment={'url': 'https://a/b#c'},
      service={'service': {'namespace': 'a', 'name': 'b', 'path': '/c'}}, service_empty={'service': {'namespace': '', 'name': ''}}, service_port={'service': {'namespace': 'a', 'name': 'b', 'port': 70000}}, service_path={'service': {'namespace': 'a', 'name': 'b', 'path': 'c'}},
      service_step={'service': {'namespace': 'a', 'name': 'b', 'path': '/c//D'}})
def conversion_config(s, parts):
    s.post(CRDS, config(**parts), dryRun='All')


@each(none_versions=[], unknown=['v7'], twice=['v1', 'v1'], capital=['V1', 'v1'])
def conversion_versions(s, versions):
    s.post(CRDS, with_(crd('gears', by_hook()), ['spec', 'conversion', 'webhook', 'conversionReviewVersions'], versions), dryRun='All')


@each(no_webhook={'strategy': 'Webhook'}, config_of_none={'strategy': 'None', 'webhook': {'clientConfig': {'url': 'https://a/b'}, 'conversionReviewVersions': ['v1']}}, no_strategy={'webhook': {'clientConfig': {'url': 'https://a/b'}, 'conversionReviewVersions': ['v1']}})
def conversion_strategy(s, conversion):
    s.post(CRDS, crd('gears', conversion), dryRun='All')
