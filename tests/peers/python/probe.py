#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks of any Kubernetes API what programs written with the Python client rely on; one line per check: "ok NAME" or "FAIL NAME: why".

usage: probe.py KUBECONFIG [REGEX]      (in an environment with python/requirements.txt; see run.sh)
It works in a namespace of its own, needs no node, and removes what it made. Exit status 1 when a check failed.
"""
import base64
import datetime
import random
import re
import string
import sys
import time

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException

api_client = config.new_client_from_config(sys.argv[1])
chosen = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
core = client.CoreV1Api(api_client)
ns = "python-" + "".join(random.choices(string.ascii_lowercase, k=5))
checks = []


def check(function):
    checks.append(function)
    return function


def status_of(call, *arguments, **options):
    """The HTTP status with which a call is refused; 200 if it is not."""
    try:
        call(*arguments, **options)
    except ApiException as refusal:
        return refusal.status
    return 200


def until(seconds, ask):
    end = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)
    return answer


def settings(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"probe": "python"}), data=data)


def sleeper(name, **spec):
    container = client.V1Container(name="main", image="busybox:1", command=["sleep", "3600"])
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, labels={"app": name}),
                        spec=client.V1PodSpec(containers=[container], scheduler_name="nobody", termination_grace_period_seconds=0, **spec))


@check
def version_and_groups():
    assert client.VersionApi(api_client).get_code().major == "1"
    names = {group.name for group in client.ApisApi(api_client).get_api_versions().groups}
    assert {"batch", "coordination.k8s.io", "rbac.authorization.k8s.io", "policy"} <= names, names
    assert any(r.name == "pods" for r in core.get_api_resources().resources)


@check
def create_read_replace_delete():
    made = core.create_namespaced_config_map(ns, settings("plain", a="1"))
    assert made.metadata.uid and made.data == {"a": "1"}
    made.data["b"] = "2"
    changed = core.replace_namespaced_config_map("plain", ns, made)
    assert changed.metadata.resource_version != made.metadata.resource_version
    made.data["c"] = "3"
    assert status_of(core.replace_namespaced_config_map, "plain", ns, made) == 409
    assert status_of(core.create_namespaced_config_map, ns, settings("plain")) == 409
    core.delete_namespaced_config_map("plain", ns)
    assert status_of(core.read_namespaced_config_map, "plain", ns) == 404


@check
def secrets_in_base64():
    core.create_namespaced_secret(ns, client.V1Secret(metadata=client.V1ObjectMeta(name="hidden"), string_data={"key": "wörd"}))
    read = core.read_namespaced_secret("hidden", ns)
    assert base64.b64decode(read.data["key"]).decode() == "wörd" and read.string_data is None and read.type == "Opaque"


@check
def patches_of_every_kind():
    core.create_namespaced_config_map(ns, settings("patched", a="1"))
    merged = core.patch_namespaced_config_map("patched", ns, {"data": {"b": "2"}})  # strategic: the client's own choice for a dict
    assert merged.data == {"a": "1", "b": "2"}, merged.data
    tested = core.patch_namespaced_config_map("patched", ns, [{"op": "remove", "path": "/data/a"}])  # JSON patch for a list
    assert tested.data == {"b": "2"}, tested.data
    assert status_of(core.patch_namespaced_config_map, "patched", ns, [{"op": "test", "path": "/data/b", "value": "x"}]) == 422
    wide = dynamic.DynamicClient(api_client).resources.get(api_version="v1", kind="ConfigMap")
    gone = wide.patch(name="patched", namespace=ns, body={"data": {"b": None}}, content_type="application/merge-patch+json")
    assert not gone.to_dict().get("data"), gone


@check
def server_side_apply():
    maps = dynamic.DynamicClient(api_client).resources.get(api_version="v1", kind="ConfigMap")

    def apply(manager, data, force=False):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": ns}, "data": data}
        return maps.server_side_apply(body=body, name="applied", namespace=ns, field_manager=manager, force_conflicts=force)

    first = apply("one", {"a": "1"}).to_dict()
    assert first["metadata"]["managedFields"][0]["manager"] == "one", first
    assert status_of(apply, "two", {"a": "2"}) == 409
    assert apply("two", {"a": "2"}, force=True).to_dict()["data"] == {"a": "2"}


@check
def pages_of_a_list():
    for i in range(12):
        core.create_namespaced_config_map(ns, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"page-{i:02}", labels={"page": "yes"})))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(ns, label_selector="page=yes", limit=5, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{i:02}" for i in range(12)], names
    core.delete_collection_namespaced_config_map(ns, label_selector="page=yes")
    until(10, lambda: not core.list_namespaced_config_map(ns, label_selector="page=yes").items)


@check
def watch_and_resume():
    start = core.list_namespaced_config_map(ns).metadata.resource_version
    made = core.create_namespaced_config_map(ns, settings("watched", a="1"))
    core.patch_namespaced_config_map("watched", ns, {"data": {"a": "2"}})
    core.delete_namespaced_config_map("watched", ns)

    def events(version, count):
        seen = []
        stream = watch.Watch()
        for event in stream.stream(core.list_namespaced_config_map, ns, resource_version=version, field_selector="metadata.name=watched", timeout_seconds=10):
            seen.append(event["type"])
            if len(seen) == count:
                stream.stop()
        return seen

    assert events(start, 3) == ["ADDED", "MODIFIED", "DELETED"]
    assert events(made.metadata.resource_version, 2) == ["MODIFIED", "DELETED"]


@check
def watch_booleans_as_python_writes_them():
    # The client sends watch=True, allowWatchBookmarks=True; the watch ends by itself.
    began = time.monotonic()
    for _ in watch.Watch().stream(core.list_namespaced_secret, ns, timeout_seconds=1, allow_watch_bookmarks=True):
        pass
    assert time.monotonic() - began < 15


@check
def selectors_of_labels_and_fields():
    core.create_namespaced_pod(ns, sleeper("left"))
    core.create_namespaced_pod(ns, sleeper("right"))
    assert [p.metadata.name for p in core.list_namespaced_pod(ns, label_selector="app in (left)").items] == ["left"]
    assert [p.metadata.name for p in core.list_namespaced_pod(ns, field_selector="metadata.name!=left,status.phase=Pending").items] == ["right"]
    assert status_of(core.list_namespaced_pod, ns, field_selector="spec.frob=1") == 400


@check
def pod_defaults_and_deletion():
    made = core.create_namespaced_pod(ns, sleeper("defaults"))
    spec = made.spec
    assert (spec.restart_policy, spec.dns_policy, spec.containers[0].image_pull_policy) == ("Always", "ClusterFirst", "IfNotPresent"), spec
    assert spec.enable_service_links and made.status.phase == "Pending" and made.status.qos_class == "BestEffort"
    assert spec.service_account_name == "default"
    core.delete_namespaced_pod("defaults", ns, grace_period_seconds=0)
    until(10, lambda: status_of(core.read_namespaced_pod, "defaults", ns) == 404)


@check
def eviction():
    core.create_namespaced_pod(ns, sleeper("evicted"))
    core.create_namespaced_pod_eviction("evicted", ns, client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted", namespace=ns)))
    until(10, lambda: status_of(core.read_namespaced_pod, "evicted", ns) == 404)


@check
def invalid_objects_name_their_fields():
    try:
        core.create_namespaced_pod(ns, client.V1Pod(metadata=client.V1ObjectMeta(name="Bad_Name"), spec=client.V1PodSpec(containers=[client.V1Container(name="main")])))
        raise AssertionError("an invalid pod was taken")
    except ApiException as refusal:
        assert refusal.status == 422 and "metadata.name" in refusal.body and "spec.containers[0].image" in refusal.body, refusal.body


@check
def leases_with_microseconds():
    leases = client.CoordinationV1Api(api_client)
    now = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=datetime.timezone.utc)
    body = client.V1Lease(metadata=client.V1ObjectMeta(name="python"), spec=client.V1LeaseSpec(holder_identity="me", renew_time=now))
    leases.create_namespaced_lease(ns, body)
    assert leases.read_namespaced_lease("python", ns).spec.renew_time == now


@check
def jobs():
    batch = client.BatchV1Api(api_client)
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", scheduler_name="nobody", containers=[client.V1Container(name="main", image="busybox:1")]))
    batch.create_namespaced_job(ns, client.V1Job(metadata=client.V1ObjectMeta(name="once"), spec=client.V1JobSpec(template=template)))
    until(20, lambda: core.list_namespaced_pod(ns, label_selector="job-name=once").items)
    batch.delete_namespaced_job("once", ns, propagation_policy="Background")
    until(30, lambda: not core.list_namespaced_pod(ns, label_selector="job-name=once").items)


@check
def access_reviews():
    reviews = client.AuthorizationV1Api(api_client)
    body = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=client.V1ResourceAttributes(verb="get", resource="pods", namespace=ns)))
    assert reviews.create_self_subject_access_review(body).status.allowed
    other = client.V1SubjectAccessReview(spec=client.V1SubjectAccessReviewSpec(user="nobody-special", resource_attributes=client.V1ResourceAttributes(verb="delete", resource="secrets", namespace=ns)))
    assert not reviews.create_subject_access_review(other).status.allowed


@check
def service_account_token():
    core.create_namespaced_service_account(ns, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot")))
    token = core.create_namespaced_service_account_token("robot", ns, client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600)))
    settings_of_robot = client.Configuration()
    settings_of_robot.host, settings_of_robot.ssl_ca_cert = api_client.configuration.host, api_client.configuration.ssl_ca_cert
    settings_of_robot.api_key = {"authorization": "Bearer " + token.status.token}
    robot = client.CoreV1Api(client.ApiClient(settings_of_robot))
    assert status_of(robot.list_namespaced_config_map, ns) == 403
    rbac = client.RbacAuthorizationV1Api(api_client)
    rbac.create_namespaced_role(ns, client.V1Role(metadata=client.V1ObjectMeta(name="robot"), rules=[client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["list"])]))
    rbac.create_namespaced_role_binding(ns, client.V1RoleBinding(metadata=client.V1ObjectMeta(name="robot"), role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="robot"),
                                                               subjects=[client.RbacV1Subject(kind="ServiceAccount", name="robot", namespace=ns)]))
    until(10, lambda: status_of(robot.list_namespaced_config_map, ns) == 200)


@check
def custom_resources():
    group = ns + ".probe.fairlead.dev"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}}}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boxes." + group},
                  "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "boxes", "singular": "box", "kind": "Box"},
                           "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}}
    utils.create_from_dict(api_client, definition)
    definitions = client.ApiextensionsV1Api(api_client)
    try:
        until(10, lambda: any(c.type == "Established" and c.status == "True" for c in definitions.read_custom_resource_definition("boxes." + group).status.conditions or []))
        custom = client.CustomObjectsApi(api_client)
        body = {"apiVersion": group + "/v1", "kind": "Box", "metadata": {"name": "one"}, "spec": {}}
        until(10, lambda: status_of(custom.list_namespaced_custom_object, group, "v1", ns, "boxes") == 200)
        assert custom.create_namespaced_custom_object(group, "v1", ns, "boxes", body)["spec"] == {"size": 3}
        assert custom.patch_namespaced_custom_object(group, "v1", ns, "boxes", "one", {"spec": {"size": 5}})["spec"] == {"size": 5}
        body["metadata"]["name"], body["spec"] = "two", {"size": "big"}
        assert status_of(custom.create_namespaced_custom_object, group, "v1", ns, "boxes", body) == 422
        assert len(custom.list_namespaced_custom_object(group, "v1", ns, "boxes")["items"]) == 1
    finally:
        definitions.delete_custom_resource_definition("boxes." + group)


def main():
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=ns)))
    failed = 0
    try:
        until(20, lambda: status_of(core.read_namespaced_service_account, "default", ns) == 200)
        for function in checks:
            name = function.__name__.replace("_", "-")
            if not chosen.search(name):
                continue
            try:
                function()
                print("ok   " + name, flush=True)
            except Exception as why:  # noqa: BLE001 - every failure of a check is its answer
                failed += 1
                line = why.__traceback__
                while line.tb_next and line.tb_next.tb_frame.f_code.co_filename == __file__:
                    line = line.tb_next
                print(f"FAIL {name}: line {line.tb_lineno}: {type(why).__name__} " + " ".join(str(why).split())[:300], flush=True)
    finally:
        core.delete_namespace(ns)
    return 1 if failed else 0


sys.exit(main())
