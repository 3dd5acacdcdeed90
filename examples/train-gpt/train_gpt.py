#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small character-level transformer on several nodes of a Slurm cluster, and survives losing one.

Started by srun, one process per node: rank and number of processes come from Slurm's environment, the first node of the job is the
meeting point, gradients are averaged with gloo by DistributedDataParallel. The result depends on the seed and the number of
processes alone: batches are drawn from (seed, step, rank), so a run that was cut and resumed sees what an uncut one would have seen.

Checkpoints appear whole or not at all (written aside, synced, renamed). A start with checkpoints in --checkpoint-dir goes on from the
newest readable one. SIGTERM, and the loss of another process, make rank 0 save before leaving.

Prints on rank 0, each line at once:   step   20/800  loss 2.4312  (0.9 s)   and at the end   final loss 1.9876
"""

import argparse
import datetime
import fcntl
import math
import os
import re
import signal
import socket
import struct
import sys
import time
import traceback

# The libraries below read these once, when they are loaded.
THREADS = os.environ.get("SLURM_CPUS_PER_TASK", "1")
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, THREADS)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

KEPT_CHECKPOINTS = 2
VALIDATION_PART = 0.05       # of the text, its end, never trained on
VALIDATION_BATCHES = 8


# ---- the model

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        batch, length, width = x.shape
        query, key, value = self.query_key_value(self.norm_attention(x)).split(width, dim=2)
        query, key, value = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (query, key, value))
        scores = query @ key.transpose(2, 3) / math.sqrt(width / self.heads) + mask[:length, :length]
        mixed = (scores.softmax(dim=3) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.join(mixed)
        return x + self.mlp(self.norm_mlp(x))


class Gpt(nn.Module):
    def __init__(self, symbols, context, width, heads, layers):
        super().__init__()
        self.context = context
        self.symbol = nn.Embedding(symbols, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("join.weight", "mlp.2.weight"))    # these add to the residual stream, once per layer each
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)

    def forward(self, symbols):
        x = self.symbol(symbols) + self.position.weight[: symbols.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def loss_of(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


# ---- the data

class Text:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.symbols = sorted(set(text))
        numbers = {symbol: number for number, symbol in enumerate(self.symbols)}
        encoded = torch.tensor([numbers[symbol] for symbol in text])
        split = int(len(encoded) * (1 - VALIDATION_PART))
        self.train, self.validation = encoded[:split], encoded[split:]

    def decode(self, numbers):
        return "".join(self.symbols[number] for number in numbers)

    def encode(self, text):
        return [self.symbols.index(symbol) for symbol in text if symbol in self.symbols]


def draw_batch(data, size, context, key):
    """The same key gives the same batch, on every machine and after every restart."""
    generator = torch.Generator().manual_seed(key)
    starts = torch.randint(len(data) - context - 1, (size,), generator=generator)
    windows = torch.stack([data[start : start + context + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


# ---- where this process stands in the job

def first_host(node_list):
    """"worker-[3,7-9],login-0" -> "worker-3": the first name of a Slurm host list."""
    first = re.match(r"([^,\[]*)(?:\[([^\]]*)\])?([^,\[]*)", node_list)
    prefix, numbers, suffix = first.groups()
    return prefix + (re.split("[,-]", numbers)[0] if numbers else "") + suffix


class Place:
    def __init__(self):
        env = os.environ
        self.rank = int(env.get("SLURM_PROCID", env.get("RANK", 0)))
        self.size = int(env.get("SLURM_NTASKS", env.get("WORLD_SIZE", 1)))
        self.job = env.get("SLURM_JOB_ID", "local")
        self.restarts = int(env.get("SLURM_RESTART_COUNT", 0))
        nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "127.0.0.1"
        self.nodes = nodes
        self.master = env.get("MASTER_ADDR") or first_host(nodes)
        # Jobs that share a node must not meet at one port; a restarted job may find its old one in TIME_WAIT.
        number = int(self.job) if self.job.isdigit() else 0
        self.port = int(env.get("MASTER_PORT", 20000 + (number * 16 + self.restarts) % 12000))


def address_of(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        packed = fcntl.ioctl(probe, 0x8915, struct.pack("256s", interface.encode()[:15]))   # SIOCGIFADDR
        return socket.inet_ntoa(packed[20:24])


def interface_towards(host, port):
    """gloo would use the address of the own host name, which on many machines is a loopback one that no other node can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))                                                         # sends nothing: asks the routing table
        own = probe.getsockname()[0]
    for _, name in socket.if_nameindex():
        try:
            if address_of(name) == own:
                return "lo" if own.startswith("127.") else name
        except OSError:
            continue                                                                        # an interface without an IPv4 address
    # The route to an own address leads over lo although another interface carries the address.
    return None


