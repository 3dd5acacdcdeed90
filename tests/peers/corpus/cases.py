# SPDX-License-Identifier: Apache-2.0
"""What is asked of both servers. A case is a function of a Session; each request's answer is compared. Cases share nothing but the server: each has a namespace."""
import copy
import json

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def each(**table):
    """One case for each row, named FUNCTION.ROW, called with the row's values."""
    def wrap(function):
        for name, row in table.items():
            CASES[f'{function.__name__}.{name}'] = lambda s, row=row: function(s, *row) if isinstance(row, tuple) else function(s, row)
        return function
    return wrap


def cm(name='a', data=None, **metadata):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name, **metadata}, 'data': data or {'k': 'v'}}


def pod(name='p', **spec):
    return {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name, 'labels': {'app': name}},
            'spec': {'automountServiceAccountToken': False, 'nodeSelector': {'corpus/none': 'x'}, 'containers': [{'name': 'main', 'image': 'busybox:1'}], **spec}}


def with_(obj, path, value):
    obj = copy.deepcopy(obj)
    at = obj
    for key in path[:-1]:
        at = at[key]
    if value is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return obj


# ---------- create, read, replace, delete ----------
@case
def config_map_life(s):
    at, base = s.path('configmaps', 'a'), s.path('configmaps')
    s.post(base, cm())
    s.post(base, cm(), step='exists')
    made = s.get(at)
    s.put(at, with_(made.json, ['data'], {'k': 'w'}), step='replace')
    s.put(at, with_(made.json, ['data'], {'k': 'x'}), step='stale')
    fresh = s.get(at, keep=False).json
    s.put(at, fresh, step='unchanged')
    s.put(at, with_(fresh, ['metadata', 'name'], 'b'), step='other name')
    s.put(at, with_(fresh, ['metadata', 'uid'], '00000000-0000-0000-0000-000000000000'), step='other uid')
    s.put(at, with_(fresh, ['metadata', 'namespace'], 'default'), step='other namespace')
    s.put(at, with_(with_(fresh, ['metadata', 'resourceVersion'], None), ['data'], {'k': 'u'}), step='unconditional')
    s.delete(at)
    s.get(at, step='gone')
    s.delete(at, step='delete again')
    s.put(at, cm(), step='replace what is gone')


@each(empty={}, no_name={'metadata': {}}, upper={'metadata': {'name': 'Upper'}}, dots={'metadata': {'name': 'a..b'}}, slash={'metadata': {'name': 'a/b'}},
      long={'metadata': {'name': 'x' * 254}}, label={'metadata': {'name': 'a', 'labels': {'a b': 'c'}}}, label_value={'metadata': {'name': 'a', 'labels': {'a': '-c'}}},
      label_long={'metadata': {'name': 'a', 'labels': {'a': 'c' * 64}}}, annotation={'metadata': {'name': 'a', 'annotations': {'a b': 'c'}}},
      finalizer={'metadata': {'name': 'a', 'finalizers': ['no']}}, finalizer_ok={'metadata': {'name': 'a', 'finalizers': ['x.dev/y']}},
      owner={'metadata': {'name': 'a', 'ownerReferences': [{'name': 'x'}]}},
      owners={'metadata': {'name': 'a', 'ownerReferences': [{'apiVersion': 'v1', 'kind': 'Pod', 'name': n, 'uid': n, 'controller': True} for n in 'xy']}},
      generate={'metadata': {'generateName': 'a-'}}, generate_bad={'metadata': {'generateName': 'A_'}}, namespace={'metadata': {'name': 'a', 'namespace': 'elsewhere'}},
      version={'metadata': {'name': 'a', 'resourceVersion': '7'}}, uid={'metadata': {'name': 'a', 'uid': 'abc'}}, generation={'metadata': {'name': 'a', 'generation': 9}},
      deletion={'metadata': {'name': 'a', 'deletionTimestamp': '2020-01-01T00:00:00Z'}}, key={'metadata': {'name': 'a'}, 'data': {'a b': 'c'}},
      binary={'metadata': {'name': 'a'}, 'data': None, 'binaryData': {'a': 'AAEC'}}, binary_bad={'metadata': {'name': 'a'}, 'binaryData': {'a': '!!'}},
      both={'metadata': {'name': 'a'}, 'data': {'k': 'v'}, 'binaryData': {'k': 'AAEC'}}, immutable={'metadata': {'name': 'a'}, 'immutable': True})
def create_config_map(s, change):
    body = {**cm(), **change} if change else {}
    s.post(s.path('configmaps'), body) if 'generateName' not in body.get('metadata', {}) else s.post(s.path('configmaps'), body, dryRun='All', keep=False)


@each(kind={**cm(), 'kind': 'Secret'}, version={**cm(), 'apiVersion': 'v2'}, no_kind={k: v for k, v in cm().items() if k != 'kind'}, not_an_object=[1], number=7, text='hello',
      broken='{"a":', two='{}{}', empty='', deep='[' * 11000 + ']' * 11000, string_name={**cm(), 'metadata': {'name': 7}}, list_data={**cm(), 'data': ['a']}, number_data={**cm(), 'data': {'a': 1}},
      null_data={**cm(), 'data': None}, null_value={**cm(), 'data': {'a': None}}, invalid_utf8=b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"\xff"}}')
def create_bad_body(s, body):
    s.post(s.path('configmaps'), body)


@each(unknown=('application/x-unknown', '{}'), form=('application/x-www-form-urlencoded', 'a=b'), yaml=('application/yaml', json.dumps(cm())), text=('text/plain', json.dumps(cm())),
      charset=('application/json; charset=utf-8', json.dumps(cm())), broken_yaml=('application/yaml', 'a: [b'), protobuf=('application/vnd.kubernetes.protobuf', 'nonsense'))
def create_content_type(s, ctype, body):
    s.post(s.path('configmaps'), body, ctype=ctype)


@each(html='text/html', any='*/*', text='text/plain', json_q='application/json;q=0.9,*/*;q=0.1', table='application/json;as=Table;v=v1;g=meta.k8s.io', table_bad='application/json;as=Table;v=v9;g=meta.k8s.io',
      partial='application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io', yaml='application/yaml', table_else='application/json;as=Table;v=v9;g=meta.k8s.io,application/json')
def accept_one(s, accept):
    s.post(s.path('configmaps'), cm(), keep=False)
    s.get(s.path('configmaps', 'a'), accept=accept)
    s.get(s.path('configmaps', 'missing'), accept=accept, step='missing')


@each(table='application/json;as=Table;v=v1;g=meta.k8s.io', partial='application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io', plain='application/json')
def accept_list(s, accept):
    s.post(s.path('configmaps'), cm('a', labels={'x': '1'}), keep=False)
    s.post(s.path('configmaps'), cm('b'), keep=False)
    s.get(s.path('configmaps'), accept=accept, labelSelector='x=1')
    s.get(s.path('configmaps'), accept=accept, labelSelector='x=nothing', step='empty')


