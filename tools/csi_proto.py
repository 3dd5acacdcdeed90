#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/csi/csi.proto: names, numbers and types of the CSI protocol, from the csi.proto of the pinned Go module and without its texts.

  csi_proto.py            write
  csi_proto.py --check    exit 1 where the file is not what the module says

It keeps what decides bytes on the wire and names in the code, and `deprecated`. It leaves out comments, options of CSI's own (alpha_*, csi_secret) with what declares them, and go_package.
Go and the module proxy are needed only to change the file, never to build Fairlead. Another version: MODULE and SUM below; the proxy's answer is used only if it has this sum.
"""
import json, os, pathlib, re, subprocess, sys, tempfile

MODULE = "github.com/container-storage-interface/spec@v1.12.0"
SUM = "h1:zrFOEqpR5AghNaaDG4qyedwPBqU2fU0dWjLQMP/azK0="
OUT = pathlib.Path(__file__).resolve().parent.parent / "src/csi/csi.proto"
HEAD = f"""// SPDX-License-Identifier: Apache-2.0
// Names and numbers are those of csi.proto in the Go module {MODULE}; tools/csi_proto.py wrote this file. Do not edit.
"""

SKIPPED = re.compile(r"\s+|//[^\n]*|/\*.*?\*/", re.S)
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|[\w.+-]+|[{}\[\]()<>=,;]')
KEPT_OPTIONS = {"deprecated"}


def source():
    """The module's csi.proto."""
    with tempfile.TemporaryDirectory() as elsewhere:  # in no module: a go.mod above must not matter
        try:
            done = subprocess.run(["go", "mod", "download", "-json", MODULE], cwd=elsewhere, stdout=subprocess.PIPE, env={**os.environ, "GOWORK": "off"})
        except FileNotFoundError:
            sys.exit("csi_proto.py: there is no `go`, which downloads the module")
    answer = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "Dir" not in answer:
        sys.exit(f"csi_proto.py: download {MODULE}: {answer.get('Error', 'go said no more than the above')}")
    if answer["Sum"] != SUM:
        sys.exit(f"csi_proto.py: {MODULE} has the sum {answer['Sum']}, not {SUM}")
    return (pathlib.Path(answer["Dir"]) / "csi.proto").read_text()


def tokens_of(text):
    at, tokens = 0, []
    while at < len(text):
        if skipped := SKIPPED.match(text, at):
            at = skipped.end()
        elif token := TOKEN.match(text, at):
            tokens.append(token.group())
            at = token.end()
        else:
            sys.exit(f"csi_proto.py: line {text.count(chr(10), 0, at) + 1}: {text[at:at + 20]!r} is nothing that this script knows")
    return tokens


def statements(tokens):
    """Takes tokens up to the closing brace: a list of (words, body), the body None where a semicolon ends the statement."""
    out, words = [], []
    while tokens:
        token = tokens.pop(0)
        if token == "}":
            break
        if token == ";":
            if words:  # a semicolon may stand alone
                out.append((words, None))
            words = []
        elif token == "{":
            out.append((words, statements(tokens)))
            words = []
        else:
            words.append(token)
    if words:
        sys.exit(f"csi_proto.py: {' '.join(words)}: nothing ends this")
    return out


def without_options(words):
    """A field or a value of an enum without those of its options in [] that are not kept."""
    if "[" not in words:
        return words
    begin = words.index("[")
    options, each = [], []
    for word in words[begin + 1:-1] + [","]:
        if word != ",":
            each.append(word)
            continue
        if each[0] in KEPT_OPTIONS:
            options.append(each)
        elif each[0] != "(":
            sys.exit(f"csi_proto.py: {' '.join(words)}: say whether the option {each[0]} is kept")
        each = []
    kept = [word for option in options for word in [",", *option]][1:]
    return words[:begin] + (["[", *kept, "]"] if kept else [])


def is_dropped(words):
    kind, name = words[0], words[1]
    if kind == "option":
        if name not in KEPT_OPTIONS | {"(", "go_package"}:
            sys.exit(f"csi_proto.py: {' '.join(words)}: say whether this option is kept")
        return name not in KEPT_OPTIONS
    return kind == "extend" or words == ["import", '"google/protobuf/descriptor.proto"']


def line_of(words):
    line = " ".join(words)
    for before, after in ((" < ", "<"), (" >", ">"), (" ,", ","), ("[ ", "["), (" ]", "]"), ("( ", "("), (" )", ")")):
        line = line.replace(before, after)
    return re.sub(r"(?<!returns) \(", "(", line)


def lines_of(body, indent):
    """What this prints reads alike wherever the original breaks its lines."""
    kept = [(without_options(words), inner) for words, inner in body if not is_dropped(words)]
    for words, inner in kept:
        if words[0] not in ("message", "enum", "service", "oneof"):  # a method's body has options only
            inner = inner and [one for one in inner if not is_dropped(one[0])]
            end = ";" if not inner else " {"
        else:
            end = " {" if inner else " {}"
        if indent == 0 and words[0] in ("message", "enum", "service"):
            yield ""
        yield "  " * indent + line_of(words) + end
        if inner:
            yield from lines_of(inner, indent + 1)
            yield "  " * indent + "}"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    body = statements(tokens_of(source()))
    if [words for words, _ in body[:2]] != [["syntax", "=", '"proto3"'], ["package", "csi.v1"]]:
        sys.exit(f"csi_proto.py: {MODULE} does not begin as a file of csi.v1")
    text = HEAD + "\n".join(lines_of(body, 0)) + "\n"
    if sys.argv[1:]:
        sys.exit(0 if OUT.exists() and OUT.read_text() == text else f"{OUT.name} is not what {MODULE} says: run tools/csi_proto.py")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