def join_job(place, limit_seconds):
    deadline = time.monotonic() + limit_seconds
    while True:                                # the other node's name may appear a moment after its job step starts
        try:
            interface = interface_towards(place.master, place.port)
            break
        except socket.gaierror as error:
            if time.monotonic() > deadline:
                sys.exit(f"rank {place.rank}: cannot resolve {place.master}, the first node of the job: {error}")
            time.sleep(0.5)
    if interface and place.size > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    dist.init_process_group("gloo", init_method=f"tcp://{place.master}:{place.port}", rank=place.rank, world_size=place.size,
                            timeout=datetime.timedelta(seconds=limit_seconds))


# ---- checkpoints

class Checkpoints:
    def __init__(self, directory):
        self.directory = directory

    def paths(self):
        """Newest first."""
        names = [name for name in os.listdir(self.directory) if re.fullmatch(r"step-\d{7}\.pt", name)]
        return [os.path.join(self.directory, name) for name in sorted(names, reverse=True)]

    def save(self, step, state):
        """After a crash at any point the directory holds this checkpoint whole, or the one before."""
        os.makedirs(self.directory, exist_ok=True)
        path = os.path.join(self.directory, f"step-{step:07d}.pt")
        aside = f"{path}.{os.getpid()}.tmp"
        with open(aside, "wb") as file:
            torch.save({"step": step, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(aside, path)
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)                # else the rename itself may be lost
        finally:
            os.close(directory)
        for old in self.paths()[KEPT_CHECKPOINTS:]:
            os.unlink(old)
        return path

    def newest(self, settings):
        """(path, state), or (None, None). A file that cannot be read is passed over for the one before; other settings are an error."""
        if not os.path.isdir(self.directory):
            return None, None
        for name in os.listdir(self.directory):
            if name.endswith(".tmp"):          # of a save that was cut
                os.unlink(os.path.join(self.directory, name))
        for path in self.paths():
            try:
                state = torch.load(path, map_location="cpu")
            except Exception as error:         # torch.load has no common base class for what damaged files cause
                say(f"checkpoint {path} is damaged ({type(error).__name__}), trying the one before")
                continue
            if state["settings"] != settings:
                raise ValueError(f"checkpoint {path} belongs to a run with other settings: give another --checkpoint-dir, or the same options")
            return path, state
        if self.paths():
            say("no checkpoint can be read: starting from the beginning")
        return None, None


# ---- training

def say(text):
    print(text, flush=True)


def learning_rate(step, steps, peak):
    warm_up = min(20, steps // 10 + 1)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


@torch.no_grad()
def validation_loss(model, text, arguments, place):
    """The mean over all ranks, each of which looks at batches of its own."""
    total = torch.zeros(1)
    for number in range(VALIDATION_BATCHES):
        key = arguments.seed * 1_000_003 + 900_000_007 + number * place.size + place.rank
        total += loss_of(model, *draw_batch(text.validation, arguments.batch, arguments.context, key))
    dist.all_reduce(total)
    return total.item() / (VALIDATION_BATCHES * place.size)


@torch.no_grad()
def sample(model, text, prompt, length, seed, temperature=0.7):
    generator = torch.Generator().manual_seed(seed)
    symbols = text.encode(prompt)
    for _ in range(length):
        logits = model(torch.tensor([symbols[-model.context:]]))[0, -1] / temperature
        symbols.append(torch.multinomial(logits.softmax(0), 1, generator=generator).item())
    return text.decode(symbols)


def parse_arguments():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(here, "data", "opticks.txt"))
    parser.add_argument("--checkpoint-dir", help="default: checkpoints/<job id> in the current directory, so a requeued job finds its own")
    parser.add_argument("--checkpoint-every", type=int, default=25, help="steps")
    parser.add_argument("--print-every", type=int, default=20, help="steps")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=24, help="windows per process and step")
    parser.add_argument("--context", type=int, default=64, help="characters")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1704)
    parser.add_argument("--join-seconds", type=int, default=120, help="how long to wait for the other processes, at the start and at each step")
    arguments = parser.parse_args()
    if not os.path.isfile(arguments.data):
        parser.error(f"no text at {arguments.data}")
    return arguments