# ---------- patches ----------
PATCHES = {
    'merge': {'set': {'data': {'n': '1'}}, 'remove': {'data': {'k': None}}, 'all_data': {'data': None}, 'label': {'metadata': {'labels': {'l': 'm'}}}, 'nothing': {}, 'wrong_type': {'data': {'a': 1}},
              'unknown': {'dota': 1}, 'name': {'metadata': {'name': 'z'}}, 'list': [1], 'text': '"x"', 'broken': '{', 'null': 'null', 'bad_label': {'metadata': {'labels': {'l': '-'}}},
              'stale': {'metadata': {'resourceVersion': '1'}}, 'uid': {'metadata': {'uid': 'x'}}, 'kind': {'kind': 'Secret'}, 'finalizer': {'metadata': {'finalizers': ['a.dev/b']}}},
    'json': {'add': [{'op': 'add', 'path': '/data/n', 'value': '1'}], 'remove': [{'op': 'remove', 'path': '/data/k'}], 'remove_missing': [{'op': 'remove', 'path': '/data/zz'}],
             'replace': [{'op': 'replace', 'path': '/data/k', 'value': '2'}], 'replace_missing': [{'op': 'replace', 'path': '/data/zz', 'value': '2'}],
             'test_good': [{'op': 'test', 'path': '/data/k', 'value': 'v'}, {'op': 'add', 'path': '/data/t', 'value': 'y'}], 'test_bad': [{'op': 'test', 'path': '/data/k', 'value': 'no'}],
             'move': [{'op': 'move', 'from': '/data/k', 'path': '/data/m'}], 'copy': [{'op': 'copy', 'from': '/data/k', 'path': '/data/m'}], 'escape': [{'op': 'add', 'path': '/metadata/annotations', 'value': {'a/b': 'c'}},
             {'op': 'replace', 'path': '/metadata/annotations/a~1b', 'value': 'd'}], 'unknown_op': [{'op': 'frob', 'path': '/data'}], 'no_path': [{'op': 'add', 'value': 1}], 'object': {'op': 'add'},
             'empty': [], 'parent': [{'op': 'add', 'path': '/x/y', 'value': 1}], 'broken': '[', 'root': [{'op': 'replace', 'path': '', 'value': cm()}]},
    'strategic': {'set': {'data': {'n': '1'}}, 'replace_map': {'data': {'$patch': 'replace', 'z': '1'}}, 'delete_key': {'data': {'k': None}}, 'unknown': {'dota': 1}, 'bad_directive': {'data': {'$patch': 'frob'}},
                  'finalizers': {'metadata': {'finalizers': ['a.dev/b']}}, 'retain': {'data': {'$retainKeys': ['n'], 'n': '1'}}},
}


@each(**{f'{kind}_{name}': (kind, patch) for kind, table in PATCHES.items() for name, patch in table.items()})
def patch_config_map(s, kind, patch):
    s.post(s.path('configmaps'), cm(), keep=False)
    s.patch(s.path('configmaps', 'a'), patch, kind)


@each(merge=('merge', {'data': {'a': 'b'}}), json=('json', [{'op': 'add', 'path': '/data/a', 'value': 'b'}]), strategic=('strategic', {'data': {'a': 'b'}}))
def patch_missing(s, kind, patch):
    s.patch(s.path('configmaps', 'missing'), patch, kind)


@each(no_type=('text/plain',), none=('',), merge_strict=('application/merge-patch+json',))
def patch_type(s, ctype):
    s.post(s.path('configmaps'), cm(), keep=False)
    s.do('PATCH', s.path('configmaps', 'a'), '{"dota":1}', ctype=ctype, fieldValidation='Strict')


POD_PATCHES = {
    'add_container': ('strategic', {'spec': {'containers': [{'name': 'two', 'image': 'x'}]}}), 'image': ('strategic', {'spec': {'containers': [{'name': 'main', 'image': 'busybox:2'}]}}),
    'env': ('strategic', {'spec': {'containers': [{'name': 'main', 'env': [{'name': 'A', 'value': 'b'}]}]}}), 'toleration': ('json', [{'op': 'add', 'path': '/spec/tolerations/-', 'value': {'key': 'x', 'operator': 'Exists'}}]),
    'deadline': ('merge', {'spec': {'activeDeadlineSeconds': 5}}), 'node': ('merge', {'spec': {'nodeName': 'x'}}), 'label': ('strategic', {'metadata': {'labels': {'app': None, 'b': 'c'}}}),
    'delete_container': ('strategic', {'spec': {'containers': [{'$patch': 'delete', 'name': 'main'}]}}), 'order': ('strategic', {'spec': {'$setElementOrder/containers': [{'name': 'main'}]}}),
    'status_ignored': ('merge', {'status': {'phase': 'Running'}}), 'restart': ('merge', {'spec': {'restartPolicy': 'Never'}}),
}


@each(**POD_PATCHES)
def patch_pod(s, kind, patch):
    s.post(s.path('pods'), pod(), keep=False)
    s.patch(s.path('pods', 'p'), patch, kind)


# ---------- server-side apply ----------
def applied(name='a', data=None, **metadata):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name, **metadata}, 'data': data or {}}


@case
def apply_create_and_own(s):
    at = s.path('configmaps', 'a')
    s.patch(at, applied(data={'a': '1', 'b': '1'}), 'apply', fieldManager='one', step='create')
    s.patch(at, applied(data={'a': '1', 'b': '1'}), 'apply', fieldManager='one', step='again')
    s.patch(at, applied(data={'a': '2'}), 'apply', fieldManager='one', step='give up b')
    s.patch(at, applied(data={'a': '3'}), 'apply', fieldManager='two', step='conflict')
    s.patch(at, applied(data={'a': '3'}), 'apply', fieldManager='two', force='true', step='force')
    s.patch(at, applied(data={'a': '3'}), 'apply', fieldManager='one', step='share')
    s.patch(at, applied(data={}), 'apply', fieldManager='two', step='two gives up')
    s.patch(at, applied(data={}), 'apply', fieldManager='one', step='one gives up')
    s.get(at)


@case
def apply_after_update(s):
    at = s.path('configmaps', 'a')
    s.post(s.path('configmaps'), cm(data={'a': '1'}), fieldManager='maker')
    s.patch(at, applied(data={'a': '2'}), 'apply', fieldManager='one', step='conflict with maker')
    s.patch(at, applied(data={'a': '1'}), 'apply', fieldManager='one', step='same value')
    s.patch(at, {'data': {'a': '5'}}, 'merge', fieldManager='editor', step='merge takes it')
    s.patch(at, applied(data={'a': '1'}), 'apply', fieldManager='one', step='conflict with editor')
    s.patch(at, {'metadata': {'managedFields': [{}]}}, 'merge', step='forget managers')
    s.patch(at, applied(data={'z': '1'}), 'apply', fieldManager='one', step='before-first-apply')


@each(no_manager=({'force': 'false'}, applied(data={'a': '1'})), bad_manager=({'fieldManager': 'x' * 129}, applied(data={'a': '1'})), no_kind=({'fieldManager': 'm'}, {'metadata': {'name': 'a'}}),
      other_name=({'fieldManager': 'm'}, applied('b')), managed=({'fieldManager': 'm'}, applied(managedFields=[{'manager': 'x'}])), unknown=({'fieldManager': 'm'}, {**applied(), 'dota': 1}),
      unknown_strict=({'fieldManager': 'm', 'fieldValidation': 'Strict'}, {**applied(), 'dota': 1}), dry=({'fieldManager': 'm', 'dryRun': 'All'}, applied(data={'a': '1'})), broken=({'fieldManager': 'm'}, 'a: ['),
      uid=({'fieldManager': 'm'}, applied(uid='x')), version=({'fieldManager': 'm'}, applied(resourceVersion='1')), yaml=({'fieldManager': 'm'}, 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: "1"}\n'),
      generate=({'fieldManager': 'm'}, {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'generateName': 'a'}}), number=({'fieldManager': 'm'}, applied(data={'a': 1})), list=({'fieldManager': 'm'}, '[]'))
def apply_edges(s, query, body):
    s.patch(s.path('configmaps', 'a'), body, 'apply', **query)


@case
def force_without_apply(s):
    s.post(s.path('configmaps'), cm(), keep=False)
    s.patch(s.path('configmaps', 'a'), {}, 'merge', force='true')


