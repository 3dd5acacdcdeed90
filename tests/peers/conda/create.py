# SPDX-License-Identifier: Apache-2.0
# Makes an environment from a channel that is a folder, as `conda create` does: create.py CHANNEL PREFIX PACKAGE...    PREFIX/activate.sh activates it.
import asyncio
import sys
import tempfile
from pathlib import Path

import rattler
from rattler.index import index_fs
from rattler.shell import ActivationVariables, Shell, activate

channel, prefix, specs = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]


async def create():
    await index_fs(channel)
    records = await rattler.solve(sources=[channel.absolute().as_uri()], specs=specs, platforms=["linux-64", "noarch"])
    with tempfile.TemporaryDirectory() as cache:
        await rattler.install(records, prefix, cache_dir=Path(cache), show_progress=False)
    print(*sorted(f"{one.name.normalized}-{one.version}" for one in records))


asyncio.run(create())
(prefix / "activate.sh").write_text(activate(prefix, ActivationVariables(), Shell.bash).script)
