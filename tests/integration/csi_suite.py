#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What csi-sanity does not see of the CSI driver: what is in the volumes, what is refused, and what is left when programs die.

  csi_suite.py --bin DIR --work DIR --kubeconfig FILE [--parts NAME,...] [--seed N] [--kills N]

Starts fairlead-volumes and fairlead-csi in DIR of --work (a pool in DIR/pool, of DIR/pool.img) and speaks to the driver by `fairlead-csi call`; the site has the nodes here and other. Prints a line for
each checked thing; exit status 1 if one failed. Ends its programs; the pool is left to who made the folder. Needs root and a mount namespace of its own.

  csi_suite.py --write FILE --told FILE      the writer that it starts: numbered records, each synced before its number is told
"""
import argparse, contextlib, errno, fcntl, hashlib, json, mmap, os, random, re, shutil, signal, struct, subprocess, sys, threading, time, zlib

GiB, MiB = 1 << 30, 1 << 20
OK, INVALID, LATE, NOT_FOUND, EXISTS, EXHAUSTED, PRECONDITION, ABORTED, RANGE, INTERNAL, UNAVAILABLE = 0, 3, 4, 5, 6, 8, 9, 10, 11, 13, 14
NAMES = {0: "OK", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE", 13: "INTERNAL",
         14: "UNAVAILABLE", -1: "no driver"}
PASSING = (ABORTED, UNAVAILABLE, LATE, -1)  # who gets one of these tries again
PATIENCE = float(os.environ.get("FAIRLEAD_PATIENCE", "2"))
print_lock = threading.Lock()


# --- records ---
MAGIC, HEAD = b"FLRD", struct.Struct(">4sQI")


def record(number):
    size = 16 + number * 7919 % 6000
    payload = (hashlib.sha256(b"%d" % number).digest() * (size // 32 + 1))[:size]
    body = HEAD.pack(MAGIC, number, size) + payload
    return body + struct.pack(">I", zlib.crc32(body))


def write_records(path, told):
    """Until SIGTERM: appends records from 1 on; what is synced is told, a line for each."""
    going = [True]
    signal.signal(signal.SIGTERM, lambda *_: going.clear())
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    log = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    number = 0
    while going:
        number += 1
        data = record(number)
        while data:
            data = data[os.write(out, data):]
        os.fdatasync(out)
        os.write(log, b"%d\n" % number)


class Torn(Exception):
    pass


def read_records(path):
    """The last whole record, and how many bytes come after it. Torn: what comes after it cannot be the beginning of the next one alone."""
    with open(path, "rb") as stream:
        data = stream.read()
    at, last = 0, 0
    while at < len(data):
        wanted = record(last + 1)
        if data[at:at + len(wanted)] != wanted:
            if len(data) - at >= len(wanted):
                raise Torn(f"record {last + 1} at byte {at} is not whole, and {len(data) - at} bytes come from there on")
            break
        at, last = at + len(wanted), last + 1
    return last, len(data) - at


# --- what was checked ---
class Failed(Exception):
    """What follows needs what failed."""


class Report:
    def __init__(self):
        self.part, self.failures, self.checks = "", [], 0

    def good(self, what):
        self.checks += 1
        with print_lock:
            print(f"ok  {self.part}: {what}", flush=True)

    def bad(self, what, wanted, got):
        self.failures.append(f"{self.part}: {what}")
        with print_lock:
            print(f"FAIL {self.part}: {what}\n    | expected: {wanted}\n    | got:      {got}", flush=True)


report = Report()


def check(what, wanted, got, fits=None):
    """One line: `got` is `wanted`, or fits(got) holds."""
    holds = fits(got) if fits else got == wanted
    if holds:
        report.good(what)
    else:
        report.bad(what, wanted, got)
    return holds


def must(what, wanted, got, fits=None):
    """Says nothing if it holds; else the part ends here."""
    if not (fits(got) if fits else got == wanted):
        report.bad(what, wanted, got)
        raise Failed(what)


def wait_until(seconds, what, holds):
    end = time.monotonic() + seconds * PATIENCE
    while not (got := holds()):
        if time.monotonic() > end:
            with print_lock:
                print(f"FAIL not in time: {what}", flush=True)
            report.failures.append(f"{report.part}: not in time: {what}")
            raise Failed(what)
        time.sleep(0.02)
    return got


# --- programs ---
class Program:
    """One of ours, or a writer; ends with this process."""

    def __init__(self, name, argv, ready=None):
        self.argv, self.ready, self.process = argv, ready, None
        self.log = os.path.join(options.work, name + ".log")

    def start(self):
        began = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--"] + self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        if self.ready:
            wait_until(30, f"{os.path.basename(self.argv[0])} says \"{self.ready}\"", lambda: self.alive() and self.ready in self.said(began) or not self.alive() and self.died(began))
        return self

    def said(self, since=0):
        with open(self.log, "rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def died(self, since):
        report.bad(f"{os.path.basename(self.argv[0])} starts", self.ready, self.said(since)[-600:])
        raise Failed("a program ended")

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self, number=signal.SIGKILL):
        if self.alive():
            self.process.send_signal(number)
        if self.process:
            self.process.wait()

    def kill_with_children(self):
        """As the end of a container does."""
        if self.alive():
            os.killpg(self.process.pid, signal.SIGKILL)  # it leads its session
            self.process.wait()


def run(argv, feed=None, fails=False):
    done = subprocess.run(argv, input=feed, capture_output=True, text=True)
    if done.returncode != 0 and not fails:
        raise Failed(f"{' '.join(argv)}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done


class Answer:
    def __init__(self, code, body, words):
        self.code, self.body, self.words = code, body, words

    def __str__(self):
        return f"{self.code} ({NAMES.get(self.code, '?')}) {self.words or json.dumps(self.body)[:300]}"


def call_begin(method, request, seconds=40):
    process = subprocess.Popen([options.bin + "/fairlead-csi", "call", method, "--endpoint", endpoint, "--timeout", str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write(json.dumps(request))
    process.stdin.close()
    process.stdin = None
    return process


def call_end(process):
    out, words = process.communicate()
    words = words.strip()
    if process.returncode == 0:
        return Answer(OK, json.loads(out), "")
    if process.returncode == 3:
        return Answer(json.loads(out)["code"], {}, words)
    if process.returncode == 1:
        return Answer(-1, {}, words)
    raise Failed(f"fairlead-csi call: exit status {process.returncode}: {words}")


def call(method, request, seconds=40):
    return call_end(call_begin(method, request, seconds))


def does(method, request, seconds=40, passing=PASSING):
    """The answer of a call that has to work; what is under way is waited for."""
    end = time.monotonic() + 60 * PATIENCE
    while (answer := call(method, request, seconds)).code in passing and time.monotonic() < end:
        time.sleep(0.05)
    must(f"{method} {json.dumps(request)[:200]}", "OK", str(answer), lambda _: answer.code == OK)
    return answer.body


def refuses(what, code, method, request):
    codes = code if isinstance(code, tuple) else (code,)
    answer = call(method, request)
    return check(what, " or ".join(f"{one} ({NAMES[one]})" for one in codes), str(answer), lambda _: answer.code in codes)


# --- requests ---
def mount(fs="", mode="SINGLE_NODE_WRITER", flags=()):
    return {"mount": {"fs_type": fs, "mount_flags": list(flags)}, "access_mode": {"mode": mode}}


def block(mode="SINGLE_NODE_WRITER"):
    return {"block": {}, "access_mode": {"mode": mode}}


class Volume:
    """One volume of the driver, and where it is on this machine."""

    def __init__(self, name, size=GiB, kind=None, source=None, parameters=None):
        self.kind = kind or mount()
        request = {"name": name, "capacity_range": {"required_bytes": str(size)}, "volume_capabilities": [self.kind]}
        if source:
            request["volume_content_source"] = source
        if options.ceph:
            parameters = {"class": "distributed"} | (parameters or {})
        if parameters:
            request["parameters"] = parameters
        self.id = does("CreateVolume", request)["volume"]["volume_id"]
        self.staging, self.target = f"{options.work}/staging/{self.id}", f"{options.work}/pods/{self.id}/volume"

    def asks(self, **more):
        return {"volume_id": self.id, **more}

    def attach_request(self, node="here", readonly=False):
        return self.asks(node_id=node, volume_capability=self.kind, readonly=readonly)

    def stage_request(self):
        return self.asks(staging_target_path=self.staging, volume_capability=self.kind)

    def publish_request(self, readonly=False):
        return self.asks(staging_target_path=self.staging, target_path=self.target, volume_capability=self.kind, readonly=readonly)

    def attach(self, node="here", readonly=False):
        self.device = does("ControllerPublishVolume", self.attach_request(node, readonly))["publish_context"]["device"]
        return self

    def stage(self):
        does("NodeStageVolume", self.stage_request())
        return self

    def publish(self, readonly=False):
        does("NodePublishVolume", self.publish_request(readonly))
        return self

    def up(self, readonly=False):
        return self.attach(readonly=readonly).stage().publish(readonly)

    def unpublish(self):
        does("NodeUnpublishVolume", self.asks(target_path=self.target))
        return self

    def unstage(self):
        does("NodeUnstageVolume", self.asks(staging_target_path=self.staging))
        return self

    def detach(self, node="here"):
        does("ControllerUnpublishVolume", self.asks(node_id=node))
        return self

    def down(self):
        return self.unpublish().unstage().detach()

    def delete(self):
        does("DeleteVolume", self.asks())

    def path(self, name=""):
        return os.path.join(self.target, name)

    def file(self):
        return f"{pool}/{self.id}.volume"

    def says(self, argv):
        """What a program says of it, which nobody has."""
        if not options.ceph:
            return run(argv + [self.file()], fails=True)
        self.attach()
        done = run(argv + [self.device], fails=True)
        self.detach()
        return done

    def snapshot(self, name):
        return does("CreateSnapshot", {"name": name, "source_volume_id": self.id})["snapshot"]["snapshot_id"]


def of_volume(volume):
    return {"volume": {"volume_id": volume.id}}


def of_snapshot(name):
    return {"snapshot": {"snapshot_id": name}}


# --- what is on disks ---
def content_of(path):
    """A digest of the size, and of each MiB that is not zeros with its place: equal for equal content, and fast where there is little of it. Of a device it is the file behind it, once what the kernel holds for
    later is written."""
    if path.startswith("/dev/"):
        with open(path, "rb") as device:
            fcntl.ioctl(device, 0x1261)  # BLKFLSBUF
        note = f"/sys/block/{os.path.basename(path)}/loop/backing_file"
        behind = get(note).decode().strip() if os.path.exists(note) else ".disk"
        path = path if behind.endswith(".disk") else behind  # what an engine serves, or shows itself, is read by the device alone
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        zeros, total, at = bytes(MiB), hashlib.sha256(b"%d" % size), 0
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA) // MiB * MiB
            except OSError:  # zeros up to the end
                break
            piece = os.pread(fd, MiB, at)
            if piece != zeros[:len(piece)]:
                total.update(b"%d:" % at + hashlib.sha256(piece).digest())
            at += MiB
        return total.hexdigest()
    finally:
        os.close(fd)


def write_at(path, at, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        if at < 0:
            at += os.lseek(fd, 0, os.SEEK_END)
        os.pwrite(fd, data, at)
        os.fsync(fd)
    finally:
        os.close(fd)


def read_at(path, at, size):
    with open(path, "rb") as stream:
        stream.seek(at)
        return stream.read(size)


def error_of(action):
    try:
        action()
        return "no error"
    except OSError as error:
        return error.strerror


def put(path, data):
    with open(path, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def open_folder(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def get(path):
    with open(path, "rb") as stream:
        return stream.read()


def loops():
    """Devices of this machine that show a file of our pool: {ID: size}."""
    out = {}
    for name in os.listdir("/sys/block"):
        try:
            file = get(f"/sys/block/{name}/loop/backing_file").decode().strip()
            size = int(get(f"/sys/block/{name}/size")) * 512
        except OSError:
            continue
        if file.startswith(pool + "/"):
            out.setdefault(os.path.basename(file).removesuffix(".volume"), []).append(size)
        # What an engine serves: ID.POOLID.disk
        elif file.endswith(f".{pool_id()}.disk"):
            out.setdefault(os.path.basename(file).removesuffix(f".{pool_id()}.disk"), []).append(size)
    # What it shows itself, where the kernel has such devices.
    links = "/dev/fairlead-ublk"
    for name in os.listdir(links) if os.path.isdir(links) else []:
        device = os.path.basename(os.readlink(f"{links}/{name}"))
        if name.endswith(f".{pool_id()}.disk") and os.path.exists(f"/sys/block/{device}"):
            out.setdefault(name.removesuffix(f".{pool_id()}.disk"), []).append(int(get(f"/sys/block/{device}/size")) * 512)
    return out


def pool_id():
    if options.ceph:
        return the_pool().get("id", "?")
    return get(f"{pool}/pool.id").decode().strip()


def processes(program, has):
    """Those of that name with these words among their arguments: [(pid, arguments)]."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = get(f"/proc/{pid}/cmdline").decode().split("\0")
        except OSError:
            continue
        if words[0].endswith(program) and has in " ".join(words):
            out.append((int(pid), words))
    return out


