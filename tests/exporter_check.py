#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exporter_check.py METRICS [NAME...]: the text has exactly the families of exporter_metrics.json, with their types and labels, and samples of each NAME."""
import json, pathlib, re, sys

wanted = json.loads((pathlib.Path(__file__).parent / "exporter_metrics.json").read_text())
types, samples = {}, {}
for line in open(sys.argv[1], encoding="utf-8"):
    line = line.rstrip("\n")
    if match := re.fullmatch(r"# TYPE (\S+) (\S+)", line):
        assert match[1] not in types, f"{match[1]} is there twice"
        types[match[1]] = match[2]
    elif not line.startswith("#"):
        match = re.fullmatch(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)', line)
        assert match, f"not a sample: {line}"
        float(match[3])
        name = match[1] if match[1] in types else re.sub(r"_(bucket|sum|count)$", "", match[1])
        labels = [label for label in re.findall(r'([a-z_]+)="(?:[^"\\]|\\.)*"', match[2] or "") if label != "le"]
        assert name in wanted and sorted(labels) == sorted(wanted[name]["labels"]), f"labels of {name}: {labels}"
        samples.setdefault(name, set())
        assert line.rsplit(" ", 1)[0] not in samples[name], f"twice: {line}"
        samples[name].add(line.rsplit(" ", 1)[0])
assert types == {name: one["type"] for name, one in wanted.items()}, f"types: {sorted(set(types.items()) ^ {(n, o['type']) for n, o in wanted.items()})}"
missing = [name for name in sys.argv[2:] if name not in samples]
assert not missing, f"no samples of {missing}"
