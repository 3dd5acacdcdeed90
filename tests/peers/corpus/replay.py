# SPDX-License-Identifier: Apache-2.0
"""Recorded traffic of real clients as cases. A line of a recording: {method, path, headers, body (base64), answer (JSON or null)}.

Values that a server makes (uid, resourceVersion, continue) stand in later requests of the recording as the recorded server gave them; on replay each is replaced by what the
server at hand gave at the same place.
"""
import base64
import json
import os

MADE = ('uid', 'resourceVersion', 'continue')


def cases(files):
    return {'recorded.' + os.path.basename(name).removesuffix('.jsonl'): lambda s, name=name: play(s, name) for name in files}


def learn(recorded, actual, table, space):
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for key, value in recorded.items():
            if key in MADE and isinstance(value, str) and isinstance(actual.get(key), str) and value not in ('', '0'):
                table[value] = actual[key]
            else:
                learn(value, actual.get(key), table, space)
    elif isinstance(recorded, list) and isinstance(actual, list):
        for a, b in zip(recorded, actual):
            learn(a, b, table, space)


def play(session, name):
    table = {}
    with open(name, encoding='utf-8') as file:
        for number, line in enumerate(file, 1):
            entry = json.loads(line)
            path, body = entry['path'].replace('SPACE', session.space), base64.b64decode(entry['body']) if entry['body'] else None
            for old, new in table.items():
                path = path.replace(old, new) if len(old) > 8 else path.replace(f'resourceVersion={old}', f'resourceVersion={new}')
                if body is not None:
                    body = body.replace(f'"{old}"'.encode(), f'"{new}"'.encode())
            if body is not None:
                body = swap_space(body, session.space)
            headers = entry['headers']
            session.agent = headers.get('user-agent', 'corpus/1')
            # Answers in protobuf say the same as those in JSON, which can be compared.
            accept = headers.get('accept', 'application/json')
            accept = 'application/json' if accept.startswith('application/vnd.kubernetes.protobuf') else accept
            answer = session.do(entry['method'], path, body, ctype=headers.get('content-type', 'application/json'), accept=accept, keep=False)
            if compared(entry):
                session.keep(f'{number} {entry["method"]} {entry["path"].split("?")[0]}', answer)
            learn(entry['answer'], answer.json, table, session.space)


# The recorder uses a namespace of twelve letters, and so does a protobuf body: a replacement of another length would break its lengths.
def swap_space(body, space):
    return body if body.startswith(b'k8s\0') else body.replace(b'corpusrecord', space.encode())


def compared(entry):
    path = entry['path'].split('?')[0]
    return not path.startswith(('/openapi', '/version')) and path not in ('/api', '/apis') and path.count('/') > 2