def engines():
    """Processes that serve a volume of our pool: {ID: pid}."""
    if options.ceph:
        return {words[words.index("--image") + 1]: pid for pid, words in processes("fairlead-rbd", f"--pool-id {pool_id()}") if words[1] == "serve"}
    return {os.path.basename(words[words.index("--file") + 1]).removesuffix(".volume"): pid for pid, words in processes("fairlead-disk", f"{pool}/")}


def store():
    """The process by which the daemon reaches Ceph; 0: there is none."""
    return next((pid for pid, words in processes("fairlead-rbd", " store ") if options.ceph + "/" in " ".join(words)), 0)


def rbd(*words, fails=False):
    return run(["rbd", "--conf", options.ceph + "/ceph.conf", "--id", "fairlead", "--pool", "volumes", "--namespace", "fairlead", *words], fails=fails)


def pool_sizes():
    """What lies in the pool: {ID.volume or ID.snapshot: bytes}."""
    if not options.ceph:
        return {name: os.path.getsize(f"{pool}/{name}") for name in os.listdir(pool) if name != "pool.id" and not name.startswith("journal")}
    # Ceph lists what is on its way through the trash, too, by the name that it had: it is none of them, and there as long as a client that has died is believed to watch it.
    trashed = [one["name"] for one in json.loads(rbd("trash", "ls", "--all", "--format", "json").stdout)]
    out = {}
    for name in json.loads(rbd("ls", "--format", "json").stdout):
        # Nor is an image that an OSD of Ceph 16 keeps for such a client for ever (ceph/rbd_image.h).
        if name.startswith("fairlead.left."):
            continue
        about = rbd("info", name, "--format", "json", fails=name in trashed)
        if about.returncode == errno.ENOENT:
            continue
        must(f"rbd info {name}", 0, about.returncode)
        mark = rbd("image-meta", "get", name, "fairlead.volume").stdout.split()
        out[f"{name}.{mark[1]}"] = json.loads(about.stdout)["size"]
    return out


def pool_files():
    return sorted(pool_sizes())


def mounted():
    """Mount points below our folder, but the pool's."""
    places = [line.split()[4] for line in get("/proc/self/mountinfo").decode().splitlines()]
    return sorted(one for one in places if one.startswith(options.work + "/") and one != pool)


def objects(kind):
    return json.loads(run([options.bin + "/fairlead", "get", kind, "-o", "json", "--kubeconfig", options.kubeconfig]).stdout)["items"]


def names(kind):
    return sorted(one["metadata"]["name"] for one in objects(kind))


def the_pool():
    return next((one for one in objects("volumepools") if one["metadata"]["name"] == "here"), {}).get("status", {})


def nothing_left(what):
    return check(what, "no objects, files, devices or mounts", {"objects": names("volumes") + names("snapshots") + names("attachments"), "files": pool_files(), "devices": loops(), "mounts": mounted(), "engines": engines()},
                 lambda got: not any(got.values()))


def sweep():
    """Takes away what a part left that failed."""
    for place in sorted(mounted(), reverse=True):
        run(["umount", "-l", place], fails=True)
    for one in objects("attachments"):
        does("ControllerUnpublishVolume", {"volume_id": one["spec"]["volume"]}, passing=(*PASSING, PRECONDITION))
    for name in names("volumes"):
        does("DeleteVolume", {"volume_id": name})
    for name in names("snapshots"):
        does("DeleteSnapshot", {"snapshot_id": name})


class Writer:
    def __init__(self, volume):
        self.file, self.told = volume.path("records"), f"{options.work}/{volume.id}.told"
        if os.path.exists(self.told):
            os.unlink(self.told)
        self.program = Program(f"writer-{volume.id}", [sys.executable, os.path.abspath(__file__), "--write", self.file, "--told", self.told]).start()
        self.goes_on("the writer begins")

    def acknowledged(self):
        try:
            lines = get(self.told).split(b"\n")
        except FileNotFoundError:
            return 0
        return int(lines[-2]) if len(lines) > 1 else 0

    def goes_on(self, what, by=20):
        since = self.acknowledged()
        return wait_until(20, what, lambda: self.acknowledged() >= since + by)

    def stop(self):
        self.program.kill(signal.SIGTERM)
        return self.acknowledged()


# --- parts ---
PARTS = {}


def part(function):
    PARTS[function.__name__] = function
    return function


@part
def content():
    """Copies of a volume that is written to."""
    for fs in ("xfs", "ext4"):
        source = Volume(f"{fs}-source", kind=mount(fs)).up()
        writer = Writer(source)
        copies = []
        for number in range(3):
            writer.goes_on("the writer goes on", 50)
            before = writer.acknowledged()
            if number < 2:
                copies.append((f"snapshot {number}", before, source.snapshot(f"{fs}-snapshot-{number}"), writer.acknowledged()))
            else:
                copies.append(("clone", before, Volume(f"{fs}-clone", kind=mount(fs), source=of_volume(source)), writer.acknowledged()))
        writer.goes_on(f"{fs}: the writer goes on after snapshots and a clone")
        check(f"{fs}: all that the writer was told is synced is there, whole, in the volume itself", "the last acknowledged record, no bytes after it", (writer.stop(), *read_records(writer.file)), lambda got: got[0] == got[1] and got[2] == 0)
        copied = []
        for what, before, made, after in copies:
            copy = made if isinstance(made, Volume) else Volume(f"{fs}-of-{made}", kind=mount(fs), source=of_snapshot(made))
            copied.append(copy.up())
            try:
                last, rest = read_records(copy.path("records"))
                got = f"{last} whole, then {rest} bytes"
            except Torn as error:
                last, got = -1, str(error)
            check(f"{fs}: the {what} of a running writer holds at least what was synced before, and ends with whole records or one that was being written", f"{before} to {after + 1} whole", got, lambda _: before <= last <= after + 1)
        clone = copied[-1]
        put(source.path("mark"), b"source" * 1000)
        put(clone.path("mark"), b"clone" * 2000)
        put(clone.path("records"), b"")
        kept = hashlib.sha256(get(source.path("records"))).hexdigest()
        for one in (source, clone):
            one.down().up()
        check(f"{fs}: detached and attached anew, what was written to a clone is not in its source, nor the other way round", (b"source" * 1000, kept, b"clone" * 2000, b""),
              (get(source.path("mark")), hashlib.sha256(get(source.path("records"))).hexdigest(), get(clone.path("mark")), get(clone.path("records"))))
        if fs == "xfs":
            source.unpublish().unstage()
            quiet = Volume("quiet-clone", kind=mount(fs), source=of_volume(source)).attach()
            with open(source.device, "rb") as one, open(quiet.device, "rb") as two:
                check("a quiet clone is equal by SHA-256 of the whole device", hashlib.file_digest(one, "sha256").hexdigest(), hashlib.file_digest(two, "sha256").hexdigest())
            quiet.detach().delete()
            source.stage().publish()
        for one in [source] + copied:
            one.down()
        fsck = ["xfs_repair", "-n"] if fs == "xfs" else ["e2fsck", "-fn"]
        done = source.says(fsck)
        check(f"{fs}: the file system is without a fault afterwards", 0, (done.returncode, done.stdout[-300:]), lambda got: got[0] == 0)
        for one in [source] + copied:
            one.delete()
        for what, _, made, _ in copies:
            if not isinstance(made, Volume):
                does("DeleteSnapshot", {"snapshot_id": made})
    nothing_left("nothing is left of them")


@part
def second_node():
    volume = Volume("shared").attach()
    refuses("a second node is refused while the first has the volume", PRECONDITION, "ControllerPublishVolume", volume.attach_request("other"))
    refuses("the same node, but read-only: it is there otherwise", EXISTS, "ControllerPublishVolume", volume.attach_request("here", True))
    check("again on the same node: the same device", volume.device, call("ControllerPublishVolume", volume.attach_request()).body.get("publish_context", {}).get("device"))
    refuses("a node that is not there", NOT_FOUND, "ControllerPublishVolume", volume.attach_request("nowhere"))
    listed = [one for one in call("ListVolumes", {}).body["entries"] if one["volume"]["volume_id"] == volume.id]
    check("ListVolumes names the node that has it", ["here"], listed[0]["status"]["published_node_ids"] if listed else listed)
    check("of a node that has it not, it is taken away without a word", OK, call("ControllerUnpublishVolume", volume.asks(node_id="other")).code)
    check("and the one that has it, has it still", ["here"], [one["spec"]["node"] for one in objects("attachments")])
    check("and it is known to be for pods", ["csi"], [one["metadata"].get("labels", {}).get("fairlead.dev/for-pods") for one in objects("attachments")])
    volume.detach()
    volume.attach("other")
    check("after that the other node gets it", ["other"], [one["spec"]["node"] for one in objects("attachments")])
    refuses("and the first is refused", PRECONDITION, "ControllerPublishVolume", volume.attach_request("here"))
    does("ControllerUnpublishVolume", volume.asks())  # of all nodes
    volume.delete()
    nothing_left("nothing is left of it")