@case
def apply_pod_lists(s):
    at = s.path('pods', 'p')
    base = pod()
    base['spec']['containers'][0]['env'] = [{'name': 'A', 'value': '1'}, {'name': 'B', 'value': '2'}]
    base['spec']['tolerations'] = [{'key': 'x', 'operator': 'Exists', 'effect': 'NoSchedule'}]
    s.patch(at, base, 'apply', fieldManager='one', step='create')
    s.patch(at, {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p', 'labels': {'other': 'x'}, 'finalizers': ['a.dev/b']}}, 'apply', fieldManager='two', step='labels and a finalizer')
    s.patch(at, {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p', 'labels': {'app': 'q'}}}, 'apply', fieldManager='two', step='conflict in a label')
    s.patch(at, {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p'}, 'spec': {'containers': [{'name': 'main', 'image': 'busybox:9'}]}}, 'apply', fieldManager='three', step='conflict in a list')
    s.patch(at, {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p'}}, 'apply', fieldManager='two', step='two gives up')
    s.patch(at + '/status', {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p'}, 'status': {'message': 'hi', 'conditions': [{'type': 'corpus/x', 'status': 'True'}]}}, 'apply', fieldManager='kubelet', step='status')
    s.patch(at, {'metadata': {'finalizers': None}}, 'merge', keep=False)


@case
def apply_dup_keys(s):
    body = pod()
    body['spec']['containers'][0]['env'] = [{'name': 'A', 'value': '1'}, {'name': 'A', 'value': '2'}]
    s.patch(s.path('pods', 'p'), body, 'apply', fieldManager='one')


# ---------- lists ----------
SELECTORS = ['a=1', 'a!=1', 'a in (1,2)', 'a notin (1)', 'a', '!a', 'a=1,b=2', 'a==1', 'x.dev/y=z', 'a in ()', 'a=1=2', 'a in 1', '-x', 'a>1', 'a<3', 'a=', ',', 'a=b c', ' a = 1 ']


@each(**{f's{i}': text for i, text in enumerate(SELECTORS)})
def label_selector(s, text):
    for name, labels in (('one', {'a': '1'}), ('two', {'a': '2', 'b': '2'}), ('three', {'x.dev/y': 'z'})):
        s.post(s.path('configmaps'), cm(name, labels=labels), keep=False)
    answer = s.get(s.path('configmaps'), labelSelector=text, keep=False)
    names = sorted(i['metadata']['name'] for i in (answer.json or {}).get('items', []) if i['metadata']['name'] != 'kube-root-ca.crt')
    s.steps.append(('selected', {'status': answer.status, 'names': names, 'message': (answer.json or {}).get('message')}))


@each(**{f'f{i}': row for i, row in enumerate([('configmaps', 'metadata.name=one'), ('configmaps', 'metadata.name!=one'), ('configmaps', 'data.k=v'), ('configmaps', 'metadata.name=one,metadata.namespace=x'),
      ('pods', 'spec.nodeName='), ('pods', 'status.phase=Pending'), ('pods', 'status.phase!=Running,spec.restartPolicy=Always'), ('pods', 'spec.image=x'), ('pods', 'a'), ('pods', 'status.podIP='), ('secrets', 'type=Opaque'),
      ('events', 'involvedObject.name=x'), ('events', 'reason=y')])})
def field_selector(s, resource, text):
    s.post(s.path('configmaps'), cm('one'), keep=False)
    s.post(s.path('pods'), pod(), keep=False)
    answer = s.get(s.path(resource), fieldSelector=text, keep=False)
    names = sorted(i['metadata']['name'] for i in (answer.json or {}).get('items', []) if i['metadata']['name'] != 'kube-root-ca.crt' and resource != 'events')
    s.steps.append(('selected', {'status': answer.status, 'names': names, 'message': (answer.json or {}).get('message')}))


@case
def pages(s):
    for i in range(7):
        s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': f's{i}', 'labels': {'p': 'y'}}}, keep=False)
    first = s.get(s.path('secrets'), limit=3)
    token = first.json['metadata'].get('continue', '')
    s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 's21'}}, keep=False)
    s.delete(s.path('secrets', 's5'), keep=False)
    second = s.do('GET', s.path('secrets'), step='second', **{'limit': 3, 'continue': token})
    s.do('GET', s.path('secrets'), step='last', **{'limit': 3, 'continue': second.json['metadata'].get('continue', '')})
    s.get(s.path('secrets'), limit=2, labelSelector='p=y', step='selected page')
    s.do('GET', s.path('secrets'), step='bad token', **{'limit': 3, 'continue': 'nonsense'})
    s.do('GET', s.path('secrets'), step='token and version', **{'limit': 3, 'continue': token, 'resourceVersion': '1'})
    s.get(s.path('secrets'), limit=-1, step='negative')
    s.get(s.path('secrets'), limit='x', step='not a number')


@each(zero=({'resourceVersion': '0'},), bad=({'resourceVersion': 'x'},), negative=({'resourceVersion': '-1'},), match_alone=({'resourceVersionMatch': 'Exact'},), match_bad=({'resourceVersion': '1', 'resourceVersionMatch': 'Frob'},),
      exact_zero=({'resourceVersion': '0', 'resourceVersionMatch': 'Exact'},), older=({'resourceVersion': '0', 'resourceVersionMatch': 'NotOlderThan'},))
def list_version(s, query):
    s.get(s.path('secrets'), **query)


@case
def list_at_version(s):
    made = s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'a'}}, keep=False)
    s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'b'}}, keep=False)
    s.get(s.path('secrets'), resourceVersion=made.version(), resourceVersionMatch='Exact', step='exact')
    s.get(s.path('secrets'), resourceVersion=made.version(), resourceVersionMatch='NotOlderThan', step='not older')
    s.get(s.path('secrets', 'b'), resourceVersion='0', step='get any')


# ---------- watches ----------
@case
def watch_from(s):
    made = s.post(s.path('configmaps'), cm(labels={'w': '1'}), keep=False)
    at = s.path('configmaps', 'a')
    s.patch(at, {'data': {'k': '2'}}, keep=False)
    s.patch(at, {'metadata': {'labels': {'w': '2'}}}, keep=False)
    s.delete(at, keep=False)
    s.watch(s.path('configmaps'), 3, resourceVersion=made.version(), step='all', labelSelector='w')
    s.watch(s.path('configmaps'), 2, resourceVersion=made.version(), labelSelector='w=1', step='leaves the selection')
    s.watch(s.path('configmaps'), 2, resourceVersion=made.version(), labelSelector='w=2', step='enters the selection')
    s.watch(s.path('configmaps'), 1, resourceVersion=made.version(), fieldSelector='metadata.name=other', step='another name')
    s.watch(s.path('configmaps'), 1, resourceVersion='1', step='too old or not', labelSelector='nobody') if False else None
    s.watch(s.path('configmaps'), 1, resourceVersion='x', step='bad version')


@case
def watch_initial(s):
    for name in 'ab':
        s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': name}}, keep=False)
    s.watch(s.path('secrets'), 2, step='unset')
    s.watch(s.path('secrets'), 2, resourceVersion='0', step='zero')
    s.watch(s.path('secrets'), 3, sendInitialEvents='true', resourceVersionMatch='NotOlderThan', allowWatchBookmarks='true', step='initial events')
    s.watch(s.path('secrets'), 3, sendInitialEvents='true', step='without match')
    s.watch(s.path('secrets'), 3, sendInitialEvents='true', resourceVersionMatch='NotOlderThan', step='without bookmarks')
    s.watch(s.path('secrets'), 3, sendInitialEvents='true', resourceVersionMatch='Exact', allowWatchBookmarks='true', step='wrong match')
    s.watch(s.path('secrets'), 1, resourceVersionMatch='NotOlderThan', resourceVersion='0', step='match without initial events')
    s.get(s.path('secrets'), sendInitialEvents='true', step='list with it')


@each(table='application/json;as=Table;v=v1;g=meta.k8s.io', partial='application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io')
def watch_as(s, accept):
    s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'a'}}, keep=False)
    s.watch(s.path('secrets'), 1, accept=accept)


@case
def watch_one(s):
    s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'a'}}, keep=False)
    s.watch(s.path('secrets'), 1, fieldSelector='metadata.name=a')
    s.get(s.path('secrets', 'a'), watch='true', timeoutSeconds=1, keep=False)


# ---------- deletion ----------
@case
def finalizers(s):
    at = s.path('configmaps', 'a')
    s.post(s.path('configmaps'), cm(finalizers=['x.dev/a', 'x.dev/b']))
    s.delete(at)
    s.delete(at, step='again')
    s.patch(at, {'metadata': {'finalizers': ['x.dev/a', 'x.dev/b', 'x.dev/c']}}, step='add one while deleting')
    s.patch(at, {'metadata': {'finalizers': ['x.dev/a']}}, step='drop one')
    s.patch(at, {'data': {'still': 'writable'}}, step='write while deleting')
    s.patch(at, {'metadata': {'finalizers': None}}, step='drop the last')
    s.get(at, step='gone')


