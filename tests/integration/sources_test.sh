#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What holds for every file: source files say their licence, no file names a path of the machine it was written on, links in documents lead somewhere, no two types share a name.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 - "$PWD" << 'PYTHON'
import os, re, subprocess, sys

root = sys.argv[1]
failures = []

def listed():
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(git, check=True, capture_output=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        names = [os.path.relpath(os.path.join(at, name), ".") for at, _, files in os.walk(".") for name in files]
        names = [name for name in names if not name.startswith(("build/", ".git/", ".cache/"))]
    return sorted(name for name in names if name and os.path.isfile(name) and not os.path.islink(name))

files = listed()
text = {}
for name in files:
    with open(name, "rb") as file:
        data = file.read()
    if b"\0" not in data:
        text[name] = data.decode("utf-8", "replace")
if len(text) < 100:
    failures.append(f"only {len(text)} files were found: this test looks at the wrong place")

# Licences. Data, documents and files that tools write or that allow no comments need no line.
kinds = (".cpp", ".h", ".sh", ".py", ".go", ".cmake", ".yaml", ".yml", ".proto", ".js", ".ts", ".css")
for name, body in text.items():
    is_source = name.endswith(kinds) or name.endswith("CMakeLists.txt") or body.startswith("#!")
    if not is_source:
        continue
    head = "\n".join(body.split("\n")[:5])
    line = re.search(r"SPDX-License-Identifier: (\S+)", head)
    wanted = "GPL-3.0-or-later" if name.startswith("gpl/") else "Apache-2.0"
    if not line:
        failures.append(f"{name}: no SPDX-License-Identifier in the first five lines")
    elif line.group(1) != wanted:
        failures.append(f"{name}: licence {line.group(1)}, but {wanted} holds there")

# Paths of one machine: of this checkout, and of the places where the first ones were. (Brackets keep this pattern from finding itself.)
here = re.compile(r"(?<![\w./])(" + re.escape(root) + r"(?=[/\s'\"`]|$)|/[w]ork/(main|shared)\b|/[t]mp/w/)")
for name, body in text.items():
    for number, line in enumerate(body.split("\n"), 1):
        if here.search(line):
            failures.append(f"{name}:{number}: names a path of one machine: {line.strip()[:120]}")

# Links: [text](target), relative ones, with the heading they point at.
def slug(heading):
    heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")

def headings(name):
    body = re.sub(r"^```.*?^```", "", text[name], flags=re.M | re.S)
    return {slug(heading) for heading in re.findall(r"^#+ +(.*)$", body, flags=re.M)}

checked = 0
for name in text:
    if not name.endswith(".md"):
        continue
    body = re.sub(r"^```.*?^```", "", text[name], flags=re.M | re.S)
    body = re.sub(r"`[^`\n]*`", "", body)
    for target in re.findall(r"\[[^]\n]*\]\(([^)\s]+)\)", body):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        checked += 1
        if not os.path.exists(to):
            failures.append(f"{name}: the link {target} leads nowhere")
        elif anchor and to in text and anchor not in headings(to):
            failures.append(f"{name}: the link {target} names a heading that is not there")

# One type a name. Two that share one, each in its own header, are legal for the compiler and for the linker, which then takes the destructor of either: what the
# program does is chance (One Definition Rule). What a file keeps for itself stands in an unnamed namespace.
def types(body):
    body = re.sub(r'R"(\w*)\((.*?)\)\1"', '""', body, flags=re.S)
    body = re.sub(r"//[^\n]*", "", body)
    body = re.sub(r'"(\\.|[^"\\\n])*"', '""', body)
    body = re.sub(r"'(\\.|[^'\\\n])'", "' '", body)
    around = []  # the braces we are in: a namespace's name, or None
    for match in re.finditer(r"\bnamespace\s*([\w:]*)\s*\{|\b(?:struct|class|enum(?:\s+class)?|union)\s+(?:\[\[\w+\]\]\s+)?(?!class\b)(\w[\w:]*)[^;{}()]*\{|\{|\}", body):
        if match.group(0) == "}":
            around = around[:-1]
            continue
        if match.group(2) and None not in around and "" not in around:
            yield "::".join(around + [match.group(2)])
        around.append(match.group(1) if match.group(0).startswith("namespace") else None)

home = {}
for name in text:
    if name.endswith((".cpp", ".h")):
        for one in types(text[name]):
            if home.setdefault(one, name) != name:
                failures.append(f"{name}: {one} is in {home[one]}, too")
if len(home) < 500:
    failures.append(f"only {len(home)} types were found: this test reads them wrongly")

for failure in failures:
    print("FAIL ", failure)
print(f"{len(text)} files, {checked} links, {len(failures)} failures")
sys.exit(1 if failures else 0)
PYTHON