@part
def many_readers():
    """What was synced before a snapshot is read by several nodes and pods of each, and nobody writes beside them."""
    for fs in ("xfs", "ext4"):
        source = Volume(f"{fs}-written", kind=mount(fs)).up()
        put(source.path("file"), b"synced")  # it lies in the log alone
        then = source.snapshot(f"{fs}-then")
        reader = Volume(f"{fs}-read", kind=mount(fs, "MULTI_NODE_READER_ONLY"), source=of_snapshot(then)).attach()
        device = reader.device
        reader.attach("other")
        check(f"{fs}: two nodes of a machine share a device", device, reader.device)
        check(f"{fs}: which cannot be written", "1", run(["blockdev", "--getro", device]).stdout.strip())
        writer = {**reader.attach_request("here"), "volume_capability": mount(fs)}
        refuses(f"{fs}: who reads it does not get it for writing", EXISTS, "ControllerPublishVolume", writer)
        reader.stage().publish()
        check(f"{fs}: what was synced before the snapshot is there", b"synced", get(reader.path("file")))
        check(f"{fs}: and is not written to", "Read-only file system", error_of(lambda: put(reader.path("file"), b"spoilt")))
        first, reader.target = reader.target, reader.target + "-2"
        reader.publish()
        check(f"{fs}: a second pod reads it, too", b"synced", get(reader.path("file")))
        reader.unpublish()
        reader.target = first
        reader.detach("other")
        check(f"{fs}: a node that goes takes it from nobody", b"synced", get(reader.path("file")))
        refuses(f"{fs}: a writer waits until all have gone", PRECONDITION, "ControllerPublishVolume", {**writer, "node_id": "other"})
        reader.down()
        reader.kind = mount(fs)
        reader.up()
        put(reader.path("file"), b"written")
        refuses(f"{fs}: readers wait for who writes", PRECONDITION, "ControllerPublishVolume", {**reader.attach_request("other"), "volume_capability": mount(fs, "MULTI_NODE_READER_ONLY")})
        reader.down().delete()
        source.down().delete()
        does("DeleteSnapshot", {"snapshot_id": then})
    nothing_left("nothing is left of them")


def size_of_file_system(place):
    about = os.statvfs(place)
    return about.f_blocks * about.f_frsize


def may_grow_online():
    status = get("/proc/self/status").decode()
    return int(re.search(r"CapEff:\s*(\w+)", status).group(1), 16) >> 24 & 1 == 1  # CAP_SYS_RESOURCE


@part
def growth():
    for fs in ("xfs", "ext4"):
        volume = Volume(f"{fs}-grows", kind=mount(fs)).up()
        writer = Writer(volume)
        before = size_of_file_system(volume.target)
        answer = does("ControllerExpandVolume", volume.asks(capacity_range={"required_bytes": str(3 * GiB)}, volume_capability=volume.kind))
        check(f"{fs}: the volume grows while it is written to, and the node has work to do", (3 * GiB, True), (int(answer["capacity_bytes"]), answer.get("node_expansion_required")))
        check(f"{fs}: its device has grown with it", [3 * GiB], loops().get(volume.id))
        request = volume.asks(volume_path=volume.target, capacity_range={"required_bytes": str(3 * GiB)}, volume_capability=volume.kind, staging_target_path=volume.staging)
        online = fs == "xfs" or may_grow_online()
        answer = call("NodeExpandVolume", request)
        if online:
            check(f"{fs}: NodeExpandVolume grows the file system under the writer", "OK, more than 2.9 GiB", (str(answer), before, size_of_file_system(volume.target)), lambda got: answer.code == OK and got[1] < 1.01 * GiB and got[2] > 2.9 * GiB)
            check(f"{fs}: again, the same", OK, call("NodeExpandVolume", request).code)
        else:
            check(f"{fs}: without CAP_SYS_RESOURCE NodeExpandVolume says that it grows later", "9 (FAILED_PRECONDITION), as large as before", (str(answer), size_of_file_system(volume.target)), lambda got: answer.code == PRECONDITION and got[1] == before)
        writer.goes_on(f"{fs}: the writer goes on")
        check(f"{fs}: no record is lost", "the last acknowledged record, no bytes after it", (told := writer.stop(), *read_records(writer.file)), lambda got: got[0] == got[1] and got[2] == 0)
        volume.unpublish().unstage().stage().publish()
        check(f"{fs}: staged anew it has the new size and all records", ("more than 2.9 GiB", told), (size_of_file_system(volume.target), read_records(writer.file)[0]), lambda got: got[0] > 2.9 * GiB and got[1] == told)
        # Less than a megabyte would hold nothing more; this does.
        does("ControllerExpandVolume", volume.asks(capacity_range={"required_bytes": str(3 * GiB + 32 * MiB)}, volume_capability=volume.kind))
        small = size_of_file_system(volume.target)
        volume.unpublish().unstage().stage().publish()
        check(f"{fs}: one that grew by 32 MiB is larger when it is staged anew", f"more than {small + 16 * MiB}", size_of_file_system(volume.target), lambda got: got > small + 16 * MiB)
        answer = call("ControllerExpandVolume", volume.asks(capacity_range={"required_bytes": str(GiB)}, volume_capability=volume.kind))
        check(f"{fs}: fewer bytes than it has are there already", (OK, 3 * GiB + 32 * MiB), (answer.code, int(answer.body.get("capacity_bytes", 0))))
        refuses(f"{fs}: it does not shrink", RANGE, "ControllerExpandVolume", volume.asks(capacity_range={"required_bytes": str(GiB), "limit_bytes": str(2 * GiB)}, volume_capability=volume.kind))
        check(f"{fs}: nor has it", [3 * GiB + 32 * MiB], loops().get(volume.id))
        refuses(f"{fs}: NodeExpandVolume to more than the device has", RANGE, "NodeExpandVolume", {**request, "capacity_range": {"required_bytes": str(9 * GiB)}})
        volume.down()
        done = volume.says(["xfs_repair", "-n"] if fs == "xfs" else ["e2fsck", "-fn"])
        check(f"{fs}: the file system is without a fault afterwards", 0, (done.returncode, done.stdout[-300:]), lambda got: got[0] == 0)
        snapshot = volume.snapshot(f"{fs}-grown")
        larger = Volume(f"{fs}-larger", 5 * GiB, mount(fs), of_snapshot(snapshot)).up()
        check(f"{fs}: restored into a larger volume it has that one's size and all records", ("more than 4.8 GiB", told), (size_of_file_system(larger.target), read_records(larger.path("records"))[0]), lambda got: got[0] > 4.8 * GiB and got[1] == told)
        larger.down().delete()
        refuses(f"{fs}: restored into fewer bytes: out of range", RANGE, "CreateVolume", {"name": "too-small", "capacity_range": {"required_bytes": str(GiB)}, "volume_capabilities": [mount(fs)], "volume_content_source": of_snapshot(snapshot)})
        does("DeleteSnapshot", {"snapshot_id": snapshot})
        volume.delete()
    detached = Volume("grows-alone")
    does("ControllerExpandVolume", detached.asks(capacity_range={"required_bytes": str(2 * GiB)}))
    check("a volume that nobody has grows, too", 2 * GiB, pool_sizes().get(f"{detached.id}.volume"))
    detached.delete()
    raw = Volume("grows-raw", kind=block()).up()
    answer = does("ControllerExpandVolume", raw.asks(capacity_range={"required_bytes": str(2 * GiB)}, volume_capability=raw.kind))
    check("raw: the node has nothing to do", False, answer.get("node_expansion_required", False))
    answer = call("NodeExpandVolume", raw.asks(volume_path=raw.target, volume_capability=raw.kind))
    check("raw: and says so", (OK, 2 * GiB), (answer.code, int(answer.body.get("capacity_bytes", 0))))
    raw.down().delete()
    nothing_left("nothing is left of them")


@part
def raw_block():
    volume = Volume("raw", kind=block()).up()
    check("a block device is where it was asked for", "a block device of 1 GiB", (os.stat(volume.target).st_mode & 0o170000, int(run(["blockdev", "--getsize64", volume.target]).stdout)), lambda got: got == (0o060000, GiB))
    data = random.Random(options.seed).randbytes(4 * MiB)
    done = subprocess.run(["dd", f"of={volume.target}", "bs=1M", "seek=7", "conv=fsync,notrunc", "iflag=fullblock", "status=none"], input=data, capture_output=True)
    must("dd to the device", b"", done.stderr)
    check("again, it is there", OK, call("NodePublishVolume", volume.publish_request()).code)
    check("once", 1, mounted().count(volume.target))
    stats = call("NodeGetVolumeStats", volume.asks(volume_path=volume.target)).body
    check("its size is told", str(GiB), stats.get("usage", [{}])[0].get("total"))
    volume.down()
    check("the file is gone when it is taken away", False, os.path.lexists(volume.target))
    volume.up()
    check("what was written is read after it was taken away and brought back", True, read_at(volume.target, 7 * MiB, len(data)) == data)
    volume.down()
    volume.attach(readonly=True).stage().publish(readonly=True)
    check("attached read-only: writes are refused", "an error", error_of(lambda: write_at(volume.target, 0, b"no")), lambda got: got != "no error")
    check("and what is there can be read", True, read_at(volume.target, 7 * MiB, len(data)) == data)
    volume.down()
    volume.attach().stage()
    answer = call("NodePublishVolume", volume.publish_request(readonly=True))
    check("attached for writing, published read-only: refused, or writes are", "a refusal, or an error", (str(answer), error_of(lambda: write_at(volume.target, 0, b"no")) if answer.code == OK else "refused"), lambda got: got[1] != "no error")
    check("nothing was written", bytes(2), read_at(volume.device, 0, 2))
    volume.down().delete()

    folder = Volume("folder").up()
    put(folder.path("data"), b"data")
    folder.unpublish()
    answer = call("NodePublishVolume", folder.publish_request(readonly=True))
    check("a mount that is published read-only refuses writes", (OK, "Read-only file system", b"data"), (answer.code, error_of(lambda: put(folder.path("more"), b"no")), get(folder.path("data"))))
    check("another place of it is for writing", "no error", error_of(lambda: put(f"{folder.staging}/more", b"yes")))
    refuses("there it is read-only, and not for writing", EXISTS, "NodePublishVolume", folder.publish_request(readonly=False))
    folder.down()
    folder.attach(readonly=True)
    folder.stage().publish(readonly=True)
    before = content_of(folder.device)
    check("one that is attached read-only refuses writes, and can be read", ("Read-only file system", b"data"), (error_of(lambda: put(folder.path("more"), b"no")), get(folder.path("data"))))
    folder.unpublish()
    folder.unstage()
    check("nor was a byte of it changed", before, content_of(folder.device))
    folder.detach().delete()
    single = Volume("single", kind=mount(mode="SINGLE_NODE_SINGLE_WRITER")).up()
    refuses("one that is for a single pod is refused at a second place", PRECONDITION, "NodePublishVolume", {**single.publish_request(), "target_path": single.target + "-2"})
    single.down().delete()
    nothing_left("nothing is left of them")


def e2fsck_says(device):
    """On a copy: what e2fsck -p would say."""
    copy = f"{options.work}/copy.img"
    run(["cp", "--sparse=always", device, copy])
    status = run(["e2fsck", "-p", copy], fails=True).returncode
    os.unlink(copy)
    return status


