# SPDX-License-Identifier: Apache-2.0
"""Cases of ResourceQuotas. Both servers have a controller that tells status.used, each in its time, and kube-apiserver judges by what it told last: every case waits for it before it asks on.
Of objects that are let in only that is compared; they have cases of their own."""
import time

from cases import case, each, pod

GOLD = 'corpus-gold.storageclass.storage.k8s.io/'


def quota(spec, name='q'):
    return {'apiVersion': 'v1', 'kind': 'ResourceQuota', 'metadata': {'name': name}, 'spec': spec}


def used(s, expected, step='used', name='q'):
    """Waits for it, then compares what the quota has and says."""
    for _ in range(200):
        body = s.get(s.path('resourcequotas', name), keep=False).json
        if body.get('status', {}).get('used') == expected and body['status'].get('hard') == body['spec'].get('hard'):
            break
        time.sleep(0.1)
    time.sleep(0.3)  # until kube-apiserver's own copy of it is as new
    s.steps.append((step, {'spec': body['spec'], 'status': body.get('status')}))


def limit(s, spec, expected):
    s.post(s.path('resourcequotas'), quota(spec), step='quota')
    used(s, expected, 'used at first')


def judged(s, step, answer):
    """What is refused is compared whole."""
    if answer.status < 400:
        s.steps.append((step, {'status': answer.status}))
    else:
        s.keep(step, answer)
    return answer


def make(s, step, resource, body, group='', version='v1', **query):
    return judged(s, step, s.post(s.path(resource, group=group, version=version), body, keep=False, **query))


def claim(name, size, storage_class='corpus-none', **spec):
    return {'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim', 'metadata': {'name': name},
            'spec': {'accessModes': ['ReadWriteOnce'], 'storageClassName': storage_class, 'resources': {'requests': {'storage': size}}, **spec}}


def plain(kind, name, version='v1', **more):
    return {'apiVersion': version, 'kind': kind, 'metadata': {'name': name}, **more}


def asks(name, requests=None, limits=None, **spec):
    resources = {k: v for k, v in (('requests', requests), ('limits', limits)) if v}
    return pod(name, **{'containers': [{'name': 'main', 'image': 'busybox:1', 'resources': resources}], **spec})


@case
def quota_storage(s):
    limit(s, {'hard': {'requests.storage': '10Gi', 'persistentvolumeclaims': '2', GOLD + 'requests.storage': '3Gi', GOLD + 'persistentvolumeclaims': '1'}},
          {'requests.storage': '0', 'persistentvolumeclaims': '0', GOLD + 'requests.storage': '0', GOLD + 'persistentvolumeclaims': '0'})
    make(s, 'more than all', 'persistentvolumeclaims', claim('a', '11Gi'))
    make(s, 'more than the class', 'persistentvolumeclaims', claim('a', '4Gi', 'corpus-gold'))
    make(s, 'the class', 'persistentvolumeclaims', claim('gold', '2.5Gi', 'corpus-gold'))
    used(s, {'requests.storage': '2560Mi', 'persistentvolumeclaims': '1', GOLD + 'requests.storage': '2560Mi', GOLD + 'persistentvolumeclaims': '1'}, 'used by the class')
    make(s, 'the class is full', 'persistentvolumeclaims', claim('b', '1Gi', 'corpus-gold'))
    make(s, 'both are too much', 'persistentvolumeclaims', claim('b', '9Gi', 'corpus-gold'))
    make(s, 'dry run', 'persistentvolumeclaims', claim('b', '7Gi'), dryRun='All')
    make(s, 'dry run too large', 'persistentvolumeclaims', claim('b', '8Gi'), dryRun='All')
    make(s, 'the rest', 'persistentvolumeclaims', claim('b', '7Gi'))
    make(s, 'one more', 'persistentvolumeclaims', claim('c', '1'))
    s.delete(s.path('persistentvolumeclaims', 'b'), keep=False)
    used(s, {'requests.storage': '2560Mi', 'persistentvolumeclaims': '1', GOLD + 'requests.storage': '2560Mi', GOLD + 'persistentvolumeclaims': '1'}, 'used after a deletion')
    make(s, 'again', 'persistentvolumeclaims', claim('b', '7680Mi'))
    used(s, {'requests.storage': '10Gi', 'persistentvolumeclaims': '2', GOLD + 'requests.storage': '2560Mi', GOLD + 'persistentvolumeclaims': '1'}, 'used at last')


