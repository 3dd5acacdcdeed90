#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the definitions of Kueue's kinds (src/api/queue_crds.inc) from the tables beside it: one row for each field, `path<TAB>type<TAB>constraints`, a table for each version.

  generate.py            write
  generate.py --check    exit 1 where the file is not what the tables say

Types: those of OpenAPI; int32, int64, time; name (of an object), label (of DNS), key (of a label); quantity; conditions, selector, taint, toleration as in Kubernetes; `list of T`, `map of T`;
template: a pod's, kept as it is. A row `path[]` constrains the items of a list. A constraint is `key=JSON`, more of them are parted by "; ".
"""
import json, pathlib, sys

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "src/api/queue_crds.inc"
GROUP = "kueue.x-k8s.io"
STORED = "v1beta2"
VERSIONS = ("v1beta2", "v1beta1")  # the stored one first: who takes the first needs no conversion
# Versions of these differ in their names alone; of all others a webhook converts. Nobody has this name: the server, `fairlead install` and the chart say where the webhook is.
SAME = ("ResourceFlavor", "Topology", "WorkloadPriorityClass")
NOWHERE = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://fairlead-webhooks.invalid/convert"}, "conversionReviewVersions": ["v1"]}}
AGE = ("Age", "date", ".metadata.creationTimestamp")
QUANTITY = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
KEY = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
STRING = {"type": "string"}
STRINGS = {"type": "array", "items": STRING, "x-kubernetes-list-type": "atomic"}

# Kind: plural, namespaced, short names, has a status, columns (name, type, path, shown in wide output only).
KINDS = {
    "ResourceFlavor": ("resourceflavors", False, ["flavor", "flavors", "rf"], False, []),
    "Topology": ("topologies", False, ["topo"], False, []),
    "WorkloadPriorityClass": ("workloadpriorityclasses", False, ["wpc"], False, [("Value", "integer", ".value")]),
    "AdmissionCheck": ("admissionchecks", False, ["ac"], True, []),
    "Cohort": ("cohorts", False, ["co"], True, []),
    "ClusterQueue": ("clusterqueues", False, ["cq"], True, [
        ("Cohort", "string", {"v1beta1": ".spec.cohort", "v1beta2": ".spec.cohortName"}), ("Strategy", "string", ".spec.queueingStrategy", True),
        ("Pending Workloads", "integer", ".status.pendingWorkloads"), ("Admitted Workloads", "integer", ".status.admittedWorkloads", True)]),
    "LocalQueue": ("localqueues", True, ["queue", "queues", "lq"], True, [
        ("ClusterQueue", "string", ".spec.clusterQueue"), ("Pending Workloads", "integer", ".status.pendingWorkloads"), ("Admitted Workloads", "integer", ".status.admittedWorkloads")]),
    "Workload": ("workloads", True, ["kwl", "kueueworkload", "kueueworkloads"], True, [
        ("Queue", "string", ".spec.queueName"), ("Reserved in", "string", ".status.admission.clusterQueue"), ("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
        ("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"), AGE]),
}
SELECTABLE = {"Workload": [".status.admission.clusterQueue"]}


def thing(properties, required=()):
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


TYPES = {
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "time": {"type": "string", "format": "date-time"},
    "name": {"type": "string", "maxLength": 253, "pattern": SUBDOMAIN},
    "label": {"type": "string", "maxLength": 63, "pattern": LABEL},
    "key": {"type": "string", "maxLength": 316, "pattern": KEY},
    "quantity": {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY, "x-kubernetes-int-or-string": True},
    "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "selector": {**thing({"matchExpressions": {"type": "array", "items": thing({"key": STRING, "operator": STRING, "values": STRINGS}, ["key", "operator"]), "x-kubernetes-list-type": "atomic"},
                          "matchLabels": {"type": "object", "additionalProperties": STRING}}), "x-kubernetes-map-type": "atomic"},
    "taint": thing({"effect": STRING, "key": STRING, "timeAdded": {"type": "string", "format": "date-time"}, "value": STRING}, ["effect", "key"]),
    "toleration": thing({"effect": STRING, "key": STRING, "operator": STRING, "tolerationSeconds": {"type": "integer", "format": "int64"}, "value": STRING}),
    "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": thing({
        "lastTransitionTime": {"type": "string", "format": "date-time"}, "message": {"type": "string", "maxLength": 32768}, "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {"type": "string", "maxLength": 316, "pattern": KEY}}, ["lastTransitionTime", "message", "reason", "status", "type"])},
}


def typed(kind):
    if kind.startswith("list of "):
        return {"type": "array", "items": typed(kind.removeprefix("list of "))}
    if kind.startswith("map of "):
        return {"type": "object", "additionalProperties": typed(kind.removeprefix("map of "))}
    return json.loads(json.dumps(TYPES.get(kind, {"type": kind})))


def constraints(text):
    rows = [one.partition("=") for one in text.split("; ")] if text else []
    return {key: json.loads(value) for key, _, value in rows}


def schemas(version):
    """Kind to its schema."""
    roots = {}
    for line in (HERE / f"{version}.tsv").read_text().splitlines():
        if line.startswith("#"):
            continue
        path, kind, rest = (line.split("\t") + ["", ""])[:3]
        rules = constraints(rest)
        first, _, below = path.partition(".")
        if not below:
            roots[first] = {"type": "object", **rules, "properties": {"apiVersion": STRING, "kind": STRING, "metadata": {"type": "object"}}}
            continue
        node = roots[first]
        for part in below.split(".")[:-1]:
            node = node["properties"][part.removesuffix("[]")]
            node = node["items"] if part.endswith("[]") else node
        name = path.split(".")[-1]
        if name.endswith("[]"):
            node["properties"][name.removesuffix("[]")]["items"].update(rules)
            continue
        new = typed(kind)
        inner = new["items"] if kind == "list of object" else new
        if "required" in rules:
            inner["required"] = rules.pop("required")
        new.update(rules)
        node.setdefault("properties", {})[name] = new
    return roots


def definition(kind, by_version):
    plural, namespaced, short, status, columns = KINDS[kind]
    versions = []
    for version in VERSIONS:
        out = {"name": version, "served": True, "storage": version == STORED}
        if status:
            out["subresources"] = {"status": {}}
        if columns:
            out["additionalPrinterColumns"] = [{"name": name, "type": type_of, **({"priority": 1} if wide else {}), "jsonPath": path if isinstance(path, str) else path[version]}
                                              for name, type_of, path, *wide in columns]
        if version == STORED and kind in SELECTABLE:
            out["selectableFields"] = [{"jsonPath": path} for path in SELECTABLE[kind]]
        out["schema"] = {"openAPIV3Schema": by_version[version][kind]}
        versions.append(out)
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": kind + "List", **({"shortNames": short} if short else {})}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "fairlead"}},
            "spec": {"group": GROUP, "scope": "Namespaced" if namespaced else "Cluster", "names": names, **({} if kind in SAME else {"conversion": NOWHERE}), "versions": versions}}


def text_of(value, indent):
    """What fits into a line stands in one."""
    flat = json.dumps(value)
    if indent + len(flat) <= 180 or not isinstance(value, (dict, list)) or not value:
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{inner}{json.dumps(key)}: {text_of(of, indent + 1)}" for key, of in value.items()) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(inner + text_of(of, indent + 1) for of in value) + "\n" + " " * indent + "]"


def main():
    by_version = {version: schemas(version) for version in VERSIONS}
    text = "// Written by tools/queuecrd/generate.py from its tables. Do not edit.\nR\"json(" + text_of([definition(kind, by_version) for kind in KINDS], 0) + ")json\"\n"
    if "--check" in sys.argv[1:]:
        sys.exit(0 if OUT.exists() and OUT.read_text() == text else f"{OUT.name} does not fit its tables: run tools/queuecrd/generate.py")
    OUT.write_text(text)


if __name__ == "__main__":
    main()