@part
def never_formatted():
    def stays(what, volume, code, request=None):
        before = content_of(volume.device)
        answer = call("NodeStageVolume", request or volume.stage_request())
        codes = code if isinstance(code, tuple) else (code,)
        check(f"{what}: refused", " or ".join(NAMES[one] for one in codes), str(answer), lambda _: answer.code in codes)
        if answer.code == OK:
            volume.unstage()
        check(f"{what}: not a byte of the device is changed", before, content_of(volume.device))
        check(f"{what}: nothing is mounted", [], [one for one in mounted() if one.startswith(volume.staging)])

    def fresh(name, fs=None):
        volume = Volume(name, kind=mount(fs or "")).attach()
        if fs:
            volume.stage()
            put(f"{volume.staging}/data", b"data" * 1000)
            volume.unstage()
        return volume

    damaged = fresh("damaged-descriptors", "ext4")
    write_at(damaged.device, 4096, b"\xa5" * 4096)  # the first block group's descriptors, at blocks of 4 KiB
    must("e2fsck -p gives up on the damaged descriptors", "4 or more", e2fsck_says(damaged.device), lambda got: got >= 4)
    stays("ext4 with damaged descriptors", damaged, INTERNAL)
    damaged.detach().delete()

    # Not clean, so that it is looked at whole; a directory's block is garbage.
    damaged = fresh("damaged-folder", "ext4")
    run(["debugfs", "-w", "-R", "set_super_value state 0", damaged.device])
    run(["debugfs", "-w", "-R", "set_inode_field / block[0] 0xffffff", damaged.device])
    run(["debugfs", "-w", "-R", "set_inode_field / mode 0100644", damaged.device])
    status = e2fsck_says(damaged.device)
    must("e2fsck -p gives up on the damaged root folder", "4 or more", status, lambda got: got >= 4)
    stays("ext4 without a root folder", damaged, INTERNAL)
    damaged.detach().delete()

    damaged = fresh("damaged-xfs", "xfs")
    write_at(damaged.device, 0, b"\xa5" * 512)
    stays("xfs with a damaged superblock", damaged, (PRECONDITION, INTERNAL))
    damaged.detach().delete()

    damaged = fresh("damaged-log", "xfs")
    sector = read_at(damaged.device, 0, 512)
    write_at(damaged.device, 512, b"\xa5" * 1024)  # free space and inodes of the first group
    stays("xfs with a damaged first group", damaged, INTERNAL)
    check("xfs: its superblock is there still", sector[:4], read_at(damaged.device, 0, 4))
    damaged.detach().delete()

    for what, at, code in (("the first MiB", 512 * 1024, PRECONDITION), ("the last MiB", -4096, PRECONDITION), ("the first byte", 0, PRECONDITION), ("the last byte", -1, PRECONDITION), ("the middle", 512 * MiB, PRECONDITION)):
        volume = fresh("unknown-data")
        write_at(volume.device, at, b"x" if "byte" in what else b"precious")
        stays(f"data of no known kind in {what}", volume, code)
        volume.detach().delete()

    volume = fresh("partitions")
    write_at(volume.device, 446, struct.pack("<8BII", 0x80, 0, 2, 0, 0x83, 0, 0, 0, 2048, 100000) + bytes(48) + b"\x55\xaa")
    stays("a table of partitions", volume, PRECONDITION)
    volume.detach().delete()
    volume = fresh("encrypted")
    write_at(volume.device, 0, b"LUKS\xba\xbe\x00\x01" + b"aes".ljust(32, b"\0") + b"xts-plain64".ljust(32, b"\0") + b"sha256".ljust(32, b"\0") + struct.pack(">II", 4096, 64) + bytes(52) + struct.pack(">I", 1000) + b"8c4a7bd8-9d0a-4f3c-9e1e-0a4b8a1c2d3e\0\0\0\0")
    stays("a LUKS header", volume, PRECONDITION)
    volume.detach().delete()
    volume = fresh("swap")
    run(["mkswap", volume.device])
    stays("swap space", volume, PRECONDITION)
    volume.detach().delete()

    for fs, other in (("ext4", "xfs"), ("xfs", "ext4")):
        volume = fresh(f"holds-{fs}", fs)
        stays(f"{other} is asked for where {fs} is", volume, PRECONDITION, {**volume.stage_request(), "volume_capability": mount(other)})
        volume.stage()
        check(f"{fs}: what was in it is there", b"data" * 1000, get(f"{volume.staging}/data"))
        volume.unstage().detach()
        # Restored: it comes up as it was, whatever is asked for.
        snapshot = volume.snapshot(f"holds-{fs}-then")
        restored = Volume(f"restored-{fs}", kind=mount(), source=of_snapshot(snapshot)).attach()
        stays(f"{other} is asked for where {fs} was restored", restored, PRECONDITION, {**restored.stage_request(), "volume_capability": mount(other)})
        restored.stage()
        check(f"a restored volume has what its snapshot has ({fs}, no kind asked for)", b"data" * 1000, get(f"{restored.staging}/data"))
        restored.unstage().detach().delete()
        does("DeleteSnapshot", {"snapshot_id": snapshot})
        volume.delete()

    # What a database keeps on a raw device may begin anywhere.
    raw = Volume("raw-source", kind=block()).attach()
    write_at(raw.device, 100 * MiB, b"precious" * 512)
    raw.detach()
    snapshot = raw.snapshot("raw-then")
    restored = Volume("raw-restored", kind=mount(), source=of_snapshot(snapshot)).attach()
    stays("a restored volume with data of no known kind, neither at its beginning nor at its end", restored, PRECONDITION)
    restored.detach().delete()
    does("DeleteSnapshot", {"snapshot_id": snapshot})
    raw.delete()

    volume = fresh("empty")
    volume.detach().attach(readonly=True)
    stays("an empty volume that is attached read-only", volume, PRECONDITION)
    volume.detach().delete()
    nothing_left("nothing is left of them")


@part
def bad_places():
    volume = Volume("places").attach().stage()
    elsewhere = f"{options.work}/elsewhere"
    os.makedirs(elsewhere, exist_ok=True)
    os.makedirs(f"{options.work}/pods", exist_ok=True)
    link, dangling = f"{options.work}/pods/link", f"{options.work}/pods/dangling"
    os.symlink(elsewhere, link)
    os.symlink(f"{options.work}/not-there", dangling)
    places = {"a link to a folder": link, "a link to nothing": dangling, "a relative path": "pods/x", "a path with ..": f"{options.work}/pods/../elsewhere/x", "an empty path": ""}
    for what, place in places.items():
        refuses(f"NodePublishVolume at {what}", INVALID, "NodePublishVolume", {**volume.publish_request(), "target_path": place})
        refuses(f"NodeUnpublishVolume at {what}", INVALID, "NodeUnpublishVolume", volume.asks(target_path=place))
        refuses(f"NodeStageVolume at {what}", INVALID, "NodeStageVolume", {**volume.stage_request(), "staging_target_path": place})
        refuses(f"NodeUnstageVolume at {what}", INVALID, "NodeUnstageVolume", volume.asks(staging_target_path=place))
        refuses(f"NodeGetVolumeStats at {what}", (INVALID, NOT_FOUND), "NodeGetVolumeStats", volume.asks(volume_path=place))
        refuses(f"NodeExpandVolume at {what}", (INVALID, NOT_FOUND), "NodeExpandVolume", volume.asks(volume_path=place))
    raw = Volume("places-raw", kind=block()).attach().stage()
    for what, place in places.items():
        refuses(f"a device at {what}", INVALID, "NodePublishVolume", {**raw.publish_request(), "target_path": place})
    check("nothing was made or mounted where the links lead", ([], False, [volume.staging]), (os.listdir(elsewhere), os.path.lexists(f"{options.work}/not-there"), mounted()))
    refuses("a staging place where the volume is not staged", PRECONDITION, "NodePublishVolume", {**volume.publish_request(), "staging_target_path": elsewhere})
    # What is not ours is neither hidden nor taken away.
    busy = f"{options.work}/pods/full"
    os.makedirs(busy)
    put(f"{busy}/theirs", b"theirs")
    answer = call("NodeUnpublishVolume", volume.asks(target_path=busy))
    check("a folder with something in it is not removed", ("refused", b"theirs"), ("refused" if answer.code != OK else "OK", get(f"{busy}/theirs")))
    run(["mount", "-t", "tmpfs", "theirs", elsewhere])
    refuses("a place where something else is mounted", (INTERNAL, PRECONDITION, EXISTS), "NodePublishVolume", {**volume.publish_request(), "target_path": elsewhere})
    refuses("a staging place where something else is mounted", (INTERNAL, PRECONDITION, EXISTS), "NodeStageVolume", {**volume.stage_request(), "staging_target_path": elsewhere})
    run(["umount", elsewhere])
    volume.unstage()
    raw.unstage().detach().delete()
    os.unlink(link), os.unlink(dangling)

    # Foreign devices.
    put_data = b"of the volume"
    volume.stage()
    put(f"{volume.staging}/data", put_data)
    volume.unstage().detach()
    refuses("a volume that is not attached is not staged", PRECONDITION, "NodeStageVolume", volume.stage_request())
    refuses("nor published", PRECONDITION, "NodePublishVolume", volume.publish_request())
    refuses("a volume that is not there is not staged", (NOT_FOUND, PRECONDITION), "NodeStageVolume", {**volume.stage_request(), "volume_id": "not-there"})
    foreign = f"{options.work}/foreign"
    os.makedirs(foreign)
    for what, name in (("under another name", "copy.img"), ("under a name that ends like it", f"x{volume.id}.volume"), ("under its name, in another folder", f"{volume.id}.volume")):
        copy = f"{foreign}/{name}"
        run(["cp", "--sparse=always", volume.file(), copy])
        device = run(["losetup", "--find", "--show", copy]).stdout.strip()
        try:
            before = content_of(device)
            answer = call("NodeStageVolume", volume.stage_request())
            check(f"a foreign device on a copy {what} is not taken for a volume that is not attached", "9 (FAILED_PRECONDITION)", str(answer), lambda _: answer.code == PRECONDITION)
            if answer.code == OK:
                volume.unstage()
            volume.attach()
            answer = call("NodeStageVolume", volume.stage_request())
            at = os.stat(volume.staging).st_dev if answer.code == OK else None
            check(f"with a foreign device on a copy {what} the volume's own is staged, or none", "its own", (str(answer), at), lambda got: got[1] is None or got[1] == os.stat(volume.device).st_rdev)
            volume.unstage().detach()
            check(f"the copy {what} is as it was", before, content_of(device))
        finally:
            run(["umount", volume.staging], fails=True)
            run(["losetup", "--detach", device])
            os.unlink(copy)
    volume.attach().stage()
    refuses("a volume that is mounted is not detached", (PRECONDITION, ABORTED), "ControllerUnpublishVolume", volume.asks(node_id="here"))
    check("and goes on", put_data, get(f"{volume.staging}/data"))
    volume.unstage()
    # The daemon looks again a second later; until then it is told what was found last.
    began = time.monotonic()
    does("ControllerUnpublishVolume", volume.asks(node_id="here"), passing=(*PASSING, PRECONDITION))
    check("once it is unmounted it is detached within 5 s", "5 s", round(time.monotonic() - began, 1), lambda got: got <= 5 * PATIENCE)
    volume.delete()
    nothing_left("nothing is left of them")