@case
def quota_counts(s):
    limit(s, {'hard': {'configmaps': '2', 'count/secrets': '1', 'count/leases.coordination.k8s.io': '1', 'count/jobs.batch': '0', 'resourcequotas': '1'}},
          {'configmaps': '1', 'count/secrets': '0', 'count/leases.coordination.k8s.io': '0', 'count/jobs.batch': '0', 'resourcequotas': '1'})  # kube-root-ca.crt and the quota itself
    make(s, 'a map', 'configmaps', plain('ConfigMap', 'a'))
    make(s, 'a map too many', 'configmaps', plain('ConfigMap', 'b'))
    make(s, 'a bad name first', 'configmaps', plain('ConfigMap', 'B'))
    make(s, 'there already', 'configmaps', plain('ConfigMap', 'a'))
    make(s, 'a secret', 'secrets', plain('Secret', 'a'))
    make(s, 'a secret too many', 'secrets', plain('Secret', 'b'))
    make(s, 'a lease', 'leases', plain('Lease', 'a', 'coordination.k8s.io/v1'), group='coordination.k8s.io')
    make(s, 'a lease too many', 'leases', plain('Lease', 'b', 'coordination.k8s.io/v1'), group='coordination.k8s.io')
    job = {'template': {'spec': {'restartPolicy': 'Never', 'containers': [{'name': 'c', 'image': 'i'}]}}}
    make(s, 'a job', 'jobs', plain('Job', 'a', 'batch/v1', spec=job), group='batch')
    make(s, 'a quota too many', 'resourcequotas', quota({'hard': {'pods': '1'}}, 'second'))
    s.patch(s.path('configmaps', 'a'), {'data': {'k': 'v'}}, keep=False)
    judged(s, 'an update', s.patch(s.path('configmaps', 'a'), {'data': {'k': 'w'}}, keep=False))
    judged(s, 'an apply', s.patch(s.path('configmaps', 'applied'), plain('ConfigMap', 'applied'), 'apply', keep=False, fieldManager='me'))
    used(s, {'configmaps': '2', 'count/secrets': '1', 'count/leases.coordination.k8s.io': '1', 'count/jobs.batch': '0', 'resourcequotas': '1'})
    s.delete(s.path('configmaps', 'a'), keep=False)
    used(s, {'configmaps': '1', 'count/secrets': '1', 'count/leases.coordination.k8s.io': '1', 'count/jobs.batch': '0', 'resourcequotas': '1'}, 'used after a deletion')
    make(s, 'a map again', 'configmaps', plain('ConfigMap', 'b'))


def service(name, **spec):
    return plain('Service', name, spec={'ports': [{'name': 'a', 'port': 1}, {'name': 'b', 'port': 2}], **spec})


@case
def quota_services(s):
    limit(s, {'hard': {'services': '3', 'services.nodeports': '3', 'services.loadbalancers': '0'}}, {'services': '0', 'services.nodeports': '0', 'services.loadbalancers': '0'})
    make(s, 'of the cluster', 'services', service('a'))
    make(s, 'node ports', 'services', service('b', type='NodePort'))
    make(s, 'too many ports', 'services', service('c', type='NodePort'))
    judged(s, 'an update over the limit', s.patch(s.path('services', 'a'), {'spec': {'type': 'NodePort'}}, keep=False))
    judged(s, 'an update beside it', s.patch(s.path('services', 'a'), {'spec': {'selector': {'a': 'b'}}}, keep=False))
    used(s, {'services': '2', 'services.nodeports': '2', 'services.loadbalancers': '0'})
    judged(s, 'an update that gives back', s.patch(s.path('services', 'b'), {'spec': {'type': 'ClusterIP'}}, keep=False))
    used(s, {'services': '2', 'services.nodeports': '0', 'services.loadbalancers': '0'}, 'used after it')
    judged(s, 'now it fits', s.patch(s.path('services', 'a'), {'spec': {'type': 'NodePort'}}, keep=False))
    make(s, 'a service too many', 'services', service('c', clusterIP='None'))
    make(s, 'two too many', 'services', service('d', clusterIP='None'))