@each(background={'propagationPolicy': 'Background'}, foreground={'propagationPolicy': 'Foreground'}, orphan={'propagationPolicy': 'Orphan'}, wrong={'propagationPolicy': 'Frob'}, both={'propagationPolicy': 'Orphan', 'orphanDependents': True},
      orphans={'orphanDependents': True}, grace={'gracePeriodSeconds': 0}, negative={'gracePeriodSeconds': -1}, dry={'dryRun': ['All']}, dry_wrong={'dryRun': ['Some']}, uid={'preconditions': {'uid': 'x'}},
      version={'preconditions': {'resourceVersion': '1'}}, unknown={'frob': 1}, kind={'kind': 'DeleteOptions', 'apiVersion': 'v1', 'propagationPolicy': 'Background'}, meta={'kind': 'DeleteOptions', 'apiVersion': 'meta.k8s.io/v1'},
      wrong_kind={'kind': 'Pod', 'apiVersion': 'v1'})
def delete_options(s, body):
    at = s.path('configmaps', 'a')
    s.post(s.path('configmaps'), cm(finalizers=['x.dev/hold']), keep=False)
    s.delete(at, body)
    s.patch(at, {'metadata': {'finalizers': None}}, keep=False)


@each(foreground='Foreground', background='Background', orphan='Orphan', wrong='Frob')
def delete_query(s, policy):
    s.post(s.path('configmaps'), cm(), keep=False)
    s.delete(s.path('configmaps', 'a'), propagationPolicy=policy, dryRun='All')


@case
def delete_precondition(s):
    made = s.post(s.path('configmaps'), cm(), keep=False)
    s.delete(s.path('configmaps', 'a'), {'preconditions': {'uid': made.uid(), 'resourceVersion': made.version()}})


@case
def delete_pod_without_node(s):
    # With a gate kube-scheduler writes nothing to it: a delete that meets such a write is answered without a resourceVersion by the real one.
    s.post(s.path('pods'), pod(schedulingGates=[{'name': 'x.dev/hold'}]), keep=False)
    s.delete(s.path('pods', 'p'))
    s.get(s.path('pods', 'p'), step='gone')


@case
def delete_collection(s):
    for name in 'abc':
        s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': name, 'labels': {'x': name}}}, keep=False)
    s.delete(s.path('secrets'), labelSelector='x in (a,b)')
    s.get(s.path('secrets'), step='rest')
    s.delete(s.path('secrets'), step='all')
    s.get(s.path('secrets'), step='none')


# ---------- dryRun and fieldValidation ----------
@each(create=('POST', cm('new'), {}), create_strict=('POST', {**cm('new'), 'dota': 1}, {'fieldValidation': 'Strict'}), create_warn=('POST', {**cm('new'), 'dota': 1}, {'fieldValidation': 'Warn'}),
      create_ignore=('POST', {**cm('new'), 'dota': 1}, {'fieldValidation': 'Ignore'}), wrong=('POST', cm('new'), {'fieldValidation': 'Frob'}),
      duplicate=('POST', '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"a":"1","a":"2"}}', {'fieldValidation': 'Strict'}),
      duplicate_warn=('POST', '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"a":"1","a":"2"}}', {'fieldValidation': 'Warn'}),
      nested=('POST', {**cm('new'), 'metadata': {'name': 'new', 'frob': 1}}, {'fieldValidation': 'Strict'}))
def validation(s, method, body, query):
    s.do(method, s.path('configmaps'), body, dryRun='All', **query)
    s.get(s.path('configmaps', 'new'), step='nothing was made')


@each(query={'dryRun': 'Frob'}, twice={'dryRun': 'All', 'pretty': 'true'})
def dry_run(s, query):
    s.post(s.path('configmaps'), cm(), **query)


