#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes those files that follow from the programs: CustomResourceDefinitions, rules of roles, the schema of slurm-cluster's values, the open ways of the chart's policies and their table in docs.

  fairlead install --dry-run -o yaml | deploy/generate.py --aws AWS.yaml --volumes VOLUMES.yaml --snapshots SNAPSHOTS.yaml --ways WAYS.json --table TABLE.md            write
  fairlead install --dry-run -o yaml | deploy/generate.py --aws AWS.yaml --volumes VOLUMES.yaml --snapshots SNAPSHOTS.yaml --ways WAYS.json --table TABLE.md --check    exit 1 and name the files that differ

AWS.yaml is what `fairlead install --aws --dry-run -o yaml` prints, VOLUMES.yaml what it prints with --volumes, SNAPSHOTS.yaml with --csi-snapshotter-image beside that, WAYS.json what `fairlead ports -o json` prints, TABLE.md what `fairlead ports --markdown` does.
"""

import argparse
import json
import os
import sys

import yaml

HELM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helm")
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Written by deploy/generate.py from what `fairlead install` would apply. Do not edit.\n"
DOCUMENT = "../../docs/network.md"
MARKS = ("<!-- ways: begin, written by deploy/generate.sh -->\n", "<!-- ways: end -->")
CLUSTER = "slurmclusters.slurm.nebius.ai"


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def to_yaml(value):
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, width=150, allow_unicode=True)


def sorted_rules(rules):
    """One text per meaning: rules and what they list in order, keys in the order people write them."""
    keys = ("apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs")
    out = [{key: sorted(rule[key]) for key in keys if rule.get(key)} for rule in rules]
    return sorted(out, key=json.dumps)


def rules_text(rules):
    lines = []
    for rule in sorted_rules(rules):
        inner = ", ".join(f"{key}: [{', '.join(json.dumps(item) if not item.replace('.', '').replace('/', '').replace('-', '').isalnum() else item for item in items)}]" for key, items in rule.items())
        lines.append(f"- {{{inner}}}\n")
    return HEAD + "".join(lines)


def from_crd(schema):
    """A JSON schema for values out of a structural one. Where fields are known no others are taken, so that a misspelt name is refused; null means: not given."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "number", "string", "null"]}
    out = {key: schema[key] for key in ("enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "description") if key in schema}
    kind = schema.get("type")
    if kind == "integer":
        out["type"] = ["integer", "null"]
    elif kind == "array":
        out["type"] = ["array", "null"]
        out["items"] = from_crd(schema.get("items", {}))
    elif kind == "object":
        out["type"] = ["object", "null"]
        if schema.get("properties"):
            out["properties"] = {name: from_crd(of) for name, of in sorted(schema["properties"].items())}
            out["additionalProperties"] = False
            if schema.get("required"):
                out["required"] = schema["required"]
        elif isinstance(schema.get("additionalProperties"), dict):
            out["additionalProperties"] = from_crd(schema["additionalProperties"])
    elif kind:
        out["type"] = [kind, "null"]
    if "enum" in out:
        out["enum"] = out["enum"] + [None]
    return out


def open_up(schema):
    """Entries that hold a source beside their name, of any of Kubernetes' kinds."""
    schema["items"].pop("additionalProperties", None)


def values_schema(crd):
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields = from_crd(spec)["properties"]
    open_up(fields["volumeSources"])
    nodes = fields["slurmNodes"]
    nodes["properties"]["controller"]["properties"]["size"].update({"minimum": 1, "maximum": 3})
    for role in ("worker", "login", "exporter", "rest"):
        nodes["properties"][role]["properties"]["size"]["minimum"] = 0
    for role in nodes["properties"].values():
        for part in role.get("properties", {}).values():
            port = part.get("properties", {}).get("port")
            if port:
                port.update({"minimum": 1, "maximum": 65535})
    own = {
        "clusterName": {"type": "string", "pattern": "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", "description": "Name of the cluster and of the SlurmCluster. Fixed once installed."},
        "clusterType": fields["clusterType"],
        "crVersion": fields["crVersion"],
        "pause": {"type": "boolean"},
        "extensions": {"type": "object", "properties": {"mockGpus": {"type": "boolean"}, "bindCores": {"type": "boolean"},
            "scaleDown": {"type": "object", "additionalProperties": False, "description": "How workers beyond the size are taken away.", "properties": {
                "strictOrdinals": {"type": "boolean"}, "policy": {"type": "string", "enum": ["wait", "requeue", "kill"]}, "after": {"type": "string", "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"}}}},
            "description": "Fairlead's own fields of the resource."},
        "resourceNames": {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}, "description": "Short resource names and what they stand for."},
        "claims": {
            "type": "object", "additionalProperties": False,
            "properties": {"create": {"type": "boolean"}, "storageClassName": {"type": "string"}, "jailSize": {"type": ["string", "integer"]}, "controllerSpoolSize": {"type": ["string", "integer"]}},
        },
        "podMonitor": {"type": "object", "additionalProperties": False, "properties": {"create": {"type": "boolean"}, "labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "global": {"type": "object"},
    }
    for name in ("k8sNodeFilters", "volumeSources", "secrets", "populateJail", "ncclSettings", "periodicChecks", "telemetry", "slurmNodes"):
        own[name] = fields[name]
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "slurm-cluster", "type": "object", "additionalProperties": False, "required": ["clusterName", "slurmNodes"], "properties": own}


def ways_text(ways):
    """Those that the chart's policies open, in the table's order."""
    rows = [way for way in ways if way["keptBy"] == "the chart's policies"]
    return HEAD.replace("fairlead install", "fairlead ports").replace("would apply", "prints") + "".join(f"- {json.dumps(way)}\n" for way in rows)


def with_table(document, table):
    begin, end = (document.index(mark) for mark in MARKS)
    return document[:begin] + MARKS[0] + table + document[end:]


def rules_of(documents, kind):
    people = ("fairlead-view", "fairlead-edit", "fairlead-team-member", "fairlead-team-viewer")
    return [rule for d in documents if d["kind"] == kind and d["metadata"]["name"] not in people for rule in d["rules"]]


def rules_in(documents, kind, name):
    [found] = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return sorted_rules(found["rules"])


def generate(documents, with_aws, with_volumes, with_snapshots, ways, table):
    out, crds = {}, {}
    for crd in documents:
        if crd["kind"] != "CustomResourceDefinition":
            continue
        name = crd["metadata"]["name"]
        crds[name] = crd
        plain = {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": {"name": name}, "spec": crd["spec"]}
        out[f"fairlead/files/crds/{name}.yaml"] = HEAD + to_yaml(plain)
    # Those of people have their own files; the others are the server's.
    people = ("fairlead-view", "fairlead-edit", "fairlead-team-member", "fairlead-team-viewer")
    for kind, file in (("ClusterRole", "rules-server"), ("Role", "rules-leader")):
        out[f"fairlead/files/{file}.yaml"] = rules_text(rules_of(documents, kind))
    # What serving AWS clients needs beside that.
    for kind, file in (("ClusterRole", "rules-aws"), ("Role", "rules-aws-space")):
        have = sorted_rules(rules_of(documents, kind))
        out[f"fairlead/files/{file}.yaml"] = rules_text([rule for rule in sorted_rules(rules_of(with_aws, kind)) if rule not in have])
    # Of volumes: pods of nodes, the controller's pods, and what these need for VolumeSnapshots beside that.
    out["fairlead/files/rules-volumes.yaml"] = rules_text(rules_in(with_volumes, "ClusterRole", "fairlead-volumes"))
    for kind, end in (("ClusterRole", ""), ("Role", "-space")):
        out[f"fairlead/files/rules-volumes-keys{end}.yaml"] = rules_text(rules_in(with_volumes, kind, "fairlead-volumes-keys"))
        have = rules_in(with_volumes, kind, "fairlead-volumes-controller")
        out[f"fairlead/files/rules-volumes-controller{end}.yaml"] = rules_text(have)
        out[f"fairlead/files/rules-volumes-snapshots{end}.yaml"] = rules_text([rule for rule in rules_in(with_snapshots, kind, "fairlead-volumes-controller") if rule not in have])
    for d in documents:
        if d["kind"] == "ClusterRole" and d["metadata"]["name"] in people:
            out[f"fairlead/files/rules-{d['metadata']['name'].removeprefix('fairlead-')}.yaml"] = rules_text(d["rules"])
    out["fairlead/files/ways.yaml"] = ways_text(ways)
    with open(os.path.join(HELM, DOCUMENT), encoding="utf-8") as stream:
        out[DOCUMENT] = with_table(stream.read(), table)
    out["slurm-cluster/values.schema.json"] = json.dumps(values_schema(crds[CLUSTER]), indent=1) + "\n"
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aws", required=True)
    parser.add_argument("--volumes", required=True)
    parser.add_argument("--snapshots", required=True)
    parser.add_argument("--ways", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    check = options.check
    with open(options.ways, encoding="utf-8") as stream:
        ways = json.load(stream)
    with open(options.table, encoding="utf-8") as stream:
        table = stream.read()
    flat = lambda stream: [item for d in yaml.safe_load_all(stream) if d for item in (d["items"] if d["kind"] == "List" else [d])]
    with open(options.aws, encoding="utf-8") as stream:
        with_aws = flat(stream)
    with open(options.volumes, encoding="utf-8") as stream:
        with_volumes = flat(stream)
    with open(options.snapshots, encoding="utf-8") as stream:
        with_snapshots = flat(stream)
    files = generate(flat(sys.stdin), with_aws, with_volumes, with_snapshots, ways, table)
    folder = os.path.join(HELM, "fairlead/files/crds")
    stale = [f"fairlead/files/crds/{name}" for name in (sorted(os.listdir(folder)) if os.path.isdir(folder) else []) if f"fairlead/files/crds/{name}" not in files]
    wrong = []
    for path, text in sorted(files.items()):
        full = os.path.join(HELM, path)
        have = open(full, encoding="utf-8").read() if os.path.exists(full) else None
        if have == text:
            continue
        wrong.append(path)
        if not check:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as stream:
                stream.write(text)
    for path in stale:
        wrong.append(path)
        if not check:
            os.remove(os.path.join(HELM, path))
    if check and wrong:
        sys.exit("charts or docs do not fit the programs, run deploy/generate.sh: " + ", ".join(wrong))
    for path in wrong:
        print(path)


if __name__ == "__main__":
    main()