@case
def quota_pods(s):
    hard = {'pods': '2', 'count/pods': '3', 'requests.cpu': '1', 'limits.memory': '1.5Gi', 'requests.example.com/gpu': '1'}
    limit(s, {'hard': hard}, dict.fromkeys(hard, '0'))
    make(s, 'says nothing', 'pods', asks('a'))
    make(s, 'says half', 'pods', asks('a', {'cpu': '1'}))
    make(s, 'says half of two', 'pods', pod('a', containers=[{'name': n, 'image': 'i', 'resources': r} for n, r in (('x', {'limits': {'cpu': '1'}}), ('y', {'limits': {'memory': '1Gi'}}))]))
    make(s, 'too much', 'pods', asks('a', {'cpu': '1100m'}, {'memory': '1Gi'}))
    make(s, 'too much of two', 'pods', asks('a', {'cpu': '2'}, {'memory': '1537Mi'}))
    make(s, 'too much to begin with', 'pods', asks('a', {'cpu': '1'}, {'memory': '1Gi'}, initContainers=[{'name': 'i', 'image': 'i', 'resources': {'requests': {'cpu': '3'}, 'limits': {'memory': '1Gi'}}}]))
    make(s, 'too many devices', 'pods', asks('a', {'cpu': '1', 'example.com/gpu': '2'}, {'memory': '1Gi', 'example.com/gpu': '2'}))
    make(s, 'one', 'pods', asks('a', {'cpu': '600m', 'example.com/gpu': '1'}, {'memory': '1Gi', 'example.com/gpu': '1'}))
    used(s, {'pods': '1', 'count/pods': '1', 'requests.cpu': '600m', 'limits.memory': '1Gi', 'requests.example.com/gpu': '1'}, 'used by one')
    make(s, 'no device left', 'pods', asks('b', {'cpu': '100m', 'example.com/gpu': '1'}, {'memory': '1Mi', 'example.com/gpu': '1'}))
    make(s, 'two', 'pods', asks('b', {'cpu': '400m'}, {'memory': '512Mi'}))
    make(s, 'three', 'pods', asks('c', {'cpu': '0'}, {'memory': '0'}))
    judged(s, 'the first ends', s.patch(s.path('pods', 'a', 'status'), {'status': {'phase': 'Succeeded'}}, keep=False))
    used(s, {'pods': '1', 'count/pods': '2', 'requests.cpu': '400m', 'limits.memory': '512Mi', 'requests.example.com/gpu': '0'}, 'used after its end')
    make(s, 'in its place', 'pods', asks('c', {'cpu': '600m'}, {'memory': '1Gi'}))
    make(s, 'an object too many', 'pods', asks('d', {'cpu': '0'}, {'memory': '0'}))
    s.delete(s.path('pods', 'a'), keep=False, gracePeriodSeconds='0')
    s.delete(s.path('pods', 'c'), keep=False, gracePeriodSeconds='0')
    used(s, {'pods': '1', 'count/pods': '1', 'requests.cpu': '400m', 'limits.memory': '512Mi', 'requests.example.com/gpu': '0'}, 'used after deletions')


TIMED, CRITICAL, BURST = {'activeDeadlineSeconds': 100}, {'priorityClassName': 'system-cluster-critical'}, {'containers': [{'name': 'main', 'image': 'i', 'resources': {'requests': {'cpu': '1m'}}}]}
NEAR = {'affinity': {'podAffinity': {'requiredDuringSchedulingIgnoredDuringExecution': [{'topologyKey': 'x', 'namespaces': ['other'], 'labelSelector': {'matchLabels': {'a': 'b'}}}]}}}


def by_class(operator, *values):
    return {'scopeSelector': {'matchExpressions': [{'scopeName': 'PriorityClass', 'operator': operator, **({'values': list(values)} if values else {})}]}}


@each(terminating=({'scopes': ['Terminating']}, TIMED, {}), not_terminating=({'scopes': ['NotTerminating']}, {}, TIMED), best_effort=({'scopes': ['BestEffort']}, {}, BURST), not_best_effort=({'scopes': ['NotBestEffort']}, BURST, {}),
      two=({'scopes': ['NotBestEffort', 'Terminating']}, {**BURST, **TIMED}, BURST), priority=({'scopes': ['PriorityClass']}, CRITICAL, {}), priority_in=(by_class('In', 'high', 'system-cluster-critical'), CRITICAL, {}),
      priority_not_in=(by_class('NotIn', 'system-cluster-critical'), {}, CRITICAL), priority_exists=(by_class('Exists'), CRITICAL, {}), priority_none=(by_class('DoesNotExist'), {}, CRITICAL),
      elsewhere=({'scopes': ['CrossNamespacePodAffinity']}, NEAR, {}))