# ---------- pods ----------
C = {'name': 'main', 'image': 'busybox:1'}
POD_SPECS = {
    'plain': {}, 'no_containers': {'containers': []}, 'same_names': {'containers': [C, C]}, 'no_image': {'containers': [{'name': 'a'}]}, 'bad_name': {'containers': [{**C, 'name': 'A_b'}]},
    'resources': {'containers': [{**C, 'resources': {'requests': {'cpu': '100m', 'memory': '1Gi'}, 'limits': {'cpu': '1', 'memory': '2Gi'}}}]},
    'limits_only': {'containers': [{**C, 'resources': {'limits': {'cpu': '1', 'memory': '2Gi'}}}]}, 'request_above': {'containers': [{**C, 'resources': {'requests': {'cpu': 2}, 'limits': {'cpu': 1}}}]},
    'bad_quantity': {'containers': [{**C, 'resources': {'requests': {'cpu': 'x'}}}]}, 'negative': {'containers': [{**C, 'resources': {'requests': {'cpu': '-1'}}}]}, 'extended': {'containers': [{**C, 'resources': {'limits': {'nvidia.com/gpu': '2'}}}]},
    'extended_part': {'containers': [{**C, 'resources': {'limits': {'nvidia.com/gpu': '500m'}}}]}, 'extended_request': {'containers': [{**C, 'resources': {'requests': {'nvidia.com/gpu': '1'}}}]},
    'env': {'containers': [{**C, 'env': [{'name': 'A', 'value': 'b'}, {'name': 'P', 'valueFrom': {'fieldRef': {'fieldPath': 'metadata.name'}}}]}]}, 'env_both': {'containers': [{**C, 'env': [{'name': 'A', 'value': 'b', 'valueFrom': {'fieldRef': {'fieldPath': 'metadata.name'}}}]}]},
    'env_bad_field': {'containers': [{**C, 'env': [{'name': 'A', 'valueFrom': {'fieldRef': {'fieldPath': 'spec.frob'}}}]}]}, 'ports': {'containers': [{**C, 'ports': [{'containerPort': 80, 'name': 'http'}]}]},
    'port_zero': {'containers': [{**C, 'ports': [{'containerPort': 0}]}]}, 'port_protocol': {'containers': [{**C, 'ports': [{'containerPort': 1, 'protocol': 'X'}]}]}, 'port_dup': {'containers': [{**C, 'ports': [{'containerPort': 1, 'name': 'a'}, {'containerPort': 2, 'name': 'a'}]}]},
    'volume': {'volumes': [{'name': 'v', 'emptyDir': {}}], 'containers': [{**C, 'volumeMounts': [{'name': 'v', 'mountPath': '/v'}]}]}, 'volume_missing': {'containers': [{**C, 'volumeMounts': [{'name': 'v', 'mountPath': '/v'}]}]},
    'volume_two_sources': {'volumes': [{'name': 'v', 'emptyDir': {}, 'configMap': {'name': 'x'}}]}, 'volume_no_source': {'volumes': [{'name': 'v'}]}, 'volume_dup': {'volumes': [{'name': 'v', 'emptyDir': {}}, {'name': 'v', 'emptyDir': {}}]},
    'mount_twice': {'volumes': [{'name': 'v', 'emptyDir': {}}], 'containers': [{**C, 'volumeMounts': [{'name': 'v', 'mountPath': '/v'}, {'name': 'v', 'mountPath': '/v'}]}]}, 'subpath': {'volumes': [{'name': 'v', 'emptyDir': {}}], 'containers': [{**C, 'volumeMounts': [{'name': 'v', 'mountPath': '/v', 'subPath': '../x'}]}]},
    'restart': {'restartPolicy': 'Sometimes'}, 'grace': {'terminationGracePeriodSeconds': -1}, 'dns': {'dnsPolicy': 'Frob'}, 'host_network': {'hostNetwork': True, 'containers': [{**C, 'ports': [{'containerPort': 80}]}]},
    'init': {'initContainers': [{'name': 'i', 'image': 'x'}]}, 'init_same': {'initContainers': [C]}, 'probe': {'containers': [{**C, 'readinessProbe': {'exec': {'command': ['x']}, 'periodSeconds': 1}}]},
    'probe_none': {'containers': [{**C, 'livenessProbe': {}}]}, 'probe_two': {'containers': [{**C, 'livenessProbe': {'exec': {'command': ['x']}, 'tcpSocket': {'port': 1}}}]}, 'probe_period': {'containers': [{**C, 'livenessProbe': {'tcpSocket': {'port': 1}, 'periodSeconds': -1}}]},
    'liveness_success': {'containers': [{**C, 'livenessProbe': {'tcpSocket': {'port': 1}, 'successThreshold': 2}}]}, 'hostname': {'hostname': 'h', 'subdomain': 's'}, 'hostname_bad': {'hostname': 'H_'}, 'toleration': {'tolerations': [{'key': 'a', 'operator': 'Exists', 'value': 'x'}]},
    'toleration_seconds': {'tolerations': [{'key': 'a', 'operator': 'Exists', 'effect': 'NoSchedule', 'tolerationSeconds': 1}]}, 'affinity': {'affinity': {'nodeAffinity': {'requiredDuringSchedulingIgnoredDuringExecution': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'a', 'operator': 'In', 'values': ['b']}]}]}}}},
    'affinity_bad': {'affinity': {'nodeAffinity': {'requiredDuringSchedulingIgnoredDuringExecution': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'a', 'operator': 'Frob'}]}]}}}}, 'affinity_empty': {'affinity': {'nodeAffinity': {'requiredDuringSchedulingIgnoredDuringExecution': {'nodeSelectorTerms': []}}}},
    'gates': {'schedulingGates': [{'name': 'x.dev/hold'}]}, 'gates_dup': {'schedulingGates': [{'name': 'x.dev/hold'}, {'name': 'x.dev/hold'}]}, 'priority': {'priorityClassName': 'missing'}, 'priority_number': {'priority': 7}, 'account': {'serviceAccountName': 'missing'},
    'security': {'securityContext': {'runAsUser': 1000, 'fsGroup': 5}, 'containers': [{**C, 'securityContext': {'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True, 'capabilities': {'drop': ['ALL']}}}]}, 'run_as_negative': {'securityContext': {'runAsUser': -1}},
    'privileged_no_escalation': {'containers': [{**C, 'securityContext': {'privileged': True, 'allowPrivilegeEscalation': False}}]}, 'lifecycle': {'containers': [{**C, 'lifecycle': {'preStop': {'exec': {'command': ['x']}}}}]}, 'deadline': {'activeDeadlineSeconds': 0},
    'pull': {'containers': [{**C, 'imagePullPolicy': 'Sometimes'}]}, 'latest': {'containers': [{'name': 'a', 'image': 'busybox'}]}, 'command': {'containers': [{**C, 'command': ['a'], 'args': ['b'], 'workingDir': '/x', 'stdin': True, 'tty': True}]},
    'node_name': {'nodeName': 'nobody'}, 'spread': {'topologySpreadConstraints': [{'maxSkew': 1, 'topologyKey': 'zone', 'whenUnsatisfiable': 'DoNotSchedule', 'labelSelector': {'matchLabels': {'a': 'b'}}}]},
    'spread_bad': {'topologySpreadConstraints': [{'maxSkew': 0, 'topologyKey': '', 'whenUnsatisfiable': 'Frob'}]}, 'host_path': {'volumes': [{'name': 'v', 'hostPath': {'path': '../x'}}]}, 'config_items': {'volumes': [{'name': 'v', 'configMap': {'name': 'c', 'items': [{'key': 'a', 'path': '../b'}]}}]},
    'empty_dir_medium': {'volumes': [{'name': 'v', 'emptyDir': {'medium': 'Memory', 'sizeLimit': '1Mi'}}]}, 'host_aliases': {'hostAliases': [{'ip': 'x', 'hostnames': ['a']}]}, 'downward': {'volumes': [{'name': 'v', 'downwardAPI': {'items': [{'path': 'l', 'fieldRef': {'fieldPath': 'metadata.labels'}}]}}]},
}


@each(**POD_SPECS)
def create_pod(s, spec):
    s.post(s.path('pods'), pod(**spec), dryRun='All')


@each(**{name: POD_SPECS[name] for name in ('plain', 'resources', 'env', 'volume', 'probe', 'init')})
def pod_table(s, spec):
    s.post(s.path('pods'), pod(**spec), keep=False)
    s.get(s.path('pods', 'p'), accept='application/json;as=Table;v=v1;g=meta.k8s.io,application/json')


@case
def pod_status(s):
    made = s.post(s.path('pods'), pod(schedulingGates=[{'name': 'x.dev/hold'}]), keep=False)
    at = s.path('pods', 'p', 'status')
    s.get(at)
    s.put(at, {**made.json, 'status': {'phase': 'Running', 'message': 'm'}}, step='phase')
    s.patch(at, {'status': {'conditions': [{'type': 'x.dev/c', 'status': 'True', 'lastTransitionTime': '2024-01-01T00:00:00Z'}]}}, 'strategic', step='condition')
    s.patch(at, {'spec': {'activeDeadlineSeconds': 9}, 'metadata': {'labels': {'from': 'status'}}}, 'merge', step='not status')
    s.patch(at, {'status': {'frob': 1}}, 'merge', fieldValidation='Strict', step='unknown field')


@each(empty={}, to_node={'target': {'apiVersion': 'v1', 'kind': 'Node', 'name': 'n1'}}, kind={'target': {'kind': 'Pod', 'name': 'n1'}}, no_name={'target': {'kind': 'Node'}})
def binding(s, body):
    s.post(s.path('pods'), pod(), keep=False)
    s.post(s.path('pods', 'p', 'binding'), {'apiVersion': 'v1', 'kind': 'Binding', 'metadata': {'name': 'p'}, **body})
    s.get(s.path('pods', 'p'))
    s.post(s.path('pods', 'p', 'binding'), {'apiVersion': 'v1', 'kind': 'Binding', 'metadata': {'name': 'p'}, 'target': {'kind': 'Node', 'name': 'n2'}}, step='again')
    s.delete(s.path('pods', 'p'), {'gracePeriodSeconds': 0}, keep=False)


@case
def eviction(s):
    s.post(s.path('pods'), pod(), keep=False)
    body = {'apiVersion': 'policy/v1', 'kind': 'Eviction', 'metadata': {'name': 'p', 'namespace': s.space}}
    s.post(s.path('pods', 'p', 'eviction'), {**body, 'deleteOptions': {'dryRun': ['All']}}, step='dry')
    s.post(s.path('pods', 'p', 'eviction'), {**body, 'kind': 'Frob'}, step='wrong kind')
    s.post(s.path('pods', 'p', 'eviction'), body)
    s.post(s.path('pods', 'p', 'eviction'), body, step='gone')


@each(log='log', exec='exec', frob='frob', status='status', attach='attach')
def subresource_of_missing(s, sub):
    s.get(s.path('pods', 'missing', sub))


@each(get=('GET', 'log'), frob=('GET', 'frob'), post=('POST', 'status'), delete=('DELETE', 'status'))
def subresource_methods(s, method, sub):
    s.post(s.path('pods'), pod(), keep=False)
    s.do(method, s.path('pods', 'p', sub), {} if method == 'POST' else None)


# ---------- secrets, services, claims, accounts, leases, events, namespaces ----------
@each(opaque={}, string_data={'stringData': {'a': 'b'}}, bad_base64={'data': {'a': '!'}}, tls={'type': 'kubernetes.io/tls'}, tls_ok={'type': 'kubernetes.io/tls', 'data': {'tls.crt': '', 'tls.key': ''}}, docker={'type': 'kubernetes.io/dockerconfigjson', 'data': {'.dockerconfigjson': 'e30='}},
      basic={'type': 'kubernetes.io/basic-auth'}, ssh={'type': 'kubernetes.io/ssh-auth'}, immutable={'immutable': True}, token={'type': 'kubernetes.io/service-account-token'})
def create_secret(s, change):
    s.post(s.path('secrets'), {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'a'}, **change})
    s.patch(s.path('secrets', 'a'), {'type': 'other'}, step='type')
    s.patch(s.path('secrets', 'a'), {'data': {'n': 'eA=='}}, step='data')


@each(headless={'clusterIP': 'None', 'selector': {'a': 'b'}, 'ports': [{'port': 80}]}, no_ports={'clusterIP': 'None'}, named={'clusterIP': 'None', 'ports': [{'port': 80, 'name': 'a'}, {'port': 81, 'name': 'b'}]}, unnamed={'clusterIP': 'None', 'ports': [{'port': 80}, {'port': 81}]},
      dup={'clusterIP': 'None', 'ports': [{'port': 80, 'name': 'a'}, {'port': 80, 'name': 'b'}]}, zero={'clusterIP': 'None', 'ports': [{'port': 0}]}, type={'type': 'Frob', 'clusterIP': 'None'}, target={'clusterIP': 'None', 'ports': [{'port': 1, 'targetPort': 'http'}]},
      affinity={'clusterIP': 'None', 'sessionAffinity': 'Frob'}, publish={'clusterIP': 'None', 'publishNotReadyAddresses': True}, bad_ip={'clusterIP': 'x'})
def create_service(s, spec):
    s.post(s.path('services'), {'apiVersion': 'v1', 'kind': 'Service', 'metadata': {'name': 'a'}, 'spec': spec})
    s.get(s.path('services', 'a'), accept='application/json;as=Table;v=v1;g=meta.k8s.io,application/json', step='table')
    s.patch(s.path('services', 'a'), {'spec': {'selector': {'x': 'y'}}}, step='selector')


@each(plain={'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}}, no_mode={'resources': {'requests': {'storage': '1Gi'}}}, no_size={'accessModes': ['ReadWriteOnce']}, mode={'accessModes': ['Frob'], 'resources': {'requests': {'storage': '1Gi'}}},
      zero={'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '0'}}}, volume_mode={'accessModes': ['ReadWriteOnce'], 'volumeMode': 'Frob', 'resources': {'requests': {'storage': '1Gi'}}})
def create_claim(s, spec):
    spec = {'storageClassName': 'corpus-none', **spec}
    s.post(s.path('persistentvolumeclaims'), {'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim', 'metadata': {'name': 'a'}, 'spec': spec}, dryRun='All')


@case
def service_account(s):
    s.post(s.path('serviceaccounts'), {'apiVersion': 'v1', 'kind': 'ServiceAccount', 'metadata': {'name': 'a'}})
    s.get(s.path('serviceaccounts', 'a'), accept='application/json;as=Table;v=v1;g=meta.k8s.io')
    s.patch(s.path('serviceaccounts', 'a'), {'automountServiceAccountToken': False})
    s.delete(s.path('serviceaccounts', 'a'))


@each(plain={'holderIdentity': 'x', 'leaseDurationSeconds': 15, 'renewTime': '2024-01-01T00:00:00.000000Z'}, micro={'renewTime': '2024-01-01T00:00:00.123456Z'}, no_micro={'renewTime': '2024-01-01T00:00:00Z'}, zero={'leaseDurationSeconds': 0}, negative={'leaseTransitions': -1}, bad={'renewTime': 'x'}, empty={})
def lease(s, spec):
    base = s.path('leases', group='coordination.k8s.io')
    s.post(base, {'apiVersion': 'coordination.k8s.io/v1', 'kind': 'Lease', 'metadata': {'name': 'a'}, 'spec': spec})
    s.patch(base + '/a', {'spec': {'holderIdentity': 'y'}})
    s.get(base + '/a', accept='application/json;as=Table;v=v1;g=meta.k8s.io', step='table')


@each(plain={}, other_namespace={'involvedObject': {'kind': 'Pod', 'name': 'x', 'namespace': 'elsewhere'}}, type={'type': 'Frob'}, series={'count': 2, 'firstTimestamp': '2024-01-01T00:00:00Z', 'lastTimestamp': '2024-01-01T00:00:00Z'})
def event(s, change):
    s.post(s.path('events'), {'apiVersion': 'v1', 'kind': 'Event', 'metadata': {'name': 'a'}, 'involvedObject': {'kind': 'Pod', 'name': 'x', 'namespace': s.space}, 'reason': 'R', 'message': 'm', 'type': 'Normal', **change})


@case
def namespace(s):
    s.get(f'/api/v1/namespaces/{s.space}')
    s.get(f'/api/v1/namespaces/{s.space}', accept='application/json;as=Table;v=v1;g=meta.k8s.io', step='table')
    s.post('/api/v1/namespaces', {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': s.space}}, step='exists')
    s.post('/api/v1/namespaces', {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'Bad.Name'}}, step='bad name')
    s.post('/api/v1/namespaces', {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'corpus-dry'}}, dryRun='All', step='dry')
    s.post('/api/v1/namespaces/corpus-missing/configmaps', cm(), step='create in a missing one')
    s.get('/api/v1/namespaces/corpus-missing/configmaps', step='list in a missing one')
    s.delete('/api/v1/namespaces/default', dryRun='All', step='default stays', keep=False)


# ---------- CRDs ----------
def crd(plural, schema, **version):
    kind = plural.capitalize()[:-1]
    return {'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition', 'metadata': {'name': f'{plural}.corpus.fairlead.dev'},
            'spec': {'group': 'corpus.fairlead.dev', 'scope': 'Namespaced', 'names': {'plural': plural, 'singular': kind.lower(), 'kind': kind, 'listKind': kind + 'List'},
                     'versions': [{'name': 'v1', 'served': True, 'storage': True, 'schema': {'openAPIV3Schema': schema}, **version}]}}


CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
WIDE = {'type': 'object', 'properties': {
    'spec': {'type': 'object', 'required': ['size'], 'properties': {
        'size': {'type': 'integer', 'minimum': 1, 'maximum': 9}, 'name': {'type': 'string', 'pattern': '^[a-z]+$', 'maxLength': 5, 'default': 'dflt'}, 'mode': {'type': 'string', 'enum': ['A', 'B']},
        'port': {'x-kubernetes-int-or-string': True}, 'free': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}, 'list': {'type': 'array', 'maxItems': 2, 'items': {'type': 'string'}},
        'set': {'type': 'array', 'x-kubernetes-list-type': 'set', 'items': {'type': 'string'}},
        'map': {'type': 'array', 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['k'], 'items': {'type': 'object', 'required': ['k'], 'properties': {'k': {'type': 'string'}, 'v': {'type': 'integer', 'default': 7}}}},
        'maybe': {'type': 'string', 'nullable': True}, 'dict': {'type': 'object', 'additionalProperties': {'type': 'integer'}}, 'ratio': {'type': 'number', 'multipleOf': 0.5}, 'when': {'type': 'string', 'format': 'date-time'},
        'nested': {'type': 'object', 'default': {}, 'properties': {'deep': {'type': 'boolean', 'default': True}}},
        'either': {'type': 'object', 'properties': {'a': {'type': 'string'}, 'b': {'type': 'string'}}, 'oneOf': [{'required': ['a']}, {'required': ['b']}]}, 'replicas': {'type': 'integer', 'default': 1}}},
    'status': {'type': 'object', 'properties': {'phase': {'type': 'string'}, 'replicas': {'type': 'integer'}, 'selector': {'type': 'string'}}}}}


def make_crd(s, plural, schema, **version):
    s.post(CRDS, crd(plural, schema, **version), keep=False)
    for _ in range(100):
        got = s.get(f'{CRDS}/{plural}.corpus.fairlead.dev', keep=False).json
        if any(c['type'] == 'Established' and c['status'] == 'True' for c in got.get('status', {}).get('conditions') or []):
            if s.get(f'/apis/corpus.fairlead.dev/v1/{plural}', keep=False).status == 200:
                return
        import time
        time.sleep(0.1)
    raise RuntimeError(f'{plural}: not established')


def widget(**spec):
    return {'apiVersion': 'corpus.fairlead.dev/v1', 'kind': 'Widget', 'metadata': {'name': 'a'}, 'spec': {'size': 3, **spec}}


def widgets(s):
    make_crd(s, 'widgets', WIDE, subresources={'status': {}, 'scale': {'specReplicasPath': '.spec.replicas', 'statusReplicasPath': '.status.replicas', 'labelSelectorPath': '.status.selector'}},
             additionalPrinterColumns=[{'name': 'Size', 'type': 'integer', 'jsonPath': '.spec.size'}, {'name': 'Phase', 'type': 'string', 'jsonPath': '.status.phase'}, {'name': 'Age', 'type': 'date', 'jsonPath': '.metadata.creationTimestamp'}],
             selectableFields=[{'jsonPath': '.spec.mode'}])
    return s.path('widgets', group='corpus.fairlead.dev')


@each(plain={}, small={'size': 0}, big={'size': 10}, text={'size': 'x'}, none={'size': None}, pattern={'name': 'UP'}, length={'name': 'toolong'}, enum={'mode': 'C'}, int={'port': 1}, string={'port': 'http'}, bool={'port': True}, free={'free': {'a': [1, {'b': None}]}},
      list={'list': ['a', 'b', 'c']}, set={'set': ['a', 'a']}, map={'map': [{'k': 'a'}, {'k': 'b', 'v': 1}]}, map_dup={'map': [{'k': 'a'}, {'k': 'a'}]}, map_no_key={'map': [{'v': 1}]}, null={'maybe': None}, null_else={'mode': None}, dict={'dict': {'a': 1}},
      dict_bad={'dict': {'a': 'x'}}, ratio={'ratio': 1.5}, ratio_bad={'ratio': 1.3}, when={'when': '2024-01-01T00:00:00Z'}, when_bad={'when': 'yesterday'}, nested={'nested': {}}, nested_bad={'nested': {'deep': 'x'}}, one={'either': {'a': 'x'}}, two={'either': {'a': 'x', 'b': 'y'}},
      neither={'either': {}}, unknown={'frob': 1, 'nested': {'frob': 2}}, float={'size': 3.0}, float_bad={'size': 3.5}, many={'size': 0, 'name': 'UP', 'mode': 'C'})
def custom_object(s, spec):
    s.any_order_of_causes = True
    base = widgets(s)
    s.post(base, widget(**spec))
    s.post(base, with_(widget(**spec), ['metadata', 'name'], 'b'), fieldValidation='Strict', dryRun='All', step='strict')


@case
def custom_object_life(s):
    base = widgets(s)
    made = s.post(base, {**widget(), 'status': {'phase': 'ignored'}})
    s.get(base, accept='application/json;as=Table;v=v1;g=meta.k8s.io', step='table')
    s.put(base + '/a', with_(made.json, ['spec', 'size'], 4), step='generation')
    s.patch(base + '/a', {'metadata': {'labels': {'a': 'b'}}}, step='no generation')
    s.patch(base + '/a/status', {'status': {'phase': 'Up', 'replicas': 2, 'selector': 'a=b'}, 'spec': {'size': 5}}, step='status')
    s.patch(base + '/a', {'status': {'phase': 'Down'}}, step='status is kept')
    s.patch(base + '/a', {'spec': {'size': 5}}, 'strategic', step='no strategic merge')
    s.get(base + '/a/scale', step='scale')
    s.patch(base + '/a/scale', {'spec': {'replicas': 4}}, step='patch scale')
    scale = s.get(base + '/a/scale', keep=False).json
    s.put(base + '/a/scale', with_(scale, ['spec', 'replicas'], 6), step='put scale')
    s.put(base + '/a/scale', with_(scale, ['spec', 'replicas'], -1), step='negative scale')
    s.get(base, fieldSelector='spec.mode=', step='selectable')
    s.get(base, fieldSelector='spec.size=4', step='not selectable')
    s.watch(base, 1, step='watch')
    s.patch(base + '/a', {'apiVersion': 'corpus.fairlead.dev/v1', 'kind': 'Widget', 'metadata': {'name': 'a'}, 'spec': {'size': 8}}, 'apply', fieldManager='one', step='apply conflict')
    s.patch(base + '/a', {'apiVersion': 'corpus.fairlead.dev/v1', 'kind': 'Widget', 'metadata': {'name': 'a'}, 'spec': {'size': 8, 'map': [{'k': 'a'}], 'set': ['x']}}, 'apply', fieldManager='one', force='true', step='apply force')
    s.patch(base + '/a', {'apiVersion': 'corpus.fairlead.dev/v1', 'kind': 'Widget', 'metadata': {'name': 'a'}, 'spec': {'map': [{'k': 'b', 'v': 2}], 'set': ['y']}}, 'apply', fieldManager='two', step='apply to lists')
    s.patch(base + '/a', {'apiVersion': 'corpus.fairlead.dev/v1', 'kind': 'Widget', 'metadata': {'name': 'a'}, 'spec': {'size': 8}}, 'apply', fieldManager='one', step='give up list items')
    s.delete(base + '/a')
    s.post(base, {**widget(), 'kind': 'Gadget'}, step='wrong kind')
    s.post(base, {**widget(), 'apiVersion': 'corpus.fairlead.dev/v2'}, step='wrong version')


BAD_CRDS = {
    'name': with_(crd('things', WIDE), ['metadata', 'name'], 'things'), 'no_versions': with_(crd('things', WIDE), ['spec', 'versions'], []), 'no_schema': with_(crd('things', WIDE), ['spec', 'versions'], [{'name': 'v1', 'served': True, 'storage': True}]),
    'two_storage': with_(crd('things', WIDE), ['spec', 'versions'], [{'name': n, 'served': True, 'storage': True, 'schema': {'openAPIV3Schema': {'type': 'object'}}} for n in ('v1', 'v2')]),
    'scope': with_(crd('things', WIDE), ['spec', 'scope'], 'Frob'), 'group': with_(crd('things', WIDE), ['spec', 'group'], 'Bad_Group'), 'not_object': crd('things', {'type': 'string'}), 'no_type': crd('things', {'type': 'object', 'properties': {'a': {}}}),
    'additional': crd('things', {'type': 'object', 'properties': {'a': {'type': 'object', 'properties': {'b': {'type': 'string'}}, 'additionalProperties': {'type': 'string'}}}}), 'bad_pattern': crd('things', {'type': 'object', 'properties': {'a': {'type': 'string', 'pattern': '('}}}),
    'bad_default': crd('things', {'type': 'object', 'properties': {'a': {'type': 'string', 'default': 7}}}), 'ref': crd('things', {'type': 'object', 'properties': {'a': {'$ref': '#/x'}}}), 'map_keys': crd('things', {'type': 'object', 'properties': {'a': {'type': 'array', 'x-kubernetes-list-type': 'map', 'items': {'type': 'object'}}}}),
    'column': crd('things', WIDE, additionalPrinterColumns=[{'name': 'X', 'type': 'frob', 'jsonPath': '.spec.x'}]), 'column_path': crd('things', WIDE, additionalPrinterColumns=[{'name': 'X', 'type': 'string', 'jsonPath': 'spec'}]),
    'scale': crd('things', WIDE, subresources={'scale': {'specReplicasPath': 'spec'}}), 'conversion': with_(crd('things', WIDE), ['spec', 'conversion'], {'strategy': 'Frob'}), 'good': crd('things', WIDE), 'short': with_(crd('things', WIDE), ['spec', 'names', 'shortNames'], ['Bad']),
    'singular': with_(crd('things', WIDE), ['spec', 'names', 'singular'], None), 'preserve': with_(crd('things', WIDE), ['spec', 'preserveUnknownFields'], True),
}


@each(**BAD_CRDS)
def create_crd(s, body):
    s.post(CRDS, body, dryRun='All')


# ---------- discovery, OpenAPI, paths ----------
@each(api='/api', apis_group='/apis/apiextensions.k8s.io', unknown_group='/apis/frob.dev', unknown_version='/api/v9', unknown='/frob', no_resource='/api/v1/frobs', nothing='/api/v1/namespaces/default/frobs/x', version_path='/apis/coordination.k8s.io/v9')
def paths(s, path):
    answer = s.get(path, keep=False)
    if path == '/api':
        answer.json.pop('serverAddressByClientCIDRs', None)
    s.keep('GET', answer)


SERVED = {'bindings', 'configmaps', 'events', 'namespaces', 'namespaces/finalize', 'namespaces/status', 'nodes', 'nodes/status', 'persistentvolumeclaims', 'persistentvolumeclaims/status', 'pods', 'pods/attach', 'pods/binding', 'pods/eviction', 'pods/exec', 'pods/log', 'pods/status', 'secrets',
          'serviceaccounts', 'services', 'services/status', 'leases', 'customresourcedefinitions', 'customresourcedefinitions/status'} - {'bindings'}


@each(core='/api/v1', coordination='/apis/coordination.k8s.io/v1', crds='/apis/apiextensions.k8s.io/v1')
def resource_list(s, path):
    answer = s.get(path, keep=False)
    rows = sorted((r for r in answer.json['resources'] if r['name'] in SERVED), key=lambda r: r['name'])
    for row in rows:
        row.pop('storageVersionHash', None)
    s.steps.append(('served', {'status': answer.status, 'kind': answer.json['kind'], 'groupVersion': answer.json['groupVersion'], 'resources': rows}))


@each(v2='v2', v2beta1='v2beta1')
def aggregated_discovery(s, version):
    answer = s.get('/api', accept=f'application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList', keep=False)
    rows = {r['resource']: r for item in (answer.json.get('items') or []) for v in item['versions'] for r in v['resources'] if r['resource'] in SERVED}
    for row in rows.values():
        row['subresources'] = sorted((r for r in row.get('subresources', []) if f"{row['resource']}/{r['subresource']}" in SERVED), key=lambda r: r['subresource'])
    s.steps.append(('served', {'status': answer.status, 'type': answer.headers.get('content-type'), 'kind': answer.json['kind'], 'version': answer.json['apiVersion'], 'resources': rows}))


@each(collection=('PUT', 'configmaps'), object=('POST', 'configmaps/a'), patch=('PATCH', 'configmaps'), options=('OPTIONS', 'configmaps'), frob=('FROB', 'configmaps'), list_delete=('DELETE', 'namespaces'))
def wrong_method(s, method, what):
    s.do(method, s.path(what), {} if method in ('PUT', 'POST', 'PATCH') else None, ctype='application/merge-patch+json' if method == 'PATCH' else 'application/json')


@case
def nodes(s):
    node = {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'corpus-node', 'labels': {'x': 'y'}}, 'spec': {'taints': [{'key': 'k', 'effect': 'NoSchedule'}]}}
    s.delete('/api/v1/nodes/corpus-node', keep=False)
    s.post('/api/v1/nodes', node, dryRun='All')
    s.post('/api/v1/nodes', with_(node, ['spec', 'taints'], [{'key': 'k', 'effect': 'Frob'}]), dryRun='All', step='effect')
    s.post('/api/v1/nodes', with_(node, ['spec', 'taints'], [{'key': 'k', 'effect': 'NoSchedule'}] * 2), dryRun='All', step='twice')


# ---------- access ----------
@case
def reviews(s):
    auth = '/apis/authorization.k8s.io/v1/'
    s.post(auth + 'selfsubjectaccessreviews', {'apiVersion': 'authorization.k8s.io/v1', 'kind': 'SelfSubjectAccessReview', 'spec': {'resourceAttributes': {'verb': 'get', 'resource': 'pods', 'namespace': s.space}}}, step='self')
    s.post(auth + 'selfsubjectaccessreviews', {'apiVersion': 'authorization.k8s.io/v1', 'kind': 'SelfSubjectAccessReview', 'spec': {}}, step='nothing asked')
    s.post(auth + 'subjectaccessreviews', {'apiVersion': 'authorization.k8s.io/v1', 'kind': 'SubjectAccessReview', 'spec': {'user': 'nobody', 'resourceAttributes': {'verb': 'get', 'resource': 'pods', 'namespace': s.space}}}, step='nobody')
    s.post(auth + 'subjectaccessreviews', {'apiVersion': 'authorization.k8s.io/v1', 'kind': 'SubjectAccessReview', 'spec': {'resourceAttributes': {'verb': 'get', 'resource': 'pods'}}}, step='no user')
    s.post('/apis/authentication.k8s.io/v1/tokenreviews', {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'TokenReview', 'spec': {'token': 'forged'}}, step='forged token')
    s.post('/apis/authentication.k8s.io/v1/tokenreviews', {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'TokenReview', 'spec': {}}, step='no token')


def rbac(kind, name='a', **more):
    return {'apiVersion': 'rbac.authorization.k8s.io/v1', 'kind': kind, 'metadata': {'name': name}, **more}


@each(plain=[{'apiGroups': [''], 'resources': ['pods'], 'verbs': ['get']}], no_verbs=[{'apiGroups': [''], 'resources': ['pods'], 'verbs': []}], no_groups=[{'resources': ['pods'], 'verbs': ['get']}], urls=[{'nonResourceURLs': ['/x'], 'verbs': ['get']}],
      both=[{'apiGroups': [''], 'resources': ['pods'], 'nonResourceURLs': ['/x'], 'verbs': ['get']}], empty=[])
def role(s, rules):
    s.post(s.path('roles', group='rbac.authorization.k8s.io'), rbac('Role', rules=rules))
    s.get(s.path('roles', 'a', group='rbac.authorization.k8s.io'), accept='application/json;as=Table;v=v1;g=meta.k8s.io,application/json', step='table')


@each(plain={'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'ClusterRole', 'name': 'view'}, 'subjects': [{'kind': 'ServiceAccount', 'name': 'default', 'namespace': 'x'}]}, user={'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role', 'name': 'r'}, 'subjects': [{'kind': 'User', 'name': 'u'}]},
      kind={'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Frob', 'name': 'r'}}, no_namespace={'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role', 'name': 'r'}, 'subjects': [{'kind': 'ServiceAccount', 'name': 'u'}]},
      subject={'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role', 'name': 'r'}, 'subjects': [{'kind': 'Frob', 'name': 'u'}]}, no_name={'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role'}})
