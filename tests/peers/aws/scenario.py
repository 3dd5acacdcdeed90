# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario by boto3 or by the AWS CLI, with the credentials of the environment.

  scenario.py boto3|cli SCENARIO ACCOUNT [NAME=VALUE...]
Each step calls an operation; `expect` compares parts of the answer ("A.0.B", with * at either end of a text), `until` asks again until they hold (for `seconds`, 30 if not said, times FAIRLEAD_PATIENCE, 2 if not said), `error` and
`message` are those of a refusal (with `until` given as {}: which may be long in coming), `save` keeps parts for later steps ("$name"), `become` goes on with the credentials of the answer, or with the
first ones again. $account and what is given as NAME=VALUE are known from the beginning.
"""
import fnmatch
import json
import os
import re
import subprocess
import sys
import time


def kebab(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def by_boto3(service, operation, given, credentials):
    import boto3
    import botocore.exceptions
    from botocore import xform_name

    client = boto3.client(service, **credentials)
    try:
        answer = getattr(client, xform_name(operation))(**given)
    except botocore.exceptions.ClientError as refused:
        error = refused.response["Error"]
        if not refused.response["ResponseMetadata"].get("RequestId"):
            raise SystemExit(f"FAIL {operation}: a refusal without a request id") from refused
        raise Refused(error["Code"], error["Message"]) from refused
    answer.pop("ResponseMetadata")
    return answer


def by_cli(service, operation, given, credentials):
    environment = dict(os.environ)
    for name, value in credentials.items():
        environment[name.upper()] = value
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "aws"), service, kebab(operation), "--output", "json", "--cli-input-json", json.dumps(given)],
        env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = re.search(r"An error occurred \((\w+)\) when calling the \w+ operation(?: \(.*?\))?: (.*)", done.stderr, re.S)
        if not said:
            raise SystemExit(f"FAIL {operation}: exit status {done.returncode}: {done.stderr}")
        raise Refused(said.group(1), said.group(2).strip())
    return json.loads(done.stdout) if done.stdout.strip() else {}


def part(value, path):
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def same(got, want):
    return fnmatch.fnmatchcase(got, want) if isinstance(got, str) and isinstance(want, str) else got == want


def filled(value, names):
    if isinstance(value, dict):
        return {key: filled(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, names) for inner in value]
    if isinstance(value, str):
        return re.sub(r"\$(\w+)", lambda found: names[found.group(1)], value)
    return value


def differences(answer, wanted):
    out = []
    for path, want in wanted.items():
        try:
            got = part(answer, path)
        except (KeyError, IndexError, TypeError):
            got = "(nothing)"
        if not same(got, want):
            out.append(f"{path}: want {want!r}, got {got!r}")
    return out


def main():
    call = {"boto3": by_boto3, "cli": by_cli}[sys.argv[1]]
    with open(sys.argv[2], encoding="utf-8") as file:
        steps = json.load(file)
    names, credentials = {"account": sys.argv[3], **dict(given.split("=", 1) for given in sys.argv[4:])}, {}
    pause, patience = float(os.environ.get("SCENARIO_PAUSE", "0.2")), int(os.environ.get("FAIRLEAD_PATIENCE", "2"))
    for number, step in enumerate(steps, 1):
        step = {key: filled(value, names) if key in ("input", "expect", "until", "message") else value for key, value in step.items()}
        title = f"{number} {step['operation']}"
        end = time.monotonic() + step.get("seconds", 30) * patience
        while True:
            try:
                answer, refused = call(step["service"], step["operation"], step["input"], credentials), None
            except Refused as error:
                answer, refused = {}, error
            waits = differences(answer, step.get("until", {})) if refused is None else []
            if refused is None and "error" in step and "until" in step:
                waits = [f"want {step['error']}, got {answer}"]
            if not waits or time.monotonic() > end:
                break
            time.sleep(pause)
        wrong = list(waits)
        if "error" in step:
            if refused is None:
                wrong.append(f"want {step['error']}, got {answer}")
            elif refused.code != step["error"] or step.get("message", "") not in refused.message:
                wrong.append(f"want {step['error']} {step.get('message', '')!r}, got {refused}")
        elif refused is not None:
            wrong.append(str(refused))
        else:
            wrong += differences(answer, step.get("expect", {}))
        if wrong:
            raise SystemExit(f"FAIL {title}: " + "; ".join(wrong))
        for name, path in step.get("save", {}).items():
            names[name] = part(answer, path)
        if step.get("become") == "first":
            credentials = {}
        elif "become" in step:
            given = part(answer, step["become"])
            credentials = {"aws_access_key_id": given["AccessKeyId"], "aws_secret_access_key": given["SecretAccessKey"], "aws_session_token": given["SessionToken"]}
        print(f"ok    {title}", flush=True)


main()