@part
def requests():
    volume = Volume("asked").attach().stage().publish()
    create = {"name": "wanted", "capacity_range": {"required_bytes": str(GiB)}, "volume_capabilities": [mount()]}
    places = {"staging_target_path": volume.staging, "target_path": volume.target}
    whole = {
        "CreateVolume": (create, ["name", "volume_capabilities"]),
        "DeleteVolume": (volume.asks(), ["volume_id"]),
        "ControllerPublishVolume": (volume.attach_request(), ["volume_id", "node_id", "volume_capability"]),
        "ControllerUnpublishVolume": (volume.asks(node_id="here"), ["volume_id"]),
        "ValidateVolumeCapabilities": (volume.asks(volume_capabilities=[mount()]), ["volume_id", "volume_capabilities"]),
        "ControllerGetVolume": (volume.asks(), ["volume_id"]),
        "ControllerModifyVolume": (volume.asks(mutable_parameters={"tagSpecification_1": "a=b"}), ["volume_id", "mutable_parameters"]),
        "CreateSnapshot": ({"name": "then", "source_volume_id": volume.id}, ["name", "source_volume_id"]),
        "DeleteSnapshot": ({"snapshot_id": "then"}, ["snapshot_id"]),
        "GetSnapshot": ({"snapshot_id": "then"}, ["snapshot_id"]),
        "ControllerExpandVolume": (volume.asks(capacity_range={"required_bytes": str(GiB)}), ["volume_id", "capacity_range"]),
        "NodeStageVolume": (volume.stage_request(), ["volume_id", "staging_target_path", "volume_capability"]),
        "NodeUnstageVolume": (volume.asks(staging_target_path=volume.staging), ["volume_id", "staging_target_path"]),
        "NodePublishVolume": (volume.publish_request(), ["volume_id", "target_path", "volume_capability"]),
        "NodeUnpublishVolume": (volume.asks(target_path=volume.target), ["volume_id", "target_path"]),
        "NodeGetVolumeStats": (volume.asks(volume_path=volume.target), ["volume_id", "volume_path"]),
        "NodeExpandVolume": (volume.asks(volume_path=volume.target), ["volume_id", "volume_path"]),
    }
    for method, (request, fields) in whole.items():
        for field in fields:
            refuses(f"{method} without {field}", INVALID, method, {key: value for key, value in request.items() if key != field})
    refuses("NodePublishVolume without staging_target_path", PRECONDITION, "NodePublishVolume", {key: value for key, value in volume.publish_request().items() if key != "staging_target_path"})
    for what, capability in (("without access_mode", {"mount": {}}), ("with neither block nor mount", {"access_mode": {"mode": "SINGLE_NODE_WRITER"}}), ("with the mode UNKNOWN", mount(mode="UNKNOWN")), ("with a mode of which nobody has heard", mount(mode=99)),
                             ("with fs_type btrfs", mount("btrfs")), ("with fs_type ../ext4", mount("../ext4")), ("with two mount flags in one", mount(flags=["ro,remount"])), ("with an option for a flag", mount(flags=["-o"])),
                             *((f"with {mode}", mount(mode=mode)) for mode in ("MULTI_NODE_SINGLE_WRITER", "MULTI_NODE_MULTI_WRITER")), ("with MULTI_NODE_MULTI_WRITER, as a block device", block("MULTI_NODE_MULTI_WRITER"))):
        refuses(f"CreateVolume: a capability {what}", INVALID, "CreateVolume", {**create, "volume_capabilities": [capability]})
        refuses(f"CreateVolume: a good capability and one {what}", INVALID, "CreateVolume", {**create, "volume_capabilities": [mount(), capability]})
        refuses(f"ControllerPublishVolume: a capability {what}", INVALID, "ControllerPublishVolume", {**volume.attach_request(), "volume_capability": capability})
        refuses(f"NodeStageVolume: a capability {what}", INVALID, "NodeStageVolume", {**volume.stage_request(), "volume_capability": capability})
        refuses(f"NodePublishVolume: a capability {what}", INVALID, "NodePublishVolume", {**volume.publish_request(), "volume_capability": capability})
        answer = call("ValidateVolumeCapabilities", volume.asks(volume_capabilities=[capability]))
        check(f"ValidateVolumeCapabilities: one {what} is not confirmed", "no confirmation", str(answer), lambda _: "confirmed" not in answer.body)

    refuses("CreateVolume: for many readers, and made of nothing", INVALID, "CreateVolume", {**create, "volume_capabilities": [mount(mode="MULTI_NODE_READER_ONLY")]})

    for method in ("CreateVolume", "CreateSnapshot"):
        base = create if method == "CreateVolume" else {"source_volume_id": volume.id}
        what, field, drop = ("volume", "volume_id", "DeleteVolume") if method == "CreateVolume" else ("snapshot", "snapshot_id", "DeleteSnapshot")
        for said, name in (("128 characters", "n" * 128), ("128 bytes in 64 characters", "ü" * 64), ("a path", "../../" + "x" * 20), ("capital letters and blanks", "My Volume")):
            first, second = call(method, {**base, "name": name}), call(method, {**base, "name": name})
            ids = [one.body.get(what, {}).get(field) for one in (first, second)]
            check(f"{method}: a name of {said}: one {what}, and the same when asked again", "OK, OK, an id", (str(first), str(second)), lambda _: first.code == second.code == OK and ids[0] == ids[1] and re.fullmatch("[a-z0-9-]{1,63}", ids[0]))
            if ids[0]:
                check(f"{method}: it goes", OK, call(drop, {field: ids[0]}).code)
        for said, name in (("129 characters", "n" * 129), ("130 bytes in 65 characters", "ü" * 65), ("a line feed", "a\nb"), ("a zero", "a\0b"), ("DEL", "a\x7fb"), ("an escape", "\x1b[31m")):
            refuses(f"{method}: a name with {said}", INVALID, method, {**base, "name": name})

    largest = (1 << 63) - 1
    for what, code, required, limit in (("none, of either", INVALID, 0, 0), ("negative bytes", INVALID, -1, 0), ("a negative limit", INVALID, 0, -1), ("negative bytes within a limit", INVALID, -GiB, GiB), ("more than the limit", INVALID, 2 * GiB, GiB), ("2^63-1 bytes", RANGE, largest, 0),
                                        ("2^63-1 bytes and the same limit", RANGE, largest, largest), ("2^63-4096 bytes", RANGE, largest - 4095, 0), ("1 GiB and 1 byte exactly", RANGE, GiB + 1, GiB + 1), ("between two MiB", RANGE, GiB + 1, GiB + 4096), ("a limit below the least", RANGE, 0, MiB), ("65 TiB", RANGE, 65 << 40, 0)):
        size = {"required_bytes": str(required), "limit_bytes": str(limit)}
        refuses(f"CreateVolume: {what}", code, "CreateVolume", {**create, "name": "odd-size", "capacity_range": size})
        refuses(f"ControllerExpandVolume: {what}", code, "ControllerExpandVolume", volume.asks(capacity_range=size))
    for what, required, limit, size in (("limit and required the same", GiB, GiB, GiB), ("a limit alone", 0, 5 * GiB, GiB), ("1 byte", 1, 0, GiB), ("1 GiB and 1 byte", GiB + 1, 0, GiB + MiB), ("1 GiB and 1 byte, up to the next MiB", GiB + 1, GiB + MiB, GiB + MiB)):
        answer = call("CreateVolume", {**create, "name": "good-size", "capacity_range": {"required_bytes": str(required), "limit_bytes": str(limit)}})
        got = int(answer.body.get("volume", {}).get("capacity_bytes", 0))
        check(f"CreateVolume: {what}", (OK, size), (answer.code, got))
        check(f"CreateVolume: {what}: so large is the file", size, os.path.getsize(f"{pool}/good-size.volume"))
        does("DeleteVolume", {"volume_id": "good-size"})
    answer = call("CreateVolume", {key: value for key, value in create.items() if key != "capacity_range"})
    check("CreateVolume: without a size: the least", (OK, str(GiB)), (answer.code, answer.body.get("volume", {}).get("capacity_bytes")))
    refuses("CreateVolume: the same name, another size", EXISTS, "CreateVolume", {**create, "capacity_range": {"required_bytes": str(2 * GiB)}})
    refuses("CreateVolume: the same name, another source", EXISTS, "CreateVolume", {**create, "volume_content_source": of_volume(volume)})
    does("DeleteVolume", {"volume_id": "wanted"})
    check("CreateVolume: more than the pool has", "OUT_OF_RANGE or RESOURCE_EXHAUSTED", str(answer := call("CreateVolume", {**create, "capacity_range": {"required_bytes": str(60 << 40)}})), lambda _: answer.code in (RANGE, EXHAUSTED))

    for method, field in (("CreateVolume", "parameters"), ("CreateSnapshot", "parameters"), ("CreateVolume", "mutable_parameters"), ("ControllerModifyVolume", "mutable_parameters")):
        base = {"CreateVolume": create, "CreateSnapshot": {"name": "then", "source_volume_id": volume.id}, "ControllerModifyVolume": volume.asks()}[method]
        refuses(f"{method}: {field} of which nobody has heard", INVALID, method, {**base, field: {"speed": "warp"}})
    for what, field, value in (("another class", "parameters", {"class": "gp3"}), ("a pool that is no name", "parameters", {"pool": "../here"}), ("iops of a class that limits nothing", "parameters", {"class": "local-fast", "iops": "3000"}), ("a tag without a value's sign", "mutable_parameters", {"tagSpecification_1": "owner"})):
        refuses(f"CreateVolume: {what}", INVALID, "CreateVolume", {**create, field: value})
    refuses("CreateVolume: a pool that is not there", (EXHAUSTED, NOT_FOUND, INVALID), "CreateVolume", {**create, "parameters": {"pool": "nowhere"}})
    refuses("CreateVolume: where no pool is", EXHAUSTED, "CreateVolume", {**create, "accessibility_requirements": {"requisite": [{"segments": {"topology.fairlead.dev/pool": "nowhere"}}]}})
    refuses("CreateVolume: of a volume that is not there", NOT_FOUND, "CreateVolume", {**create, "volume_content_source": {"volume": {"volume_id": "not-there"}}})
    refuses("CreateVolume: of a snapshot that is not there", NOT_FOUND, "CreateVolume", {**create, "volume_content_source": of_snapshot("not-there")})
    refuses("CreateVolume: of a source that says nothing", INVALID, "CreateVolume", {**create, "volume_content_source": {}})

    gone = {"volume_id": "not-there"}
    for method, request in (("ControllerPublishVolume", {**volume.attach_request(), **gone}), ("ValidateVolumeCapabilities", {**gone, "volume_capabilities": [mount()]}), ("ControllerExpandVolume", {**gone, "capacity_range": {"required_bytes": str(GiB)}}), ("ControllerGetVolume", gone),
                            ("ControllerModifyVolume", {**gone, "mutable_parameters": {"tagSpecification_1": "a=b"}}), ("NodeGetVolumeStats", {**gone, "volume_path": volume.target}), ("NodeExpandVolume", {**gone, "volume_path": volume.target}), ("CreateSnapshot", {"name": "then", "source_volume_id": "not-there"}),
                            ("GetSnapshot", {"snapshot_id": "not-there"})):
        refuses(f"{method} of what is not there", NOT_FOUND, method, request)
        odd = {key: "../etc/passwd" if value == "not-there" else value for key, value in request.items()}
        refuses(f"{method} of what is no name of ours", NOT_FOUND, method, odd)
    for method, field in (("DeleteVolume", "volume_id"), ("ControllerUnpublishVolume", "volume_id"), ("DeleteSnapshot", "snapshot_id")):
        check(f"{method} of what is not there is done already", [OK, OK], [call(method, {field: name}).code for name in ("not-there", "../etc/passwd")])
    refuses("DeleteVolume of one that is in use", PRECONDITION, "DeleteVolume", volume.asks())
    check("which goes on", "no error", error_of(lambda: put(volume.path("data"), b"data")))

    snapshot = volume.snapshot("then")
    check("CreateSnapshot again: the same", snapshot, volume.snapshot("then"))
    other = Volume("other-source")
    refuses("CreateSnapshot: the same name, of another volume", EXISTS, "CreateSnapshot", {"name": "then", "source_volume_id": other.id})
    for method in ("ListVolumes", "ListSnapshots"):
        for token in ("nonsense", "after:", "after:../x", "1", "after:\n"):
            refuses(f"{method} from the token {json.dumps(token)}", ABORTED, method, {"starting_token": token})
        refuses(f"{method}: a negative number of entries", INVALID, method, {"max_entries": -1})
    volume.snapshot("then-2"), volume.snapshot("then-3")
    seen, token = [], ""
    while True:
        body = call("ListSnapshots", {"max_entries": 2, "starting_token": token}).body
        seen.append(sorted(one["snapshot"]["snapshot_id"] for one in body.get("entries", [])))
        if not (token := body.get("next_token", "")) or len(seen) > 5:
            break
        if len(seen) == 1:
            does("DeleteSnapshot", {"snapshot_id": seen[0][-1]})  # the one that the token names
    check("ListSnapshots by pages of two, though the one in the token went meanwhile", [["then", "then-2"], ["then-3"]], seen)
    for name in ("then", "then-3"):
        does("DeleteSnapshot", {"snapshot_id": name})
    other.delete()
    volume.down().delete()
    nothing_left("nothing is left of them, nor of what was refused")


