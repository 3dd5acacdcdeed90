#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the definitions of SlurmCluster, NodeSet and ActiveCheck (src/api/*_crd.inc) and the list of their fields (src/api/slurm_fields.inc) from the tables beside it: path, type, constraints.

SlurmCluster takes both shapes at once, 1.14.10 (fields.tsv) and HEAD (head_slurmclusters.tsv). What differs from the source: only what a cluster cannot do without is required, since every other
section has a default here; unknown members are kept, so that the operator names them in a condition, instead of being dropped in silence; defaults that would ask for something that the user did not
ask for are left out; a field that both shapes have with different types takes either.
"""
import ast, json, pathlib, re

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "src/api"
QUANTITY = {"x-kubernetes-int-or-string": True}
KEEP = "x-kubernetes-preserve-unknown-fields"
ALWAYS_REQUIRED = ("name", "mountPath", "claimName")


def leaf(kind):
    if kind in ("string", "integer", "boolean", "number"):
        return {"type": kind}
    if kind == "int-or-string":
        return dict(QUANTITY)
    if kind == "object":
        return {"type": "object"}
    if kind.startswith("object (k8s core shape)"):
        return {"type": "object", KEEP: True}
    if kind.startswith("[]"):
        return {"type": "array", "items": leaf(kind[2:])}
    raise SystemExit(f"unknown type {kind!r}")


def rows(file):
    for line in (HERE / file).read_text().splitlines():
        if not line.startswith(("#", "path\t")):
            yield (line.split("\t") + ["", ""])[:3]


def step(node, part):
    array, name = part.endswith("[]"), part.removesuffix("[]")
    node = node.setdefault("properties", {}).setdefault(name, {"type": "array" if array else "object"})
    return node.setdefault("items", {"type": "object"}) if array else node


def rules_of(rest):
    for rule in filter(None, (r.strip() for r in rest.split("; "))):
        if match := re.fullmatch(r"(default|enum|minimum|maximum|minLength|format|pattern)=(.*)", rule, re.S):
            key, text = match.groups()
            try:
                yield key, ast.literal_eval(text)
            except (ValueError, SyntaxError):
                yield key, text


def add(root, file, below, required, defaults):
    """Adds the fields of a table below `root`. `required`: full paths that stay so. `defaults`: whether a path keeps its default."""
    for path, kind, rest in rows(file):
        if not path.startswith(below + "."):
            continue
        full = path.removeprefix(below + ".")
        if "<inline" in full or kind.startswith("("):  # a core type, whole or beside described members
            node = root
            for part in full.split(".<inline")[0].split("."):
                node = step(node, part)
            node[KEEP] = True
            continue
        *parents, last = full.split(".")
        parent = root
        for part in parents:
            parent = step(parent, part)
        name, schema = last.removesuffix("[]"), leaf(kind)
        for key, value in rules_of(rest):
            if key != "default" or defaults(full):
                schema[key] = value
        if "required" in rest.split("; ") and (full in required or (name in ALWAYS_REQUIRED and "[]" in full)) and name not in parent.setdefault("required", []):
            parent["required"].append(name)
        if not parent.get("required", True):
            del parent["required"]
        # An object without described members is free-form: resources are quantities by name, selectors are labels.
        if schema.get("type") == "object" and KEEP not in schema:
            if name == "resources":
                schema["additionalProperties"] = QUANTITY
            elif name in ("nodeSelector", "sshdServiceAnnotations", "workerAnnotations"):
                schema["additionalProperties"] = {"type": "string"}
        have = parent.setdefault("properties", {}).get(name)
        if not have:
            parent["properties"][name] = schema
        elif have.get("type") and schema.get("type") and have["type"] != schema["type"]:
            parent["properties"][name] = {**QUANTITY, **{k: v for k, v in have.items() if k == "default"}}
        else:
            have.update({k: v for k, v in schema.items() if k not in have})


def keep_unknown(schema):
    """Below spec nothing is dropped: the operator names what it does not know."""
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        schema[KEEP] = True
    for child in schema.get("properties", {}).values():
        keep_unknown(child)
    if "items" in schema:
        keep_unknown(schema["items"])


def crd(group_version, kind, short, columns, spec, status, required, subresources):
    plural = kind.lower() + "s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": plural + ".slurm.nebius.ai"},
        "spec": {
            "group": "slurm.nebius.ai", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": kind + "List", "shortNames": [short]} if short else {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": kind + "List"},
            "versions": [{
                "name": group_version, "served": True, "storage": True, "subresources": subresources,
                "additionalPrinterColumns": [{"name": name, "type": type_, "jsonPath": path} for name, type_, path in columns],
                "schema": {"openAPIV3Schema": {"type": "object", "required": required, "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": spec, "status": status}}},
            }],
        },
    }


def write(name, text):
    # A string literal may hold 64 KiB by the standard's minimum; pieces keep every compiler content.
    pieces = [text[i:i + 12000] for i in range(0, len(text), 12000)]
    (OUT / name).write_text("// Written by tools/slurmcrd/generate.py from its tables. Do not edit.\n" + "\n".join(f'R"json({p})json"' for p in pieces) + "\n")


def columns_of(file):
    out = []
    for line in (HERE / file).read_text().splitlines():
        if line.startswith("# column "):
            name, kind, path = re.fullmatch(r"# column (.*) (\w+) (\.\S+)", line).groups()
            out.append((name, kind, path))
    return out


def claims_of_their_own(mounts):
    """Ours: a claim for each pod. The other fields have their effect in every list of mounts."""
    properties = mounts["items"]["properties"]
    properties.setdefault("readOnly", {"type": "boolean"})
    properties.setdefault("subPath", {"type": "string"})
    properties["volumeClaimTemplateSpec"] = {"type": "object", KEEP: True}


def slurm_cluster():
    root = {"type": "object"}
    # The workers' section is the 1.14.10 shape's; in the other shape workers are NodeSets.
    add(root, "fields.tsv", "spec", {"slurmNodes", "slurmNodes.controller", "slurmNodes.login", "slurmNodes.login.volumes.jailSubMounts[].volumeSourceName"}, lambda path: True)
    add(root, "head_slurmclusters.tsv", "spec", set(), lambda path: False)
    for role in ("login", "worker"):  # a mount may have a claim of its own in the newer shape
        items = root["properties"]["slurmNodes"]["properties"][role]["properties"]["volumes"]["properties"]["jailSubMounts"]["items"]
        items["required"] = ["name", "mountPath"]
    for role in ("controller", "login", "worker"):
        volumes = root["properties"]["slurmNodes"]["properties"][role]["properties"]["volumes"]["properties"]
        for mounts in ("jailSubMounts", "customMounts"):
            if mounts in volumes:
                claims_of_their_own(volumes[mounts])
    keep_unknown(root)
    columns = [("Status", "string", ".status.phase"), ("Controllers", "integer", ".spec.slurmNodes.controller.size"), ("Workers", "integer", ".status.workers"), ("Login", "integer", ".spec.slurmNodes.login.size"),
               ("Accounting", "boolean", ".spec.slurmNodes.accounting.enabled"), ("Age", "date", ".metadata.creationTimestamp")]
    status = {"type": "object", KEEP: True}
    return crd("v1", "SlurmCluster", "sc", columns, root, status, ["spec"], {"status": {}})


def node_set():
    root = {"type": "object"}
    add(root, "nodesets.tsv", "spec", {"slurmd"}, lambda path: path in ("replicas", "slurmd.port", "slurmd.volumes.sharedMemorySize"))
    root["properties"]["replicas"].update({"minimum": 0, "maximum": 10000})
    volumes = root["properties"]["slurmd"]["properties"]["volumes"]["properties"]
    for mounts in ("jailSubMounts", "customVolumeMounts"):
        claims_of_their_own(volumes[mounts])
    keep_unknown(root)
    status = {"type": "object", KEEP: True, "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}, "labelSelector": {"type": "string"}, "observedGeneration": {"type": "integer"}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.labelSelector"}
    return crd("v1alpha1", "NodeSet", "", columns_of("nodesets.tsv") + [("Age", "date", ".metadata.creationTimestamp")], root, status, ["spec"], {"status": {}, "scale": scale})


def active_check():
    root = {"type": "object"}
    add(root, "activechecks.tsv", "spec", {"name", "slurmClusterRefName"}, lambda path: True)
    keep_unknown(root)
    status = {"type": "object", KEEP: True}
    return crd("v1alpha1", "ActiveCheck", "", columns_of("activechecks.tsv"), root, status, ["spec"], {"status": {}})


def main():
    for name, made in (("slurm_cluster", slurm_cluster()), ("node_set", node_set()), ("active_check", active_check())):
        write(name + "_crd.inc", json.dumps(made, indent=1))
    # Every path of a SlurmCluster with the shapes that have it: 1, 2 (HEAD) or both.
    shapes = {}
    for mark, file in (("1", "fields.tsv"), ("2", "head_slurmclusters.tsv")):
        for path, kind, _ in rows(file):
            if path.startswith("spec.") and "<inline" not in path and not kind.startswith("("):
                shapes.setdefault(path.removeprefix("spec."), "")
                if mark not in shapes[path.removeprefix("spec.")]:
                    shapes[path.removeprefix("spec.")] += mark
    write("slurm_fields.inc", "".join(f"{path} {marks}\n" for path, marks in sorted(shapes.items())))
    for name in ("node_set", "active_check"):
        write(name + "_fields.inc", "".join(sorted({path.removeprefix("spec.") + "\n" for path, kind, _ in rows(name.replace("_", "") + "s.tsv") if path.startswith("spec.") and not kind.startswith("(")})))


main()
