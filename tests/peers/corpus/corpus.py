#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks two API servers the same and compares their answers.

  corpus.py run --real KUBECONFIG --ours KUBECONFIG [-k PATTERN] [--all]   exit 1 on a difference that is neither explained in docs/kubernetes-subset.md nor listed in known.txt
       --write-known   lists what is not explained in known.txt: it may only shrink
  corpus.py list                                                          the names of the cases
"""
import argparse
import fnmatch
import glob
import json
import os
import re
import sys
import time

import cases
import conversion
import quota  # noqa: F401, its cases
import replay
from client import Server, Session, differences

HERE = os.path.dirname(os.path.abspath(__file__))
SUBSET = os.path.join(HERE, '..', '..', '..', 'docs', 'kubernetes-subset.md')


def accepted(path):
    """Rows `| case | place | reason |` under the heading 'Accepted differences': globs over case/step and over the place in the answer."""
    rows, inside = [], False
    with open(path, encoding='utf-8') as file:
        for line in file:
            if line.startswith('#'):
                inside = 'Accepted differences' in line
            cells = [c.strip().strip('`') for c in line.strip().strip('|').split(' | ')]
            if inside and line.startswith('| `') and len(cells) == 3:
                rows.append((glob_of(cells[0]), glob_of(cells[1]), cells[2], [0]))
    return rows


def glob_of(text):
    # Brackets are list positions here, not sets of characters.
    return re.compile(fnmatch.translate(text.replace('[', '[[]')))


def space_of(name, run):
    return f'corpus-{run}-' + re.sub('[^a-z0-9-]', '-', name.lower())[:44].strip('-')


def prepare(server, spaces):
    """All namespaces, then their default service accounts, which a controller makes meanwhile."""
    session = Session(server, '')
    for space in spaces:
        made = session.post('/api/v1/namespaces', {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': space}}, keep=False)
        if made.status != 201:
            raise RuntimeError(f'namespace {space}: {made.raw.decode()}')
    for space in spaces:
        for _ in range(300):
            if session.get(f'/api/v1/namespaces/{space}/serviceaccounts/default', keep=False).status == 200:
                break
            time.sleep(0.05)


def run_case(server, space, function):
    session = Session(server, space)
    function(session)
    return session.steps, session.requests


def remove_crds(server):
    session = Session(server, '')
    plurals = ['widgets', 'things', *conversion.PLURALS]
    for plural in plurals:
        session.delete(f'{cases.CRDS}/{plural}.corpus.fairlead.dev', keep=False)
    for _ in range(100):
        if all(session.get(f'{cases.CRDS}/{p}.corpus.fairlead.dev', keep=False).status == 404 for p in plurals):
            return
        time.sleep(0.1)


def compare(name, real, ours):
    found = []
    if [s for s, _ in real] != [s for s, _ in ours]:
        found.append((name, 'steps', [s for s, _ in real], [s for s, _ in ours]))
    for (step, left), (_, right) in zip(real, ours):
        if left.get('status') != right.get('status'):  # then nothing else can be equal
            found.append((f'{name}/{step}', 'status', *(f"{a.get('status')} {message_of(a)}" for a in (left, right))))
            continue
        found += [(f'{name}/{step}', *d) for d in differences(left, right)]
    return found


def rule_of(rules, where, place):
    return next((r for r in rules if r[0].match(where) and r[1].match(place)), None)


def new_one(difference, rules, known):
    where, place = difference[:2]
    return not rule_of(rules, where, place) and f'{where}: {place}' not in known


def asked_again(name, function, servers, first, rules, known):
    """The real server has races of its own: a pod that its scheduler writes to while it is deleted comes back without a resourceVersion. Where a new difference is found, both are asked once
    more, in a namespace of its own. A difference is the real one's own, and excused, if it is not there again and ours answered that step alike both times.
    Returns the differences of the first time that are left, and those excused."""
    right, found = first
    space = {name: space_of(name, f'{os.getpid()}-again')}
    answers = []
    for server in servers:
        prepare(server, space.values())
        answers.append(run_case(server, space[name], function)[0])
        Session(server, '').delete(f'/api/v1/namespaces/{space[name]}', keep=False)
    again = {d[:2] for d in compare(name, *answers)}
    ours_changed = {d[0] for d in compare(name, right, answers[1])}
    excused = [d for d in found if new_one(d, rules, known) and d[:2] not in again and d[0] not in ours_changed and name not in ours_changed]
    return [d for d in found if d not in excused], excused


def message_of(answer):
    body = answer.get('body')
    return body.get('message', '') if isinstance(body, dict) else ''


def short(value):
    text = 'nothing' if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) < 400 else text[:400] + '...'


def read_known():
    """Differences that are neither explained nor mended yet: `case/step: place` a line."""
    with open(os.path.join(HERE, 'known.txt'), encoding='utf-8') as file:
        return {line.rstrip('\n') for line in file if line.strip() and not line.startswith('#')}


def write_known(lines):
    with open(os.path.join(HERE, 'known.txt'), 'w', encoding='utf-8') as file:
        file.write('# SPDX-License-Identifier: Apache-2.0\n# Differences from kube-apiserver that are neither explained (docs/kubernetes-subset.md) nor mended yet. This list may only shrink.\n')
        file.writelines(line + '\n' for line in sorted(lines))


def run(arguments):
    real, ours = Server('real', arguments.real), Server('ours', arguments.ours)
    rules, known, still = accepted(arguments.accepted), read_known(), set()
    chosen = {n: f for n, f in {**cases.CASES, **replay.cases(sorted(glob.glob(os.path.join(HERE, 'recorded', '*.jsonl'))))}.items() if fnmatch.fnmatch(n, arguments.only)}
    unexplained, explained, asked, broken = 0, 0, 0, 0
    spaces = {name: space_of(name, os.getpid()) for name in chosen}
    for server in (real, ours):
        remove_crds(server)
        prepare(server, spaces.values())
    for number, (name, function) in enumerate(chosen.items(), 1):
        try:
            (left, count), (right, _) = run_case(real, spaces[name], function), run_case(ours, spaces[name], function)
            found = compare(name, left, right)
            if any(new_one(d, rules, known) for d in found):
                found, excused = asked_again(name, function, (real, ours), (right, found), rules, known)
                for where, place, a, b in excused:
                    print(f'-- {where}: {place}: the real one answered otherwise when asked again\n       first: {short(a)}\n       then, as ours: {short(b)}', file=sys.stderr)
        except Exception as error:  # a case that cannot go on is a difference too
            print(f'FAIL {name}: {type(error).__name__}: {error}')
            broken += 1
            continue
        asked += count
        for where, place, a, b in found:
            rule = rule_of(rules, where, place)
            if rule:
                rule[3][0] += 1
                explained += 1
            line = f'{where}: {place}'
            listed = not rule and line in known
            if not rule:
                still.add(line)
            if (not rule and not listed) or arguments.all:
                print(f'{"    " if rule else "DIFF"} {where}: {place}\n       real: {short(a)}\n       ours: {short(b)}')
            unexplained += 0 if rule or listed else 1
        if number % 50 == 0:
            print(f'-- {number} of {len(chosen)} cases', file=sys.stderr)
    for server in (real, ours):
        remove_crds(server)
        session = Session(server, '')
        for space in spaces.values():
            session.delete(f'/api/v1/namespaces/{space}', keep=False)
    idle = [r for r in rules if r[3][0] == 0]
    if arguments.only == '*':
        for rule in idle:
            print(f'FAIL accepted difference no longer seen: {rule[2]}')
        broken += len(idle)
        mended = sorted(known - still)
        if mended:
            print(f'mended, take them out of known.txt (--write-known): {len(mended)}, the first: {mended[0]}')
    if arguments.write_known:
        write_known(still)
    print(f'{len(chosen)} cases, {asked} requests compared: {unexplained} new differences, {explained} accepted, {len(still & known)} known and open, {broken} failures')
    return 1 if unexplained or broken else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    commands.add_parser('list')
    runner = commands.add_parser('run')
    runner.add_argument('--real', required=True)
    runner.add_argument('--ours', required=True)
    runner.add_argument('-k', dest='only', default='*', help='glob over case names')
    runner.add_argument('--all', action='store_true', help='show accepted differences too')
    runner.add_argument('--write-known', action='store_true')
    runner.add_argument('--accepted', default=SUBSET)
    arguments = parser.parse_args()
    if arguments.command == 'list':
        print('\n'.join(cases.CASES))
        return 0
    return run(arguments)


if __name__ == '__main__':
    sys.exit(main())
