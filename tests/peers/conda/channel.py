# SPDX-License-Identifier: Apache-2.0
# Makes a channel of packages in conda's format (https://docs.conda.io/projects/conda-build/en/stable/resources/package-spec.html), from nothing but the Python that runs it:
#   channel.py FOLDER
# python: this Python; greeting: a library for any Python, with an entry point; setting: needs greeting, sets a variable on activation, and has a program with the environment's path in it.
import hashlib
import io
import json
import os
import sys
import sysconfig
import tarfile

channel = sys.argv[1]
version = "%d.%d" % sys.version_info[:2]


def package(subdir, name, number, files, links={}, depends=(), entry_points=None, placeholder=None):
    index = {"name": name, "version": number, "build": "0", "build_number": 0, "depends": list(depends), "subdir": subdir, "timestamp": 1700000000000}
    paths = []
    os.makedirs(f"{channel}/{subdir}", exist_ok=True)
    with tarfile.open(f"{channel}/{subdir}/{name}-{number}-0.tar.bz2", "w:bz2", compresslevel=1) as tar:

        def add(path, data, mode=0o644):
            one = tarfile.TarInfo(path)
            one.size, one.mode = len(data), mode
            tar.addfile(one, io.BytesIO(data))

        for path, (data, mode) in files.items():
            entry = {"_path": path, "path_type": "hardlink", "sha256": hashlib.sha256(data).hexdigest(), "size_in_bytes": len(data)}
            if placeholder and placeholder.encode() in data:
                entry |= {"prefix_placeholder": placeholder, "file_mode": "text"}
            paths.append(entry)
            add(path, data, mode)
        for path, (target, data) in links.items():
            paths.append({"_path": path, "path_type": "softlink", "sha256": hashlib.sha256(data).hexdigest(), "size_in_bytes": len(data)})
            one = tarfile.TarInfo(path)
            one.type, one.linkname = tarfile.SYMTYPE, target
            tar.addfile(one)
        if entry_points is not None:
            index["noarch"] = "python"
            add("info/link.json", json.dumps({"noarch": {"type": "python", "entry_points": entry_points}, "package_metadata_version": 1}).encode())
        add("info/index.json", json.dumps(index).encode())
        add("info/paths.json", json.dumps({"paths": paths, "paths_version": 1}).encode())
        add("info/files", "".join(path + "\n" for path in [*files, *links]).encode())


stdlib = sysconfig.get_path("stdlib")
program = open(os.path.realpath(sys.executable), "rb").read()
files = {f"bin/python{version}": (program, 0o755)}
left_out = {"__pycache__", "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "dist-packages", "site-packages", "turtledemo", "pydoc_data"}
for folder, below, names in os.walk(stdlib):
    below[:] = [name for name in below if name not in left_out and not name.startswith("config-")]
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            files[f"lib/python{version}/" + os.path.relpath(path, stdlib)] = (open(path, "rb").read(), 0o644)
# Debian's Python looks into dist-packages alone.
files[f"lib/python{version}/sitecustomize.py"] = (f"import site, sys\nsite.addsitedir(sys.prefix + '/lib/python{version}/site-packages')\n".encode(), 0o644)
package("linux-64", "python", "%d.%d.%d" % sys.version_info[:3], files, links={f"bin/{name}": (f"python{version}", program) for name in ("python", "python3")})

greeting = b"import os, sys\n\n\ndef main():\n    print('hello from', sys.prefix, os.environ.get('GREETING'))\n"
package("noarch", "greeting", "1.0", {"site-packages/greeting.py": (greeting, 0o644)}, depends=["python"], entry_points=["greet = greeting:main"])

elsewhere = "/opt/placeholder_" * 12
package(
    "linux-64",
    "setting",
    "2.0",
    {"etc/conda/activate.d/setting.sh": (b"export GREETING=activated\n", 0o644), "bin/where": (f"#!{elsewhere}/bin/python\nprint('made for {elsewhere}')\n".encode(), 0o755)},
    depends=["greeting >=1.0"],
    placeholder=elsewhere,
)
