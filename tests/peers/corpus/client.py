# SPDX-License-Identifier: Apache-2.0
"""One server as the corpus sees it: a kubeconfig, plain requests, answers made comparable."""
import base64
import http.client
import json
import os
import re
import ssl
import tempfile
import urllib.parse

import yaml

TIME = re.compile(r'\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b')
UID = re.compile(r'\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b')
# Five letters of chance: the volume with a pod's token.
TOKEN_VOLUME = re.compile(r'^kube-api-access-[a-z0-9]{5}$')
YAML_KEY = re.compile(r'^( *(?:- )?[\w.:/-]+):(?: |$)', re.M)
AGE = re.compile(r'^(<invalid>|<unknown>|\d+[smhdy](\d+[smhd])?)$')


class Server:
    """`kubeconfig`: a path. Its current context gives address, authority and client certificate or token."""

    def __init__(self, name, kubeconfig):
        self.name = name
        with open(kubeconfig, encoding='utf-8') as file:
            config = yaml.safe_load(file)
        context = next(c for c in config['contexts'] if c['name'] == config['current-context'])['context']
        cluster = next(c for c in config['clusters'] if c['name'] == context['cluster'])['cluster']
        user = next(u for u in config['users'] if u['name'] == context['user'])['user']
        folder = os.path.dirname(os.path.abspath(kubeconfig))
        self.url = urllib.parse.urlsplit(cluster['server'])
        self.token = user.get('token', '')
        self.tls = None
        if self.url.scheme == 'https':
            self.tls = ssl.create_default_context(cadata=self._pem(cluster, 'certificate-authority', folder))
            if 'client-certificate' in user or 'client-certificate-data' in user:
                self._load_pair(self._pem(user, 'client-certificate', folder), self._pem(user, 'client-key', folder))
        self.connection = None

    @staticmethod
    def _pem(part, key, folder):
        if key + '-data' in part:
            return base64.b64decode(part[key + '-data']).decode()
        with open(os.path.join(folder, part[key]), encoding='utf-8') as file:
            return file.read()

    def _load_pair(self, certificate, key):
        with tempfile.TemporaryDirectory() as folder:  # the ssl module reads files only; 0700
            names = []
            for name, text in (('c', certificate), ('k', key)):
                names.append(os.path.join(folder, name))
                with open(names[-1], 'w', encoding='utf-8') as file:
                    file.write(text)
            self.tls.load_cert_chain(*names)

    def connect(self):
        if self.tls is None:
            return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=30)
        return http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=30, context=self.tls)

    def send(self, method, path, body, headers):
        if self.token:
            headers = {**headers, 'Authorization': 'Bearer ' + self.token}
        for attempt in (0, 1):  # a kept connection may have been closed meanwhile; then nothing was done
            if self.connection is None:
                self.connection = self.connect()
            try:
                self.connection.request(method, self.url.path + path, body=body, headers=headers)
                answer = self.connection.getresponse()
                return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read()
            except (http.client.HTTPException, OSError) as error:
                self.connection.close()
                self.connection = None
                if not isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)):
                    raise
                if attempt:
                    raise

    def stream(self, path, headers, enough):
        """Lines of a watch until `enough(lines)`, or the server ends it (every watch asks for timeoutSeconds)."""
        if self.token:
            headers = {**headers, 'Authorization': 'Bearer ' + self.token}
        connection = self.connect()
        try:
            connection.request('GET', self.url.path + path, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return answer.status, [json.loads(answer.read() or b'{}')]
            lines = []
            while not enough(lines):
                line = answer.readline()
                if not line:
                    break
                if line.strip():
                    lines.append(json.loads(line))
            return 200, lines
        finally:
            connection.close()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.raw = status, headers, body
        try:
            self.json = json.loads(body)
        except (ValueError, UnicodeDecodeError):
            self.json = None

    def version(self):
        return self.json['metadata']['resourceVersion']

    def uid(self):
        return self.json['metadata']['uid']


class Session:
    """A case's run on one server. Every answer is kept, normalised, under its step's name."""

    def __init__(self, server, space):
        self.server, self.space, self.steps = server, space, []
        self.agent = 'corpus/1'
        self.requests = 0
        self.any_order_of_causes = False  # kube-apiserver walks a map: what it finds wrong comes in the order of chance

    def path(self, resource, name='', sub='', group='', version='v1', space=None):
        root = f'/apis/{group}/{version}' if group else f'/api/{version}'
        space = self.space if space is None else space
        parts = [root] + ([f'namespaces/{space}'] if space else []) + [resource] + ([name] if name else []) + ([sub] if sub else [])
        return '/'.join(parts)

    def do(self, method, path, body=None, ctype='application/json', accept='application/json', step='', keep=True, **query):
        if query:
            path += ('&' if '?' in path else '?') + urllib.parse.urlencode(query)
        headers = {'Accept': accept, 'User-Agent': self.agent}
        if body is not None:
            headers['Content-Type'] = ctype
            if not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            if isinstance(body, str):
                body = body.encode()
        answer = Answer(*self.server.send(method, path, body, headers))
        self.requests += 1
        if keep:
            self.keep(step or f'{method} {path.split("?")[0].rsplit("/", 2)[-1]}', answer)
        return answer

    def get(self, path, **more):
        return self.do('GET', path, **more)

    def post(self, path, body, **more):
        return self.do('POST', path, body, **more)

    def put(self, path, body, **more):
        return self.do('PUT', path, body, **more)

    def delete(self, path, body=None, **more):
        return self.do('DELETE', path, body, **more)

    def patch(self, path, body, kind='merge', **more):
        ctype = {'merge': 'application/merge-patch+json', 'json': 'application/json-patch+json', 'strategic': 'application/strategic-merge-patch+json',
                 'apply': 'application/apply-patch+yaml'}[kind]
        return self.do('PATCH', path, body, ctype=ctype, **more)

    def watch(self, path, count, step='', accept='application/json', **query):
        """`count` events, bookmarks that nothing asked for left out; at most what comes within two seconds."""
        query = {'watch': 'true', 'timeoutSeconds': 2, **query}
        path += ('&' if '?' in path else '?') + urllib.parse.urlencode(query)
        status, lines = self.server.stream(path, {'Accept': accept, 'User-Agent': self.agent}, lambda seen: len(seen) >= count)
        self.requests += 1
        self.steps.append((step or 'WATCH', self.normal({'status': status, 'events': lines})))
        return lines

    def keep(self, step, answer):
        body = answer.json if answer.json is not None else answer.raw.decode(errors='replace')
        if answer.headers.get('content-type') == 'application/yaml':  # texts may be quoted in many ways; what they are and their order are compared
            body = {'yaml': yaml.safe_load(body), 'keys': YAML_KEY.findall(body)}
        if self.any_order_of_causes:
            order_causes(body)
        kept = {'status': answer.status, 'type': answer.headers.get('content-type', '').split(',')[0].replace(' ', ''), 'body': body}
        if 'warning' in answer.headers:
            kept['warning'] = answer.headers['warning']
        self.steps.append((step, self.normal(kept)))

    # --- what may differ between two runs of the same server is levelled ---
    def text(self, value):
        value = UID.sub('<uid>', value)
        return TIME.sub('<time>', value)

    def normal(self, value, key=''):
        if isinstance(value, dict):
            out = {k: self.normal(v, k) for k, v in value.items()}
            start = out.get('generateName')
            if start and isinstance(out.get('name'), str) and out['name'].startswith(start) and len(out['name']) == len(start) + 5:
                out['name'] = start + '<chance>'
            if 'f:metadata' in out or key == 'fieldsV1':
                return out
            if out.get('kind') in ('Pod', 'PodList', 'PartialObjectMetadata') or 'involvedObject' in out or 'cells' in out:
                level_scheduling(out)
            for several in ('rows', 'items'):  # whether a scheduler has looked yet, and how often, is chance
                if isinstance(out.get(several), list):
                    out[several] = [one for one in out[several] if 'an event of the scheduler' not in json.dumps(one)]
            if isinstance(out.get('items'), list) and all(isinstance(i, dict) and 'metadata' in i for i in out['items']):
                out['items'] = sorted(out['items'], key=lambda i: (i['metadata'].get('namespace', ''), i['metadata'].get('name', '')))
            return out
        if isinstance(value, list):
            items = [self.normal(v, key) for v in value]
            if key == 'managedFields':
                for item in items:
                    item.pop('time', None)
                items.sort(key=lambda i: json.dumps(i, sort_keys=True))
            if key in ('resourceRules', 'nonResourceRules'):  # of a SelfSubjectRulesReview, in the order of the bindings, which nobody fixes
                items.sort(key=lambda i: json.dumps(i, sort_keys=True))
            if key == 'cells':
                items = ['<age>' if isinstance(i, str) and AGE.match(i) else i for i in items]
            return items
        if isinstance(value, str):
            if key == 'resourceVersion':
                return value if value in ('', '0') else '<version>'
            if key == 'continue':
                return '<token>' if value else ''
            if key == 'time':
                return '<time>'
            return self.text(TOKEN_VOLUME.sub('kube-api-access-<chance>', value))
        return value


def order_causes(body):
    """Puts the causes of a refusal in order, in its message too, where that is made of nothing but them."""
    causes = body.get('details', {}).get('causes', []) if isinstance(body, dict) else []
    texts = [f"{c.get('field')}: {c.get('message')}" for c in causes]
    said = '[' + ', '.join(texts) + ']'
    if len(causes) > 1 and body.get('message', '').endswith(said):
        causes.sort(key=lambda c: json.dumps(c, sort_keys=True))
        body['message'] = body['message'].removesuffix(said) + '[' + ', '.join(sorted(texts)) + ']'


def level_scheduling(obj):
    """Two schedulers look at a pod when they get to it and say it in events of their own: that is no answer to a request."""
    if 'cells' in obj:  # a row of a table: such an event's tells its time, its author and its name
        if 'FailedScheduling' in obj['cells']:
            obj['cells'] = [c if c in ('Warning', 'FailedScheduling') or (isinstance(c, str) and '/' in c) else '<said by a scheduler>' for c in obj['cells']]
            obj['object'] = {'kind': obj.get('object', {}).get('kind'), 'metadata': {'name': 'an event of the scheduler'}}
        return
    if 'involvedObject' in obj and 'reason' in obj:
        kept = {k: obj[k] for k in ('kind', 'apiVersion', 'type') if k in obj}
        if obj.get('reason') == 'FailedScheduling':
            obj.clear()
            obj.update(kept, metadata={'name': 'an event of the scheduler'})
        return
    for pod in obj.get('items', [obj]) if isinstance(obj.get('items', []), list) else []:
        metadata, status = pod.get('metadata', {}), pod.get('status')
        if isinstance(metadata, dict) and 'managedFields' in metadata:
            metadata['managedFields'] = [m for m in metadata['managedFields'] if not (m.get('subresource') == 'status' and m.get('manager') in ('kube-scheduler', 'fairlead-server', 'fairlead'))]
        if isinstance(status, dict) and isinstance(status.get('conditions'), list):
            status['conditions'] = [c for c in status['conditions'] if c.get('type') != 'PodScheduled']
            if not status['conditions']:
                del status['conditions']


def differences(left, right, path=''):
    """Pairs of places where two normalised values differ: (path, left, right)."""
    if isinstance(left, dict) and isinstance(right, dict):
        out = []
        for key in sorted(set(left) | set(right)):
            here = f'{path}.{key}' if path else key
            if key not in left:
                out.append((here, None, right[key]))
            elif key not in right:
                out.append((here, left[key], None))
            else:
                out += differences(left[key], right[key], here)
        return out
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [d for i, (a, b) in enumerate(zip(left, right)) for d in differences(a, b, f'{path}[{i}]')]
    return [] if left == right and type(left) is type(right) else [(path, left, right)]