def quota_scope(s, scopes, within, without):
    limit(s, {'hard': {'pods': '1'}, **scopes}, {'pods': '0'})
    make(s, 'without', 'pods', pod('a', **without))
    make(s, 'within', 'pods', pod('b', **within))
    make(s, 'within again', 'pods', pod('c', **within))
    make(s, 'without again', 'pods', pod('d', **without))
    make(s, 'others', 'configmaps', plain('ConfigMap', 'a'))
    used(s, {'pods': '1'})


@case
def quota_scope_update(s):
    limit(s, {'hard': {'pods': '0'}, 'scopes': ['Terminating']}, {'pods': '0'})
    make(s, 'without', 'pods', pod('a'))
    judged(s, 'it gets into the scope', s.patch(s.path('pods', 'a'), {'spec': {'activeDeadlineSeconds': 100}}, keep=False))


@case
def quota_class_scope(s):
    """Its feature gate is off in Kubernetes 1.33: it is taken, and no claim is in it."""
    limit(s, {'hard': {'persistentvolumeclaims': '0'}, 'scopes': ['VolumeAttributesClass']}, {'persistentvolumeclaims': '0'})
    make(s, 'a claim', 'persistentvolumeclaims', claim('a', '1Gi'))
    used(s, {'persistentvolumeclaims': '0'})


@case
def quota_lowered(s):
    make(s, 'a map', 'configmaps', plain('ConfigMap', 'a'))
    limit(s, {'hard': {'configmaps': '3', 'pods': '1'}}, {'configmaps': '2', 'pods': '0'})
    s.patch(s.path('resourcequotas', 'q'), {'spec': {'hard': {'configmaps': '1', 'pods': None}}}, keep=False)
    used(s, {'configmaps': '2'}, 'used when lowered')
    make(s, 'nothing more', 'configmaps', plain('ConfigMap', 'b'))
    make(s, 'others', 'pods', pod('a'))
    judged(s, 'what is there may change', s.patch(s.path('configmaps', 'a'), {'data': {'k': 'v'}}, keep=False))
    s.patch(s.path('resourcequotas', 'q'), {'spec': {'hard': {'configmaps': '3'}}}, keep=False)
    used(s, {'configmaps': '2'}, 'used when raised')
    make(s, 'one more', 'configmaps', plain('ConfigMap', 'b'))
    make(s, 'two more', 'configmaps', plain('ConfigMap', 'c'))
    gone = s.delete(s.path('resourcequotas', 'q'), keep=False)  # answered with the quota as it was; who told its status last, and when, differs
    s.steps.append(('quota goes', {'status': gone.status, 'kind': gone.json['kind'], 'spec': gone.json.get('spec')}))
    for _ in range(100):  # kube-apiserver's copy goes a moment later
        if s.post(s.path('configmaps'), plain('ConfigMap', 'c'), keep=False, dryRun='All').status < 400:
            break
        time.sleep(0.1)
    make(s, 'without limit', 'configmaps', plain('ConfigMap', 'c'))


@case
def quota_custom(s):
    """Nothing is told of kinds that are in no namespace, or not there at all."""
    limit(s, {'hard': {'count/nothing.corpus.fairlead.dev': '1', 'configmaps': '9'}}, {'configmaps': '1'})


@case
def quota_table(s):
    limit(s, {'hard': {'configmaps': '3', 'limits.cpu': '2', 'requests.storage': '1Ti'}}, {'configmaps': '1', 'limits.cpu': '0', 'requests.storage': '0'})
    s.get(s.path('resourcequotas'), accept='application/json;as=Table;v=v1;g=meta.k8s.io', includeObject='None')


@case
def quota_change(s):
    s.post(s.path('resourcequotas'), quota({'hard': {'pods': '1'}, 'scopes': ['BestEffort']}), keep=False)
    at = s.path('resourcequotas', 'q')
    s.any_order_of_causes = True
    s.patch(at, {'spec': {'scopes': ['Terminating']}}, step='other scopes', dryRun='All')
    s.patch(at, {'spec': {'scopes': None}}, step='no scopes', dryRun='All')
    s.patch(at, {'spec': {'hard': {'nonsense': '1'}}}, step='a bad name', dryRun='All')
    s.patch(at, {'spec': {'hard': {'configmaps': '1'}}}, step='a name of others', dryRun='All')
    s.patch(at + '/status', {'status': {'hard': {'nonsense': '1'}}}, step='a bad name in the status', dryRun='All')
    s.patch(at + '/status', {'status': {'used': {'pods': '-1'}}}, step='less than nothing in the status', dryRun='All')