@part
def at_once():
    def eight(method, request, of):
        answers = [call_end(one) for one in [call_begin(method, request) for _ in range(8)]]
        check(f"{method}, 8 times at once: done or ABORTED", "codes 0 and 10, one 0 at least", sorted(one.code for one in answers), lambda got: set(got) <= {OK, ABORTED} and OK in got)
        return {of(one.body) for one in answers if one.code == OK} | {of(does(method, request))}

    create = {"name": "at-once", "capacity_range": {"required_bytes": str(GiB)}, "volume_capabilities": [mount()]}
    for _ in range(2):
        ids = eight("CreateVolume", create, lambda body: body["volume"]["volume_id"])
        check("one volume comes of it", ({"at-once"}, ["at-once"], ["at-once.volume"]), (ids, names("volumes"), pool_files()))
        attach = {"volume_id": "at-once", "node_id": "here", "volume_capability": mount()}
        devices = eight("ControllerPublishVolume", attach, lambda body: body["publish_context"]["device"])
        check("one device comes of it", (1, {"at-once": [GiB]}), (len(devices), loops()))
        staging = f"{options.work}/staging/at-once"
        eight("NodeStageVolume", {"volume_id": "at-once", "staging_target_path": staging, "volume_capability": mount()}, str)
        check("one mount comes of it", [staging], mounted())
        eight("NodeUnstageVolume", {"volume_id": "at-once", "staging_target_path": staging}, str)
        eight("ControllerUnpublishVolume", {"volume_id": "at-once", "node_id": "here"}, str)
        snapshots = eight("CreateSnapshot", {"name": "at-once-then", "source_volume_id": "at-once"}, lambda body: body["snapshot"]["snapshot_id"])
        check("one snapshot comes of it", {"at-once-then"}, snapshots)
        eight("DeleteSnapshot", {"snapshot_id": "at-once-then"}, str)
        eight("DeleteVolume", {"volume_id": "at-once"}, str)
    # Two nodes want one volume at the same time.
    volume = Volume("at-once")
    answers = [call_end(one) for one in [call_begin("ControllerPublishVolume", volume.attach_request(node)) for node in ("here", "other") * 4]]
    nodes = {one["spec"]["node"] for one in objects("attachments")}
    check("two nodes at once: one gets it", "one node", (sorted(one.code for one in answers), nodes), lambda got: set(got[0]) <= {OK, PRECONDITION, ABORTED} and OK in got[0] and len(nodes) == 1)
    does("ControllerUnpublishVolume", volume.asks())
    volume.delete()
    nothing_left("nothing is left of them")


class Load:
    """Reads of 4 KiB at random places of a device, by many at once, past every cache."""

    def __init__(self, device, size):
        self.device, self.size, self.done, self.errors, self.going = device, size, 0, [], True
        self.threads = [threading.Thread(target=self.go, args=(one,)) for one in range(8)]
        for one in self.threads:
            one.start()

    def go(self, seed):
        rng, room = random.Random(seed), mmap.mmap(-1, 4096)
        fd = os.open(self.device, os.O_RDONLY | os.O_DIRECT)
        try:
            while self.going:
                os.preadv(fd, [room], rng.randrange(self.size // 4096) * 4096)
                self.done += 1
        except OSError as error:
            self.errors.append(repr(error))
        finally:
            os.close(fd)

    def rate(self, seconds):
        done, began = self.done, time.monotonic()
        time.sleep(seconds)
        return (self.done - done) / (time.monotonic() - began)

    def stop(self):
        self.going = False
        for one in self.threads:
            one.join()


@part
def limits():
    """Volumes that are held to limits, by an engine of their own."""
    plain = Volume("plain")
    refuses("iops of a class that limits nothing", INVALID, "ControllerModifyVolume", plain.asks(mutable_parameters={"iops": "3000"}))
    plain.delete()
    for what, parameters in (("too few operations", {"iops": "99"}), ("no number", {"iops": "many"}), ("a throughput that is none", {"throughput": "-5"})):
        refuses(what, INVALID, "CreateVolume", {"name": "no", "capacity_range": {"required_bytes": str(GiB)}, "volume_capabilities": [mount()], "parameters": {"class": "local-managed", **parameters}})
    volume = Volume("held", kind=block(), parameters={"class": "local-managed", "iops": "300"}).attach()
    load = Load(volume.device, GiB)
    try:
        def held_to(what, wanted):
            time.sleep(0.5)
            rates = []
            for _ in range(8):  # of a machine that has other things to do
                rates.append(load.rate(2))
                if abs(rates[-1] - wanted) <= wanted * 0.05:
                    break
            check(f"{what}: {wanted} operations a second, within 5 %", wanted, rates, lambda got: abs(got[-1] - wanted) <= wanted * 0.05)

        held_to("from its storage class", 300)
        began = time.monotonic()
        does("ControllerModifyVolume", volume.asks(mutable_parameters={"iops": "600"}))
        took = time.monotonic() - began
        held_to("changed while it is read", 600)
        does("ControllerModifyVolume", volume.asks(mutable_parameters={"iops": "0", "throughput": "1"}))
        held_to("by bytes", 256)
        does("ControllerModifyVolume", volume.asks(mutable_parameters={"throughput": "0"}))
        time.sleep(0.5)
        check("without limits", "more than 700", load.rate(2), lambda got: got > 700)
        # The daemon dies: the limits are the engine's.
        does("ControllerModifyVolume", volume.asks(mutable_parameters={"iops": "500"}))
        volumes.kill()
        held_to("while there is no daemon", 500)
        volumes.start()
        does("ControllerModifyVolume", volume.asks(mutable_parameters={"iops": "400"}))
        held_to("by a daemon that was started anew", 400)
    finally:
        load.stop()
    check("no read failed", [], load.errors)
    with print_lock:
        print(f"    a change of limits was answered after {took * 1000:.0f} ms", flush=True)
    volume.detach()
    check("the engine ends with the attachment", {}, engines())
    volume.delete()
    # An engine that dies: told, and made anew once nobody uses the device.
    volume = Volume("mortal", parameters={"class": "local-managed"}).up()
    put(volume.path("data"), b"synced")
    os.kill(engines()["mortal"], signal.SIGKILL)
    wait_until(20, "the volume says that its engine has ended", lambda: "engine has ended" in next(one for one in objects("volumes") if one["metadata"]["name"] == "mortal")["status"].get("message", ""))
    volume.unpublish().unstage()
    wait_until(20, "it is attached anew", lambda: "mortal" in engines() and "mortal" in loops())  # the device comes after the engine
    volume.stage().publish()
    check("what was synced is there", b"synced", get(volume.path("data")))
    grown = does("ControllerExpandVolume", volume.asks(capacity_range={"required_bytes": str(2 * GiB)}))
    check("it grows", str(2 * GiB), grown["capacity_bytes"])
    check("its device, too", {"mortal": [2 * GiB]}, loops())
    volume.down().delete()
    nothing_left("nothing is left of them")


@part
def encryption():
    """Volumes whose data lies on disk encrypted, by a key that a Secret opens."""
    for what, parameters in (("a class that encrypts nothing", {"class": "local-fast", "encrypted": "true"}), ("a key without encryption", {"class": "local-managed", "key": "mine"}), ("neither true nor false", {"class": "local-managed", "encrypted": "yes"})):
        refuses(what, INVALID, "CreateVolume", {"name": "no", "capacity_range": {"required_bytes": str(GiB)}, "volume_capabilities": [mount()], "parameters": parameters})
    text = b"what nobody but its owner is to read " * 100
    encrypted = {"class": "local-managed", "encrypted": "true"}
    volume = Volume("secret", kind=mount("xfs"), parameters=encrypted).up()
    put(volume.path("data"), text)
    snapshot = volume.snapshot("secret-then")
    put(volume.path("more"), text)
    for name in ("secret.volume", "secret-then.snapshot"):
        with open(f"{pool}/{name}", "rb") as stream:
            found = any(b"nobody but its owner" in block for block in iter(lambda: stream.read(16 * MiB), b""))
            stream.seek(0)
            check(f"{name}: a LUKS header, and nothing of the text", (b"LUKS\xba\xbe", False), (stream.read(6), found))
    check("its key is told", "service", next(one for one in objects("volumes"))["status"].get("key"))
    grown = does("ControllerExpandVolume", volume.asks(capacity_range={"required_bytes": str(2 * GiB)}))
    does("NodeExpandVolume", volume.asks(volume_path=volume.target))
    check("it grows", (str(2 * GiB), {"secret": [2 * GiB]}), (grown["capacity_bytes"], loops()))
    restored = Volume("restored", kind=mount("xfs"), source=of_snapshot(snapshot), parameters=encrypted).up()
    check("its snapshot holds what it held then", (text, False), (get(restored.path("data")), os.path.exists(restored.path("more"))))
    restored.down().delete()
    secret = lambda more: run([options.bin + "/fairlead", "apply", "-f", "-", "--kubeconfig", options.kubeconfig], json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "service", "namespace": "fairlead-volume-keys", "annotations": more}}))
    secret({"fairlead.dev/disabled": "true"})
    check("what is open goes on when its key is disabled", text, get(volume.path("more")))
    volumes.kill(), volumes.start()
    volume.down()
    refuses("without its key it is not attached", (PRECONDITION, ABORTED), "ControllerPublishVolume", volume.attach_request())
    # The one before may be on its way out.
    wait_until(20, "and why is told", lambda: "key service is disabled" in call("ControllerPublishVolume", volume.attach_request()).words)
    does("ControllerUnpublishVolume", volume.asks(node_id="here"))
    secret({})
    volume.up()
    # A new version wraps what is attached and what is not, and then the first is of no use to anybody.
    run([options.bin + "/fairlead", "volume", "rotate-key", "--kubeconfig", options.kubeconfig])
    wrapped = lambda name: json.loads(run(["cryptsetup", "--disable-locks", "token", "export", "--token-id", "1", f"{pool}/{name}"], fails=True).stdout or "{}").get("version")
    wait_until(90, "volume and snapshot are wrapped by the new version", lambda: [wrapped(one) for one in ("secret.volume", "secret-then.snapshot")] == ["2", "2"])
    volume.down().up()
    check("with its key it is", text, get(volume.path("more")))
    volume.down().delete()
    does("DeleteSnapshot", {"snapshot_id": snapshot})
    nothing_left("nothing is left of them")


