# SPDX-License-Identifier: Apache-2.0
"""What a notebook does with the Python client, recorded by record.py."""
from kubernetes import client, config

config.load_kube_config()
core, coordination, space = client.CoreV1Api(), client.CoordinationV1Api(), 'corpusrecord'
core.create_namespaced_config_map(space, {'metadata': {'generateName': 'note-', 'labels': {'by': 'python'}}, 'data': {'a': '1'}}, dry_run='All')
core.create_namespaced_config_map(space, {'metadata': {'name': 'note', 'labels': {'by': 'python'}}, 'data': {'a': '1'}})
core.patch_namespaced_config_map('note', space, {'data': {'b': '2'}})
core.patch_namespaced_config_map('note', space, [{'op': 'add', 'path': '/data/c', 'value': '3'}])
note = core.read_namespaced_config_map('note', space)
note.data['d'] = '4'
core.replace_namespaced_config_map('note', space, note)
try:
    core.replace_namespaced_config_map('note', space, note)
except client.ApiException as error:
    assert error.status == 409, error
core.list_namespaced_config_map(space, label_selector='by=python', limit=1)
pod = client.V1Pod(metadata=client.V1ObjectMeta(name='run', labels={'a': 'b'}), spec=client.V1PodSpec(automount_service_account_token=False, node_selector={'corpus/none': 'x'}, restart_policy='Never',
                   containers=[client.V1Container(name='main', image='busybox:1', command=['true'], resources=client.V1ResourceRequirements(requests={'cpu': '100m'}, limits={'memory': '64Mi'}))]))
core.create_namespaced_pod(space, pod)
core.read_namespaced_pod_status('run', space)
core.list_namespaced_pod(space, field_selector='metadata.name=run')
core.delete_namespaced_pod('run', space, grace_period_seconds=0)
coordination.create_namespaced_lease(space, {'metadata': {'name': 'turn'}, 'spec': {'holderIdentity': 'me', 'leaseDurationSeconds': 15}})
coordination.patch_namespaced_lease('turn', space, {'spec': {'holderIdentity': 'you'}})
coordination.delete_namespaced_lease('turn', space, propagation_policy='Foreground')
core.create_namespaced_secret(space, {'metadata': {'name': 's'}, 'stringData': {'p': 'q'}})
core.delete_collection_namespaced_secret(space, label_selector='none=such')
core.delete_namespaced_secret('s', space, body=client.V1DeleteOptions(propagation_policy='Orphan'))
for missing in (lambda: core.read_namespaced_pod('nobody', space), lambda: core.create_namespaced_config_map(space, {'metadata': {'name': 'Bad'}})):
    try:
        missing()
    except client.ApiException as error:
        assert error.status in (404, 422), error