class Stop:
    """SIGTERM asks for a checkpoint and an early end; the loop looks between steps, when parameters are whole."""
    asked = False

    def __init__(self):
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, *_):
        self.asked = True


def main():
    start = time.monotonic()
    arguments, stop, place = parse_arguments(), Stop(), Place()
    torch.set_num_threads(int(THREADS))
    torch.manual_seed(arguments.seed)
    lead = place.rank == 0
    join_job(place, arguments.join_seconds)

    text = Text(arguments.data)
    model = Gpt(len(text.symbols), arguments.context, arguments.width, arguments.heads, arguments.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    settings = {name: getattr(arguments, name) for name in ("steps", "batch", "context", "width", "heads", "layers", "learning_rate", "seed")}
    settings["processes"], settings["symbols"] = place.size, "".join(text.symbols)
    checkpoints = Checkpoints(arguments.checkpoint_dir or os.path.join("checkpoints", place.job))
    if lead:
        say(f"train-gpt: job {place.job}, {place.size} processes on {place.nodes}, {THREADS} thread(s) each, "
            f"{sum(p.numel() for p in model.parameters())} parameters, {len(text.train)} characters, ready in {time.monotonic() - start:.1f} s")

    # Rank 0 alone decides where to go on and tells the others, so they cannot disagree about what the shared directory holds.
    found = [None, None]                       # state, what is wrong
    if lead:
        try:
            path, found[0] = checkpoints.newest(settings)
            if found[0]:
                say(f"resumed from {path} (step {found[0]['step']})")
        except (OSError, ValueError) as error:
            say(f"train-gpt: {error}")
            found[1] = str(error)
    dist.broadcast_object_list(found, src=0)
    state, wrong = found
    if wrong:
        sys.exit(1)
    first_step = 0
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_step = state["step"]
    replica = nn.parallel.DistributedDataParallel(model)

    def save(step):
        return checkpoints.save(step, {"settings": settings, "model": model.state_dict(), "optimizer": optimizer.state_dict()})

    done, saved = first_step, first_step
    printed_at, since_print = time.monotonic(), []
    try:
        for step in range(first_step, arguments.steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, arguments.steps, arguments.learning_rate)
            key = arguments.seed * 1_000_003 + step * place.size + place.rank
            loss = loss_of(replica, *draw_batch(text.train, arguments.batch, arguments.context, key))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            shared = torch.tensor([loss.item(), float(stop.asked)])
            dist.all_reduce(shared)            # all learn in the same step that one of them was told to stop
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            done = step + 1
            since_print.append(shared[0].item() / place.size)
            if lead and (done % arguments.print_every == 0 or done in (first_step + 1, arguments.steps)):
                now = time.monotonic()
                say(f"step {done:4d}/{arguments.steps}  loss {sum(since_print) / len(since_print):.4f}  ({now - printed_at:.1f} s)")
                printed_at, since_print = now, []
            stopping = shared[1].item() > 0
            if lead and (stopping or done % arguments.checkpoint_every == 0 or done == arguments.steps):
                path, saved = save(done), done
                if stopping:
                    say(f"stopped by SIGTERM after step {done}, saved {path}")
            if stopping:
                dist.barrier()                 # rank 0 has saved: only now may Slurm see a process leave
                sys.exit(128 + signal.SIGTERM)
    except RuntimeError as error:              # gloo: another process is gone or silent; parameters are those of step `done`
        if lead and done > saved:
            say(f"saved {save(done)}")
        sys.exit(f"rank {place.rank}: lost the other processes after step {done}: {str(error).splitlines()[0]}")

    model.eval()
    final = validation_loss(model, text, arguments, place)
    if lead:
        say("")
        say(sample(model, text, "The Rays of Light ", 300, arguments.seed))
        say("")
        say(f"trained {arguments.steps - first_step} steps in {time.monotonic() - start:.1f} s; the loss below is of text kept out of training")
        say(f"final loss {final:.4f}")
    dist.barrier()


def run():
    """Leaves without the interpreter's tidying up: in PyTorch 1.13 the end of gloo's threads can wait for a lock that the main thread
    holds while it waits for them (seen: the process never ends). All that matters has been printed and synced by then."""
    status = 0
    try:
        main()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