class Lives:
    """Random operations, each repeated until it succeeds, and what they should come to."""

    def __init__(self, seed):
        self.rng, self.volumes, self.snapshots, self.made = random.Random(seed), {}, {}, 0
        self.done, self.answers, self.error, self.going, self.begun = {}, {}, None, True, threading.Event()
        self.ended, self.known, self.torn = {}, {}, None  # by volume: how often its engine was killed, and of how many we know

    def does(self, method, request, body=None):
        end = time.monotonic() + 60 * PATIENCE
        while True:
            # Mostly it waits until there is a driver: gRPC itself looks for one a second later only.
            while not driver.alive() and self.going and self.rng.random() < 0.98:
                time.sleep(0.02)
            process = call_begin(method, request, 20)
            self.begun.set()
            answer = call_end(process)
            if answer.code == OK:
                return answer.body
            if answer.code not in PASSING and not (answer.code == PRECONDITION and "engine" in answer.words):
                raise Failed(f"{method} {json.dumps(request)}: {answer}")
            self.answers[answer.code] = self.answers.get(answer.code, 0) + 1
            if time.monotonic() > end:
                raise Failed(f"not in time: {method} {json.dumps(request)}: {answer}")
            time.sleep(0.02)

    def step(self):
        free = [name for name, one in self.volumes.items() if not one["node"]]
        used = [name for name, one in self.volumes.items() if one["node"] == "here"]
        many = list(self.volumes)
        kinds = {"create": len(many) < 8, "clone": free and len(many) < 8, "restore": self.snapshots and len(many) < 8, "delete": free and len(many) > 3, "snapshot": many and len(self.snapshots) < 6, "drop": self.snapshots, "attach": free, "detach": [n for n in many if n not in free],
                 "grow": many, "use": used, "use again": used, "limit": [n for n in many if self.volumes[n]["managed"]]}
        kind = self.rng.choice(sorted(name for name, can in kinds.items() if can))
        pick = lambda of: self.rng.choice(sorted(of))
        self.now = kind
        if kind in ("create", "clone", "restore"):
            self.made += 1
            name, source, has = f"v{self.made}", None, {"size": GiB, "data": None}
            if kind == "clone":
                of = pick(free)
                source, has = {"volume": {"volume_id": of}}, self.volumes[of]
            elif kind == "restore":
                of = pick(self.snapshots)
                source, has = of_snapshot(of), self.snapshots[of]
            size = has["size"] + self.rng.choice((0, 0, 512 * MiB))
            request = {"name": name, "capacity_range": {"required_bytes": str(size)}, "volume_capabilities": [mount()]}
            if source:
                request["volume_content_source"] = source
            # A copy is as encrypted as what it is of.
            of_encrypted = has.get("encrypted", False)
            managed = bool(options.ceph) or of_encrypted or self.rng.random() < 0.5
            if managed:
                request["parameters"] = {"class": "distributed" if options.ceph else "local-managed", "encrypted": "true" if of_encrypted or (source is None and self.rng.random() < 0.5) else "false"}
            body = self.does("CreateVolume", request)
            if int(body["volume"]["capacity_bytes"]) != size:
                raise Failed(f"{name} has {body['volume']['capacity_bytes']} bytes, and not {size}")
            self.volumes[name] = {"size": size, "data": has["data"], "node": "", "source": source, "managed": managed, "iops": None, "encrypted": request.get("parameters", {}).get("encrypted") == "true"}
        elif kind == "delete":
            name = pick(free)
            self.does("DeleteVolume", {"volume_id": name})
            del self.volumes[name]
        elif kind == "snapshot":
            name, of = f"s{self.made}-{self.rng.randrange(1 << 30)}", pick(many)
            self.does("CreateSnapshot", {"name": name, "source_volume_id": of})
            self.snapshots[name] = {key: self.volumes[of][key] for key in ("size", "data", "encrypted")} | {"of": of}
        elif kind == "drop":
            name = pick(self.snapshots)
            self.does("DeleteSnapshot", {"snapshot_id": name})
            del self.snapshots[name]
        elif kind == "attach":
            name, node = pick(free), self.rng.choice(("here", "here", "other"))
            self.does("ControllerPublishVolume", {"volume_id": name, "node_id": node, "volume_capability": mount()})
            self.volumes[name]["node"] = node
        elif kind == "detach":
            name = pick(n for n in many if n not in free)
            self.does("ControllerUnpublishVolume", {"volume_id": name, "node_id": self.volumes[name]["node"]})
            self.volumes[name]["node"] = ""
        elif kind == "grow":
            name = pick(many)
            size = self.volumes[name]["size"] + self.rng.choice((1, 100, 700)) * MiB
            self.does("ControllerExpandVolume", {"volume_id": name, "capacity_range": {"required_bytes": str(size)}})
            self.volumes[name]["size"] = size
        elif kind == "limit":
            name, iops = pick(n for n in many if self.volumes[n]["managed"]), self.rng.choice((0, 5000, 20000))
            self.does("ControllerModifyVolume", {"volume_id": name, "mutable_parameters": {"iops": str(iops)}})
            self.volumes[name]["iops"] = iops or None
        else:
            self.use(pick(used))
        self.done[kind] = self.done.get(kind, 0) + 1

    def use(self, name):
        """As often as its engine is killed meanwhile: what was written last may be there then, or not."""
        may_be = {self.volumes[name]["data"]}
        while True:
            try:
                return self.use_once(name, may_be)
            except (Failed, OSError):
                if self.torn or self.ended.get(name, 0) == self.known.get(name, 0):
                    raise
            self.known[name] = self.ended[name]
            self.does("NodeUnpublishVolume", {"volume_id": name, "target_path": f"{options.work}/pods/{name}/volume"})
            self.does("NodeUnstageVolume", {"volume_id": name, "staging_target_path": f"{options.work}/staging/{name}"})
            wait_until(20, f"{name} is attached anew", lambda: name in engines() and len(loops().get(name, [])) == 1)

    def use_once(self, name, may_be):
        """Mounts it, and looks whether what is in it is what was written; then something new."""
        one, staging, target = self.volumes[name], f"{options.work}/staging/{name}", f"{options.work}/pods/{name}/volume"
        base = {"volume_id": name, "staging_target_path": staging, "volume_capability": mount()}
        self.does("NodeStageVolume", base)
        self.does("NodePublishVolume", {**base, "target_path": target})
        file = f"{target}/data"
        try:
            there = get(file).decode()
        except FileNotFoundError:  # any other error says nothing of what is there
            there = None
        if there not in may_be:
            self.torn = f"in {name} there is {there!r}, and not one of {may_be!r}"
            raise Failed(self.torn)
        may_be.clear()
        token = f"{name} {self.rng.randrange(1 << 60)}"
        may_be.update((there, token))
        put(file + ".new", token.encode())
        os.replace(file + ".new", file)
        with open_folder(target) as folder:
            os.fsync(folder)
        self.does("NodeUnpublishVolume", {"volume_id": name, "target_path": target})
        self.does("NodeUnstageVolume", {"volume_id": name, "staging_target_path": staging})
        one["data"] = token

    def go(self):
        try:
            while self.going:
                self.step()
        except Exception as error:  # told by who waits for this thread
            self.error = f"{self.now}: {error}"

    def wrong(self):
        """What differs from what it should be, by place."""
        out = {}

        def differ(what, wanted, got):
            if wanted != got:
                out[what] = {"wanted": wanted, "got": got}

        differ("volumes", {name: one["size"] for name, one in self.volumes.items()}, {one["metadata"]["name"]: one["status"].get("sizeBytes") for one in objects("volumes")})
        differ("phases", {name: "InUse" if one["node"] else "Available" for name, one in self.volumes.items()}, {one["metadata"]["name"]: one["status"].get("phase") for one in objects("volumes")})
        differ("snapshots", {name: (one["of"], one["size"], "Ready") for name, one in self.snapshots.items()}, {one["metadata"]["name"]: (one["spec"]["volume"], one["status"].get("sizeBytes"), one["status"].get("phase")) for one in objects("snapshots")})
        differ("attachments", {name: one["node"] for name, one in self.volumes.items() if one["node"]}, {one["spec"]["volume"]: one["spec"]["node"] for one in objects("attachments")})
        differ("files", sorted([f"{name}.volume" for name in self.volumes] + [f"{name}.snapshot" for name in self.snapshots]), pool_files())
        header = lambda one: MiB if one["encrypted"] else 0
        differ("sizes of files", {f"{name}.volume": one["size"] + header(one) for name, one in self.volumes.items()} | {f"{name}.snapshot": one["size"] + header(one) for name, one in self.snapshots.items()}, pool_sizes())
        differ("devices", {name: [one["size"]] for name, one in self.volumes.items() if one["node"]}, loops())
        differ("engines", sorted(name for name, one in self.volumes.items() if one["node"] and one["managed"]), sorted(engines()))
        differ("limits", {name: one["iops"] for name, one in self.volumes.items()}, {one["metadata"]["name"]: one["status"].get("iops") for one in objects("volumes")})
        differ("mounts", [], mounted())
        status = the_pool()
        differ("orphans", None, status.get("orphans"))
        differ("counts of the pool", (len(self.volumes), len(self.snapshots)), (status.get("volumes"), status.get("snapshots")))
        return out


@part
def kills():
    """kill -9 of the pool's daemon, of the driver and of volumes' engines while all kinds of operations are under way."""
    lives, rng = Lives(options.seed), random.Random(options.seed + 1)
    thread = threading.Thread(target=lives.go)
    thread.start()
    killed = {"volumes": 0, "driver": 0, "engine": 0, "store": 0}
    try:
        # A loaded machine gets less done between two kills, so the kills wait for the operations.
        end = time.monotonic() + 300 * PATIENCE
        behind = lambda slack: sum(lives.done.values()) * 2 + slack <= sum(killed.values()) and not lives.error and time.monotonic() < end
        while sum(killed.values()) < options.kills and not lives.error:
            while behind(6):
                time.sleep(0.05)
            # Mostly in the middle of a call: it begins after some 12 ms, and lasts some 10 more.
            lives.begun.clear()
            lives.begun.wait(1)
            time.sleep(rng.choice((rng.uniform(0.012, 0.03), rng.uniform(0.012, 0.03), rng.uniform(0, 0.1))))
            which = rng.choice(("volumes", "driver", "driver", "both", "engine") + (("store", "store") if options.ceph else ()))
            with contextlib.suppress(ProcessLookupError):  # it came to its own end since it was seen
                if which == "store" and (pid := store()):
                    os.kill(pid, signal.SIGKILL)
                    killed["store"] += 1
                if which == "engine" and (there := engines()):
                    name = rng.choice(sorted(there))
                    lives.ended[name] = lives.ended.get(name, 0) + 1
                    os.kill(there[name], signal.SIGKILL)
                    killed["engine"] += 1
            for name, program in (("volumes", volumes), ("driver", driver)):
                if which in (name, "both"):
                    program.kill()
                    killed[name] += 1
            time.sleep(rng.choice((0, 0, 0.3)) * rng.random())
            for program in (driver, volumes):
                if not program.alive():
                    program.start()
                    # So that operations come to an end as well.
                    time.sleep(rng.choice((0, 0.1, 0.3)) * rng.random())
        while behind(0):
            time.sleep(0.05)
    finally:
        lives.going = False
        for program in (volumes, driver):
            if not program.alive():
                program.start()
        thread.join()
    with print_lock:
        print(f"    seed {options.seed}, killed {killed}, operations {sum(lives.done.values())} {lives.done}, answers {dict((NAMES.get(code), number) for code, number in lives.answers.items())}", flush=True)
    must(what := "each operation came to its end, and what is in the volumes is what was written", None, lives.error)
    report.good(what)
    check(f"{options.kills} kills, and half as many operations at least", "half as many", (sum(killed.values()), sum(lives.done.values())), lambda got: got[0] >= options.kills and got[1] * 2 > got[0])
    # What the pool tells of itself is a second old.
    end = time.monotonic() + 10 * PATIENCE
    while (wrong := lives.wrong()) and time.monotonic() < end:
        time.sleep(0.3)
    must(what := "objects, files, devices and the pool's own numbers are what the model says", {}, wrong)
    report.good(what)
    for name, one in sorted(lives.volumes.items()):
        if one["node"]:
            lives.does("ControllerUnpublishVolume", {"volume_id": name})
        lives.does("ControllerPublishVolume", {"volume_id": name, "node_id": "here", "volume_capability": mount()})
        try:
            lives.use(name)
        except Failed as error:
            check(f"content of {name}", "what was written", str(error))
        lives.does("ControllerUnpublishVolume", {"volume_id": name})
        lives.does("DeleteVolume", {"volume_id": name})
    for name in sorted(lives.snapshots):
        lives.does("DeleteSnapshot", {"snapshot_id": name})
    nothing_left("all of them hold what was written, and nothing is left of them")


