# SPDX-License-Identifier: Apache-2.0
"""Sends to the AWS face of the environment what no client should send; each has to get a refusal with its code, and a good request is answered after it."""
import http.client
import json
import os
import socket
import ssl
import sys
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
context = ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
keys = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])


def signed(operation, body, service="sagemaker", **headers):
    request = AWSRequest("POST", endpoint.geturl() + "/", data=body, headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "SageMaker." + operation, **headers})
    SigV4Auth(keys, service, "fairlead-1").add_auth(request)
    return dict(request.headers)


def send(headers, body, method="POST", path="/"):
    connection = http.client.HTTPSConnection(endpoint.hostname, endpoint.port, context=context, timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read()
        try:
            return response.status, json.loads(text).get("__type", ""), text.decode("utf-8", "replace")
        except ValueError:
            return response.status, "", text.decode("utf-8", "replace")
    except (ConnectionError, http.client.HTTPException) as error:
        return 0, type(error).__name__, str(error)
    finally:
        connection.close()


wrong = []


def expect(what, said, *codes):
    if said[1] not in codes and str(said[0]) not in codes:
        wrong.append(f"{what}: want {codes}, got {said}")
    good = send(signed("ListClusters", "{}"), "{}")
    if good[0] != 200:
        wrong.append(f"after {what} a good request gets {good}")


body = "{}"
good = signed("ListClusters", body)
expect("nobody", send({"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "SageMaker.ListClusters"}, body), "MissingAuthenticationTokenException")
expect("a changed body", send(good, '{"MaxResults":1}'), "InvalidSignatureException")
expect("another operation", send({**good, "X-Amz-Target": "SageMaker.DeleteCluster"}, body), "InvalidSignatureException")
expect("another method", send(good, body, method="PUT"), "InvalidSignatureException")
expect("another path", send(good, body, path="/other"), "InvalidSignatureException")
expect("a query put in", send(good, body, path="/?Action=GetCallerIdentity"), "InvalidSignatureException")
expect("a token put in", send({**good, "X-Amz-Security-Token": "x"}, body), "InvalidSignatureException")
expect("a cut signature", send({**good, "Authorization": good["Authorization"][:-10]}, body), "InvalidSignatureException")
expect("no signature", send({**good, "Authorization": good["Authorization"].split(", Signature")[0]}, body), "IncompleteSignatureException")
expect("an authorization of nonsense", send({**good, "Authorization": "AWS4-HMAC-SHA256 " + "a=b, " * 1000}, body), "IncompleteSignatureException", "431", "400")
expect("another service", send(signed("ListClusters", body, service="dynamodb"), body), "UnknownOperationException")
expect("an unknown operation", send(signed("ListEverything", body), body), "UnknownOperationException")
expect("no JSON", send(signed("ListClusters", "{"), "{"), "SerializationException")
expect("another type of body", send(signed("ListClusters", body, **{"Content-Type": "application/xml"}), body), "SerializationException")
expect("deep JSON", send(signed("ListClusters", "[" * 100_000), "[" * 100_000), "SerializationException")
huge = json.dumps({"NameContains": "a" * (2 << 20)})
expect("a huge body", send(signed("ListClusters", huge), huge), "RequestEntityTooLarge", "ConnectionResetError", "BrokenPipeError", "RemoteDisconnected")
many = json.dumps({"ResourceArn": "arn:aws:sagemaker:fairlead-1:111122223333:cluster/abcdef012345", "TagKeys": ["*"] * 100_000})
expect("many mistakes", send(signed("DeleteTags", many), many), "ValidationException")
expect("letters that are none", send(signed("ListClusters", b'{"NameContains": "\xff\xfe"}'), b'{"NameContains": "\xff\xfe"}'), "SerializationException")


class Old(datetime):
    @classmethod
    def utcnow(cls):
        return datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(minutes=20)


def old():
    import botocore.auth
    import botocore.compat

    before = {module: getattr(module, "get_current_datetime", None) for module in (botocore.auth, botocore.compat)}
    moment = datetime.now(timezone.utc) - timedelta(minutes=20)
    for module in before:
        if before[module] is not None:
            setattr(module, "get_current_datetime", lambda remove_tzinfo=True: moment.replace(tzinfo=None) if remove_tzinfo else moment)
    real = botocore.auth.datetime if hasattr(botocore.auth, "datetime") else None
    if real is not None and before[botocore.auth] is None:
        botocore.auth.datetime = type("module", (), {"datetime": Old}) if hasattr(real, "datetime") else Old
    try:
        return signed("ListClusters", body)
    finally:
        for module, function in before.items():
            if function is not None:
                setattr(module, "get_current_datetime", function)
        if real is not None:
            botocore.auth.datetime = real


said = send(old(), body)
expect("a clock that is 20 minutes late", said, "InvalidSignatureException")
if "Signature expired" not in said[2]:
    wrong.append(f"a late clock is not told: {said}")

for nonsense in (b"\x16\x03\x01", b"POST / HTTP/1.1\r\n\r\n", b"\x00" * 4096):
    with socket.create_connection((endpoint.hostname, endpoint.port), timeout=10) as plain:
        plain.sendall(nonsense)
expect("no TLS", (0, "closed", ""), "closed")

if wrong:
    sys.exit("FAIL " + "\nFAIL ".join(wrong))
