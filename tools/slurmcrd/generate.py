#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/api/slurm_cluster_crd.inc from fields.tsv: the SlurmCluster resource in the 1.14.10 shape (path, type, constraints).

What differs from the source: only the three node kinds that make a cluster are required, since every other section has a
default here; unknown members are kept (and reported by the operator in a condition) instead of being dropped.
"""
import ast, json, pathlib, re, sys

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "src/api/slurm_cluster_crd.inc"
STILL_REQUIRED = {"slurmNodes", "slurmNodes.controller", "slurmNodes.worker", "slurmNodes.login"}
QUANTITY = {"x-kubernetes-int-or-string": True}



def leaf(kind):
    if kind in ("string", "integer", "boolean", "number"):
        return {"type": kind}
    if kind == "int-or-string":
        return dict(QUANTITY)
    if kind == "object":
        return {"type": "object"}
    if kind.startswith("object (k8s core shape)"):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if kind.startswith("[]"):
        return {"type": "array", "items": leaf(kind[2:])}
    raise SystemExit(f"unknown type {kind!r}")


def main():
    root = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for line in (HERE / "fields.tsv").read_text().splitlines():
        if line.startswith(("#", "path\t")) or not line.startswith("spec"):
            continue
        path, kind, rest = (line.split("\t") + ["", ""])[:3]
        if path == "spec":
            continue
        if "<inline" in path:  # a pod volume source written beside the name
            root["properties"]["volumeSources"]["items"]["x-kubernetes-preserve-unknown-fields"] = True
            continue
        node, parent, name = root, None, None
        parts = path.removeprefix("spec.").split(".")
        for i, part in enumerate(parts):
            array = part.endswith("[]")
            name = part.removesuffix("[]")
            if i == len(parts) - 1:
                parent = node
                break
            node = node.setdefault("properties", {}).setdefault(name, {"type": "array" if array else "object"})
            if array:
                node = node.setdefault("items", {"type": "object"})
        schema = leaf(kind)
        for rule in filter(None, (r.strip() for r in rest.split("; "))):
            if rule == "required":
                full = path.removeprefix("spec.")
                if full in STILL_REQUIRED or name in ("name", "mountPath", "volumeSourceName", "claimName"):
                    parent.setdefault("required", []).append(name)
            elif match := re.fullmatch(r"(default|enum|minItems|minLength|minimum|maximum|format|pattern)=(.*)", rule, re.S):
                key, text = match.groups()
                try:
                    value = ast.literal_eval(text)
                except (ValueError, SyntaxError):
                    value = text
                if key == "minItems":
                    continue  # sections that have a default here may be empty
                schema[key] = value
            else:
                print(f"left out: {path}: {rule}", file=sys.stderr)
        # An object without described members is free-form: resources are quantities by name, selectors are labels.
        if schema.get("type") == "object" and "x-kubernetes-preserve-unknown-fields" not in schema:
            if name == "resources":
                schema["additionalProperties"] = QUANTITY
            elif name in ("nodeSelector", "sshdServiceAnnotations"):
                schema["additionalProperties"] = {"type": "string"}
            else:
                schema.setdefault("x-kubernetes-preserve-unknown-fields", True)
        existing = parent.setdefault("properties", {}).get(name)
        if existing:
            existing.update({k: v for k, v in schema.items() if k not in existing})
        else:
            parent["properties"][name] = schema
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "slurmclusters.slurm.nebius.ai"},
        "spec": {
            "group": "slurm.nebius.ai", "scope": "Namespaced",
            "names": {"plural": "slurmclusters", "singular": "slurmcluster", "kind": "SlurmCluster", "listKind": "SlurmClusterList", "shortNames": ["sc"]},
            "versions": [{
                "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Status", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Controllers", "type": "integer", "jsonPath": ".spec.slurmNodes.controller.size"},
                    {"name": "Workers", "type": "integer", "jsonPath": ".spec.slurmNodes.worker.size"},
                    {"name": "Login", "type": "integer", "jsonPath": ".spec.slurmNodes.login.size"},
                    {"name": "Accounting", "type": "boolean", "jsonPath": ".spec.slurmNodes.accounting.enabled"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": root,
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}},
            }],
        },
    }
    text = json.dumps(crd, indent=1)
    # A string literal may hold 64 KiB by the standard's minimum; pieces keep every compiler content.
    pieces = [text[i:i + 12000] for i in range(0, len(text), 12000)]
    OUT.write_text("// Written by tools/slurmcrd/generate.py from fields.tsv. Do not edit.\n" + "\n".join(f'R"json({p})json"' for p in pieces) + "\n")


main()