@part
def killed_formatting():
    """kill -9 of the driver while it formats: by itself, so that mkfs goes on and ends; with mkfs, as when a container or the power goes."""
    rng = random.Random(options.seed)
    for fs in ("ext4", "xfs"):
        for how, kill in (("alone", driver.kill), ("with mkfs", driver.kill_with_children)):
            stuck, broken, cut = [], [], 0
            for turn in range(8):
                volume = Volume(f"formats-{turn}", kind=mount(fs)).attach()
                began = os.path.getsize(driver.log)
                process = call_begin("NodeStageVolume", volume.stage_request())
                while process.poll() is None and "is formatted" not in driver.said(began):
                    time.sleep(0.001)  # it takes some 20 ms only
                time.sleep(rng.uniform(0, 0.02))
                kill()
                cut += call_end(process).code != OK
                driver.start()
                end = time.monotonic() + 1.5 * PATIENCE
                while (answer := call("NodeStageVolume", volume.stage_request())).code != OK and time.monotonic() < end and len(stuck) < 2:
                    time.sleep(0.05)
                if answer.code != OK:
                    stuck.append(str(answer))
                else:
                    put(f"{volume.staging}/data", b"data" * 1000)
                    volume.unstage().stage()
                    if get(f"{volume.staging}/data") != b"data" * 1000 or size_of_file_system(volume.staging) < 0.9 * GiB:
                        broken.append("not what was written")
                    volume.unstage()
                    done = run(["xfs_repair", "-n", volume.device] if fs == "xfs" else ["e2fsck", "-fn", volume.device], fails=True)
                    if done.returncode != 0:
                        broken.append(done.stdout[-300:])
                volume.detach().delete()
            check(f"{fs}: the driver is killed {how} while it formats ({cut} of 8 calls were cut): the same call again comes to the same end", "8 of 8", stuck or "8 of 8")
            check(f"{fs}: killed {how}: what is made then holds what is written, without a fault", [], broken)
    nothing_left("nothing is left of them")


@part
def away():
    volume = Volume("goes-on", kind=mount("xfs")).up()
    writer = Writer(volume)
    second = subprocess.run(volumes.argv, capture_output=True, text=True, timeout=30)
    check("a second daemon on the same pool is refused", "an error that says so", (second.returncode, second.stderr[-300:]), lambda got: got[0] not in (0, None) and "another process" in got[1])
    second = subprocess.run(driver.argv, capture_output=True, text=True, timeout=30)
    check("a second driver on the same socket is refused", "an error that says so", (second.returncode, second.stderr[-300:]), lambda got: got[0] not in (0, None) and "another driver" in got[1])
    check("the first ones go on", ("OK", True, True), ("OK" if call("Probe", {}).body.get("ready") else "not ready", driver.alive(), volumes.alive()))
    Volume("asked-meanwhile").delete()
    volumes.kill()
    began = time.monotonic()
    create = {"name": "late", "capacity_range": {"required_bytes": str(GiB)}, "volume_capabilities": [mount()]}
    answer = call("CreateVolume", create)
    took = time.monotonic() - began
    check("without its daemon CreateVolume answers within 15 s that it goes on later", "10 or 14", (str(answer), round(took, 1)), lambda got: answer.code in (ABORTED, UNAVAILABLE) and took < 15)
    writer.goes_on("input and output go on without the daemon", 50)
    report.good("input and output go on without the daemon")
    check("what is mounted is unpublished and published without it", [OK, OK], [call("NodeUnpublishVolume", volume.asks(target_path=volume.target + "-2")).code, call("NodePublishVolume", {**volume.publish_request(), "target_path": volume.target + "-2"}).code])
    does("NodeUnpublishVolume", volume.asks(target_path=volume.target + "-2"))
    driver.kill()
    writer.goes_on("input and output go on without the driver", 50)
    report.good("input and output go on without the driver")
    driver.start()
    volumes.start()
    check("once it is back the same call gets its volume", "late", does("CreateVolume", create)["volume"]["volume_id"])
    check("one volume", ["goes-on", "late"], names("volumes"))
    check("the writer lost nothing", "the last acknowledged record, no bytes after it", (writer.stop(), *read_records(writer.file)), lambda got: got[0] == got[1] and got[2] == 0)
    check("the driver knows what is mounted", OK, call("NodePublishVolume", volume.publish_request()).code)
    volume.down().delete()
    does("DeleteVolume", {"volume_id": "late"})
    nothing_left("nothing is left of them")


@part
def registration():
    """What a kubelet asks a driver on its node."""
    folder, socket = f"{options.work}/plugins_registry", f"{options.work}/plugins_registry/csi.fairlead.dev-reg.sock"
    argv = [options.bin + "/fairlead-csi", "serve", "--endpoint", f"unix://{options.work}/node.sock", "--node", "here", "--pool", "here"]
    for what, more, words in (("a folder that is not there", ["--register", folder + "/none"], "folder"), ("a folder that is no absolute path", ["--register", "plugins"], "absolute"), ("a wrong socket for the kubelet", ["--seen-as", "tcp://1.2.3.4:5"], "--seen-as")):
        done = subprocess.run(argv + more, capture_output=True, text=True, timeout=30)
        check(f"{what} is refused", f"an error with \"{words}\"", (done.returncode, done.stderr[-300:]), lambda got, words=words: got[0] in (1, 2) and words in got[1])
    os.makedirs(folder, exist_ok=True)
    enrolled = Program("enrolled", argv + ["--register", folder, "--seen-as", "/var/lib/kubelet/plugins/csi.fairlead.dev/csi.sock"], "the kubelet may ask").start()

    def asks(method, request):
        return run([options.bin + "/fairlead-csi", "call", method, "--endpoint", "unix://" + socket], json.dumps(request)).stdout

    check("the kubelet is told of the driver", {"type": "CSIPlugin", "name": "csi.fairlead.dev", "endpoint": "/var/lib/kubelet/plugins/csi.fairlead.dev/csi.sock", "supported_versions": ["1.12.0"]}, json.loads(asks("Registration/GetInfo", {})))
    check("root alone asks", "0o600", oct(os.stat(socket).st_mode & 0o777 & ~0o100))
    asks("NotifyRegistrationStatus", {"plugin_registered": False, "error": "no such version"})
    check("what the kubelet refuses is told", "no such version", enrolled.said(), lambda said: "no such version" in said and enrolled.alive())
    asks("NotifyRegistrationStatus", {"plugin_registered": True})
    check("so is that it was taken", "the kubelet knows the driver", enrolled.said(), lambda said: "the kubelet knows the driver" in said)
    second = subprocess.run(argv[:3] + [f"unix://{options.work}/other.sock"] + argv[4:] + ["--register", folder], capture_output=True, text=True, timeout=30)
    check("a second driver is not registered in its place", "an error that says so", (second.returncode, second.stderr[-300:]), lambda got: got[0] == 1 and "another driver" in got[1])
    enrolled.kill()
    enrolled.start()
    check("after a death it is there again", "csi.fairlead.dev", json.loads(asks("Registration/GetInfo", {}))["name"])
    enrolled.kill(signal.SIGTERM)
    check("one that stops takes its socket away", (False, 0), (os.path.exists(socket), enrolled.process.returncode))


def main():
    global pool, endpoint, volumes, driver
    pool, endpoint = f"{options.work}/pool", f"unix://{options.work}/csi.sock"
    for name in ("staging", "pods"):
        os.makedirs(f"{options.work}/{name}", exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    there = ["--ceph-pool", "volumes", "--ceph-conf", options.ceph + "/ceph.conf", "--size", "200Gi"] if options.ceph else ["--image", pool + ".img", "--size", "200Gi", "--sparse"]
    volumes = Program("volumes", [options.bin + "/fairlead-volumes", "run", "--folder", pool, *there, "--name", "here", "--nodes", "!nosuch", "--metrics", "off", "--kubeconfig", options.kubeconfig], "serving a pool")
    driver = Program("driver", [options.bin + "/fairlead-csi", "serve", "--endpoint", endpoint, "--controller", "--node", "here", "--pool", "here", "--kubeconfig", options.kubeconfig], "serving CSI")
    wanted = options.parts.split(",") if options.parts else ["content", "second_node", "many_readers", "growth", "raw_block", "kills"] if options.ceph else list(PARTS)
    times = {}
    try:
        report.part = "set up"
        volumes.start(), driver.start()
        wait_until(30, "the pool offers room", lambda: int(call("GetCapacity", {}).body.get("available_capacity", 0)) > 0)
        for name in wanted:
            report.part, began = name, time.monotonic()
            try:
                PARTS[name]()
            except (Failed, OSError, Torn, KeyError) as error:
                if f"{name}: {error}" not in report.failures:
                    report.bad("it could not go on", "no error", repr(error))
                for program in (volumes, driver):
                    if not program.alive():
                        program.start()
                sweep()
            times[name] = round(time.monotonic() - began, 1)
    except Failed as error:
        print(f"FAIL {report.part}: {error}", flush=True)
        report.failures.append(str(error))
    finally:
        for program in (driver, volumes):
            program.kill(signal.SIGTERM)
    print(f"    seconds: {times}; {report.checks} checks", flush=True)
    for one in report.failures:
        print(f"    failed: {one}", flush=True)
    return 1 if report.failures else 0


parser = argparse.ArgumentParser()
parser.add_argument("--bin"), parser.add_argument("--work"), parser.add_argument("--kubeconfig"), parser.add_argument("--parts", default="")
parser.add_argument("--seed", type=int, default=1), parser.add_argument("--kills", type=int, default=40)
parser.add_argument("--ceph", default="", help="the folder of a Ceph (tests/ceph_lib.sh): the pool is in that, and PARTS are those that know it")
parser.add_argument("--write"), parser.add_argument("--told")
options = parser.parse_args()
if options.write:
    write_records(options.write, options.told)
else:
    sys.exit(main())
