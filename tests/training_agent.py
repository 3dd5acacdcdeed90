#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Stands in for hyperpod-elastic-agent where that cannot be had (it takes 4 GB of PyTorch): the same words over HTTP and the same states, and real processes under it. One suite runs on both (src/training/agents_test.cpp).
#   training_agent.py [--server-host H] [--server-port N] [--nproc-per-node N] COMMAND...
# As with the real one: nothing starts before /start; when a process fails the others are killed and the state is faulted; after /stop it is ready again; it ends after /shutdown or SIGTERM.
import argparse
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

flags = argparse.ArgumentParser()
flags.add_argument("--server-host", default="0.0.0.0")
flags.add_argument("--server-port", type=int, default=8080)
flags.add_argument("--nproc-per-node", type=int, default=int(os.environ.get("NPROC_PER_NODE", "1")))
flags.add_argument("--nnodes", default=os.environ["NNODES"])
flags.add_argument("command", nargs=argparse.REMAINDER)
options = flags.parse_args()

lock = threading.Lock()
told_to_end = threading.Event()  # by a signal
state, reason, message, attempt, order = "ready", "", "", "", None
processes, rules = [], []


def begin():
    local = options.nproc_per_node
    out = []
    for index in range(local):
        rank = order["rank"] * local + index
        more = {"RANK": rank, "LOCAL_RANK": index, "GROUP_RANK": order["rank"], "LOCAL_WORLD_SIZE": local, "WORLD_SIZE": order["nnodes"] * local, "MASTER_ADDR": order["master_addr"], "MASTER_PORT": order["master_port"],
                "TORCHELASTIC_RESTART_COUNT": order["faultCount"], "JOB_RESTART_COUNT": order["faultCount"]}
        process = subprocess.Popen(options.command, env={**os.environ, **{name: str(value) for name, value in more.items()}}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        threading.Thread(target=read, args=(process, index), daemon=True).start()
        out.append(process)
    return out


class Rule:
    def __init__(self, said):
        self.said, self.last, self.seen = said, time.monotonic(), False

    def looks(self, line):
        if re.search(self.said["logPattern"], line):
            self.last, self.seen = time.monotonic(), True

    def hangs(self):
        limit = self.said.get("expectedRecurringFrequencyInSeconds") if self.seen else self.said.get("expectedStartCutOffInSeconds")
        return limit is not None and time.monotonic() - self.last > limit


def read(process, index):
    for line in process.stdout:
        print(line, end="", flush=True)
        if index == 0:
            for rule in rules:
                rule.looks(line)


def kill(number=signal.SIGKILL):
    for process in processes:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
    for process in processes:
        process.wait()


def watch():
    global state, reason, message, processes, rules
    while state != "shutdown" and not told_to_end.is_set():
        time.sleep(0.1)
        with lock:
            if state == "running" and not processes:
                rules = [Rule(one) for one in order.get("log_monitoring_configuration") or []]
                processes = begin()
            elif state == "running":
                codes = [process.poll() for process in processes]
                failed = [(index, code) for index, code in enumerate(codes) if code not in (None, 0)]
                hangs = [rule.said["name"] for rule in rules if rule.hangs()]
                if failed:
                    state, reason, message = "faulted", "WorkerCrash", "A training worker process has crashed:\n" + "".join(f"    Local Rank {index} exited with code {code}\n" for index, code in failed)
                elif all(code == 0 for code in codes):
                    state, reason = "completed", ""
                elif hangs:
                    state, reason, message = "faulted", "LogHang_" + hangs[0], f"The job is hanging on the following log monitoring rules: {hangs}"
                if state == "faulted":
                    kill()
            elif state == "stopping":
                kill()
                processes, state, reason, message = [], "ready", "", ""
    kill()
    os._exit(143 if told_to_end.is_set() else 0)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, code, body=None):
        data = json.dumps(body).encode() if body is not None else b""
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path != "/status":
            return self.answer(404)
        with lock:
            said = {"status": state, "transitions": {}, "agent_version": "stand-in", "reason": reason, "message": message, "ipversion": attempt}
        self.answer(200, {name: value for name, value in said.items() if value not in ("", None)})

    def do_POST(self):
        global state, reason, message, attempt, order
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        with lock:
            if self.path == "/start":
                if not all(name in body for name in ("rank", "nnodes", "faultCount", "master_addr", "master_port")):
                    return self.answer(422)
                if state == "ready":
                    state, reason, message = "running", "Running", ""
                order, attempt = body, body["ipVersion"]
            elif self.path == "/stop":
                if state in ("running", "faulted", "completed"):
                    state = "stopping"
            elif self.path == "/shutdown":
                state = "shutdown"
            else:
                return self.answer(404)
        self.answer(200)


def leave(*_):
    told_to_end.set()


signal.signal(signal.SIGTERM, leave)
threading.Thread(target=watch, daemon=True).start()
print("agent ready", flush=True)
sys.stdout.flush()
http.server.ThreadingHTTPServer((options.server_host, options.server_port), Handler).serve_forever()
