#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A receiver of notifications on loopback, for tests: webhooks and SNS-style documents by HTTP, mail by SMTP in the clear.

  notify_receiver.py FOLDER KEY [--fail N] [--http-port P] [--smtp-port P]

FOLDER/ports gets "HTTP SMTP". Each POST is a line of JSON in FOLDER/posts: path, status answered, id, whether its signature fits KEY, type, head, oldState, newState. The first N posts of a
path are answered 503. Each mail is a line in FOLDER/mails: recipient, id, subject.
"""
import argparse, base64, hashlib, hmac, http.server, json, os, re, socketserver, threading

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("key")
parser.add_argument("--fail", type=int, default=0)
parser.add_argument("--http-port", type=int, default=0)
parser.add_argument("--smtp-port", type=int, default=0)
options = parser.parse_args()
lock = threading.Lock()
seen = {}


def tell(name, record):
    with lock, open(os.path.join(options.folder, name), "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")


class Posts(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        with lock:
            seen[self.path] = seen.get(self.path, 0) + 1
            status = 503 if seen[self.path] <= options.fail else 204
        document = json.loads(body)
        event = json.loads(document["Message"]) if "Message" in document else document
        signed = f"{self.headers.get('webhook-id')}.{self.headers.get('webhook-timestamp')}.{body}"
        wanted = "v1," + base64.b64encode(hmac.new(options.key.encode(), signed.encode(), hashlib.sha256).digest()).decode()
        record = {"path": self.path, "status": status, "signed": self.headers.get("webhook-signature") == wanted}
        record.update({key: event.get(key) for key in ("id", "type", "head", "oldState", "newState")})
        tell("posts", record)
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


class Mails(socketserver.StreamRequestHandler):
    def handle(self):
        self.say("220 localhost ESMTP")
        recipient = ""
        while line := self.rfile.readline().decode().strip():
            word = line.upper()
            if word.startswith("RCPT TO:"):
                recipient = line[9:-1]
            if word == "DATA":
                self.say("354 go on")
                text = ""
                while (piece := self.rfile.readline().decode()) not in (".\r\n", ""):
                    text += piece
                found = lambda name: (re.search(rf"^{name}: (.*?)\r$", text, re.M) or ["", ""])[1]
                tell("mails", {"to": recipient, "id": found("X-Fairlead-Event-Id"), "subject": found("Subject")})
            self.say("221 bye" if word == "QUIT" else "250 ok")
            if word == "QUIT":
                return

    def say(self, line):
        self.wfile.write((line + "\r\n").encode())


class MailServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


posts = http.server.ThreadingHTTPServer(("127.0.0.1", options.http_port), Posts)
mails = MailServer(("127.0.0.1", options.smtp_port), Mails)
threading.Thread(target=mails.serve_forever, daemon=True).start()
with open(os.path.join(options.folder, "ports.new"), "w", encoding="utf-8") as stream:
    stream.write(f"{posts.server_port} {mails.server_address[1]}\n")
os.rename(os.path.join(options.folder, "ports.new"), os.path.join(options.folder, "ports"))
posts.serve_forever()
