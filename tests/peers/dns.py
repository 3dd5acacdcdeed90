#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What CoreDNS does for headless Services: answers HOSTNAME.SUBDOMAIN.NAMESPACE.svc.cluster.local with the address of the pod that says so, by UDP.

    dns.py ADDRESS KUBECTL        port 53 there; the kubeconfig is in the environment; until SIGTERM
"""
import json
import signal
import socket
import struct
import subprocess
import sys
import threading

known = {}


def follow(kubectl):
    """Every state of every pod, as long as kubectl watches."""
    with subprocess.Popen([kubectl, "get", "pods", "-A", "--watch", "-o", "json"], stdout=subprocess.PIPE, text=True) as watch:
        signal.signal(signal.SIGTERM, lambda *_: (watch.terminate(), sys.exit(0)))
        threading.Thread(target=serve, args=(sys.argv[1],), daemon=True).start()
        decoder, text = json.JSONDecoder(), ""
        for line in watch.stdout:
            text += line
            if line != "}\n":
                continue
            pod, _ = decoder.raw_decode(text)
            text = ""
            meta, spec = pod["metadata"], pod["spec"]
            name = ".".join((spec.get("hostname", meta["name"]), spec.get("subdomain", "-"), meta["namespace"], "svc.cluster.local"))
            address = pod.get("status", {}).get("podIP")
            if address and not meta.get("deletionTimestamp"):
                known[name.lower()] = address
            elif meta.get("deletionTimestamp"):
                known.pop(name.lower(), None)


def answer(question):
    """RFC 1035: the header, the question again, and one address where one is asked for and known."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode("ascii", "replace").lower())
        at += 1 + question[at]
    at += 1
    address = known.get(".".join(labels))
    kind = struct.unpack("!H", question[at : at + 2])[0]
    found = address is not None and kind == 1
    head = question[:2] + struct.pack("!5H", 0x8580 if address else 0x8583, 1, int(found), 0, 0)
    return head + question[12 : at + 4] + (struct.pack("!3HIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(address) if found else b"")


def serve(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((address, 53))
        while True:
            question, of = door.recvfrom(4096)
            try:
                door.sendto(answer(question), of)
            except (IndexError, struct.error):
                continue                       # no question


follow(sys.argv[2])