def role_binding(s, change):
    base = s.path('rolebindings', group='rbac.authorization.k8s.io')
    s.post(base, rbac('RoleBinding', **change))
    s.patch(base + '/a', {'roleRef': {'name': 'other'}}, step='role is immutable')


@each(plain={'value': 100}, system={'value': 2000000000}, both={'value': 1, 'globalDefault': False, 'description': 'x', 'preemptionPolicy': 'Never'}, policy={'value': 1, 'preemptionPolicy': 'Frob'})
def priority_class(s, change):
    s.post('/apis/scheduling.k8s.io/v1/priorityclasses', {'apiVersion': 'scheduling.k8s.io/v1', 'kind': 'PriorityClass', 'metadata': {'name': 'corpus-prio'}, **change}, dryRun='All')


JOB = {'template': {'spec': {'restartPolicy': 'Never', 'containers': [C]}}}


@each(plain=JOB, suspended={**JOB, 'suspend': True}, indexed={**JOB, 'completionMode': 'Indexed', 'completions': 2, 'parallelism': 2}, indexed_no_completions={**JOB, 'completionMode': 'Indexed'}, negative={**JOB, 'parallelism': -1}, no_template={}, always={'template': {'spec': {'containers': [C]}}},
      selector={**JOB, 'selector': {'matchLabels': {'a': 'b'}}}, ttl={**JOB, 'ttlSecondsAfterFinished': -1}, mode={**JOB, 'completionMode': 'Frob'}, backoff={**JOB, 'backoffLimit': -1, 'activeDeadlineSeconds': -1})
def job(s, spec):
    s.post(s.path('jobs', group='batch'), {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': 'a'}, 'spec': spec}, dryRun='All')


@each(plain={'minAvailable': 1, 'selector': {'matchLabels': {'a': 'b'}}}, both={'minAvailable': 1, 'maxUnavailable': 1}, percent={'maxUnavailable': '30%'}, bad={'minAvailable': 'x'}, negative={'minAvailable': -1})
def disruption_budget(s, spec):
    s.post(s.path('poddisruptionbudgets', group='policy'), {'apiVersion': 'policy/v1', 'kind': 'PodDisruptionBudget', 'metadata': {'name': 'a'}, 'spec': spec}, dryRun='All')