def scoped(hard, *scopes):
    return {'hard': hard, 'scopes': list(scopes)}


def selected(hard, *expressions):
    return {'hard': hard, 'scopeSelector': {'matchExpressions': [dict(zip(('scopeName', 'operator', 'values'), e)) for e in expressions]}}


@each(empty={}, storage={'hard': {'storage': '1Gi'}}, unknown={'hard': {'cpus': '1'}}, bad_name={'hard': {'a b': '1'}}, bad_prefix={'hard': {'count/': '1'}}, negative={'hard': {'pods': '-1'}}, part={'hard': {'pods': '1500m'}},
      part_of_count={'hard': {'count/jobs.batch': '1500m'}}, part_of_cpu={'hard': {'cpu': '1500m'}}, part_of_gpu={'hard': {'requests.example.com/gpu': '1500m'}}, not_a_number={'hard': {'services': '1.5'}},
      several={'hard': {'cpus': '1', 'pods': '-1', 'storage': '-1'}}, pages={'hard': {'hugepages-2Mi': '1Gi', 'requests.hugepages-1Gi': '1Gi'}},
      all={'hard': {n: '1' for n in ('cpu', 'memory', 'ephemeral-storage', 'requests.cpu', 'requests.memory', 'requests.storage', 'requests.ephemeral-storage', 'limits.cpu', 'limits.memory', 'limits.ephemeral-storage',
                                     'pods', 'resourcequotas', 'services', 'replicationcontrollers', 'secrets', 'persistentvolumeclaims', 'configmaps', 'services.nodeports', 'services.loadbalancers')}},
      large={'hard': {'a.storageclass.storage.k8s.io/requests.storage': '100Pi', 'requests.storage': '100Pi', 'pods': '9000000000000000000'}},
      custom={'hard': {'count/widgets.example.com': '1', 'requests.example.com/gpu': '1', 'a.storageclass.storage.k8s.io/requests.storage': '1'}},
      scope=scoped({'pods': '1'}, 'Often'), scopes_conflict=scoped({'pods': '1'}, 'BestEffort', 'NotBestEffort'), times_conflict=scoped({'pods': '1'}, 'Terminating', 'NotTerminating'), scope_twice=scoped({'pods': '1'}, 'BestEffort', 'BestEffort'),
      scope_of_others=scoped({'configmaps': '1'}, 'Terminating'), scope_of_cpu=scoped({'cpu': '1'}, 'BestEffort'), scope_of_pods=scoped({'pods': '1', 'requests.cpu': '1', 'limits.memory': '1'}, 'NotBestEffort'),
      class_of_pods=scoped({'pods': '1'}, 'VolumeAttributesClass'), selector=selected({'pods': '1'}, ('PriorityClass', 'In', ['a', 'b'])), selector_of_none=selected({'pods': '1'}, ('PriorityClass', 'In')),
      selector_values=selected({'pods': '1'}, ('PriorityClass', 'Exists', ['a'])), selector_op=selected({'pods': '1'}, ('PriorityClass', 'Near')), selector_scope=selected({'pods': '1'}, ('Often', 'Exists')),
      selector_must_exist=selected({'pods': '1'}, ('Terminating', 'DoesNotExist')), selector_conflict=selected({'pods': '1'}, ('Terminating', 'Exists'), ('NotTerminating', 'Exists')),
      selector_of_others=selected({'secrets': '1'}, ('PriorityClass', 'Exists')))
def quota_spec(s, spec):
    s.any_order_of_causes = True
    s.post(s.path('resourcequotas'), quota(spec), dryRun='All')


@each(cluster={'hard': {'count/nodes': '1'}}, events={'hard': {'count/events': '1'}}, device={'hard': {'example.com/gpu': '1'}}, scope=scoped({'count/configmaps': '1'}, 'Terminating'))
def quota_of_nothing(s, spec):
    s.post(s.path('resourcequotas'), quota(spec), dryRun='All')
