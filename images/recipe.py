#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads image recipes and writes image.json, for build.sh.

    recipe.py shell RECIPE_DIR     checks recipe.yaml; prints it as bash assignments (quoted, safe to eval)
    recipe.py metadata ...         prints image.json from the recipe and what the build found out

A recipe is data: unknown keys, wrong types and files that are not there are errors that name the key, so that a typing
mistake never becomes an image that lacks something. Nothing here runs a command or writes a file.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import shlex
import sys

try:
    import yaml
except ImportError:
    sys.exit("the Debian package python3-yaml is missing: apt-get install python3-yaml")

SCHEMA_VERSION = 1
VARIANTS = ("extract", "minbase")
TOP_LEVEL = {
    "name", "tag", "suite", "variant", "disk_gb", "shell", "users", "packages", "dpkg_exclude", "dpkg_include",
    "files", "commands", "checks", "config",
}
CONFIG = {"entrypoint", "cmd", "env", "user", "working_dir"}


class Wrong(Exception):
    """The recipe says something that cannot be built; the text goes to the user as it is."""


def check(fact, why):
    if not fact:
        raise Wrong(why)


def strings(recipe, key, default=()):
    value = recipe.get(key, list(default))
    check(isinstance(value, list) and all(isinstance(item, str) for item in value), f"{key}: must be a list of strings")
    return value


def known_keys(mapping, allowed, where):
    check(isinstance(mapping, dict), f"{where}: must be a mapping")
    unknown = sorted(set(mapping) - allowed)
    check(not unknown, f"{where}: unknown key {', '.join(map(repr, unknown))} (known: {', '.join(sorted(allowed))})")


def load(recipe_dir):
    path = os.path.join(recipe_dir, "recipe.yaml")
    check(os.path.isfile(path), f"no recipe.yaml in {recipe_dir}")
    with open(path, encoding="utf-8") as stream:
        try:
            recipe = yaml.safe_load(stream)
        except yaml.YAMLError as error:
            raise Wrong(f"not YAML: {' '.join(str(error).split())}") from error
    known_keys(recipe, TOP_LEVEL, "recipe")
    for key in ("name", "tag", "suite"):
        check(isinstance(recipe.get(key), str), f"{key}: must be a string (quote numbers)")
        check(re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", recipe[key]), f"{key}: {recipe[key]!r} must match [a-z0-9][a-z0-9._-]*")
    recipe.setdefault("variant", "minbase")
    check(recipe["variant"] in VARIANTS, f"variant: {recipe['variant']!r} is none of {', '.join(VARIANTS)}")
    recipe.setdefault("disk_gb", 1)
    check(isinstance(recipe["disk_gb"], (int, float)) and recipe["disk_gb"] > 0, "disk_gb: must be a number above 0")
    for key in ("packages", "dpkg_exclude", "dpkg_include", "commands", "checks"):
        recipe[key] = strings(recipe, key)
    recipe["shell"] = strings(recipe, "shell", ["/bin/sh", "-euc"])
    for package in recipe["packages"]:
        check(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+(=[^\s,]+)?", package), f"packages: {package!r} is no package name")
    users(recipe)
    files(recipe, recipe_dir)
    config(recipe)
    return recipe


def users(recipe):
    recipe.setdefault("users", [])
    for user in recipe["users"]:
        known_keys(user, {"name", "uid", "home", "comment"}, "users")
        check(re.fullmatch(r"[a-z_][a-z0-9_-]*", str(user.get("name"))), f"users: {user.get('name')!r} is no user name")
        check(isinstance(user.get("uid"), int) and 0 < user["uid"] < 65534, f"users: {user['name']}: uid must be 1..65533")


def files(recipe, recipe_dir):
    recipe.setdefault("files", [])
    check(isinstance(recipe["files"], list), "files: must be a list")
    for file in recipe["files"]:
        known_keys(file, {"source", "target", "mode", "owner"}, "files")
        source, target = file.get("source"), file.get("target")
        check(isinstance(source, str) and ".." not in source.split("/") and not source.startswith("/"),
              f"files: source {source!r} must be a path below the recipe")
        check(os.path.isfile(os.path.join(recipe_dir, source)), f"files: {source} does not exist beside the recipe")
        check(isinstance(target, str) and target.startswith("/") and ".." not in target.split("/"),
              f"files: target {target!r} must be an absolute path")
        check(re.fullmatch(r"0[0-7]{3,4}", str(file.setdefault("mode", "0644"))), f"files: {source}: mode must be like \"0644\", quoted")
        check(re.fullmatch(r"\d+:\d+", str(file.setdefault("owner", "0:0"))), f"files: {source}: owner must be \"uid:gid\"")


def config(recipe):
    settings = recipe.setdefault("config", {})
    known_keys(settings, CONFIG, "config")
    settings["entrypoint"] = strings(settings, "entrypoint")
    settings["cmd"] = strings(settings, "cmd")
    settings["env"] = strings(settings, "env")
    for entry in settings["env"]:
        check(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", entry), f"config.env: {entry!r} must be NAME=value")
    settings.setdefault("user", "0:0")
    settings.setdefault("working_dir", "/")
    check(isinstance(settings["user"], str), "config.user: must be a string like \"0:0\"")
    check(isinstance(settings["working_dir"], str) and settings["working_dir"].startswith("/"), "config.working_dir: must be absolute")


def shell(arguments):
    recipe = load(arguments.recipe_dir)

    def array(name, items):
        print(f"{name}=({' '.join(shlex.quote(item) for item in items)})")

    for key in ("name", "tag", "suite", "variant"):
        print(f"recipe_{key}={shlex.quote(recipe[key])}")
    print(f"recipe_disk_mb={int(recipe['disk_gb'] * 1000)}")
    for key in ("packages", "dpkg_exclude", "dpkg_include", "commands", "checks", "shell"):
        array(f"recipe_{key}", recipe[key])
    array("recipe_users", [f"{u['name']}:{u['uid']}:{u.get('home', '/nonexistent')}:{u.get('comment', u['name'])}" for u in recipe["users"]])
    array("recipe_sources", [f["source"] for f in recipe["files"]])
    array("recipe_targets", [f["target"] for f in recipe["files"]])
    array("recipe_modes", [f["mode"] for f in recipe["files"]])
    array("recipe_owners", [f["owner"] for f in recipe["files"]])


def metadata(arguments):
    recipe = load(arguments.recipe_dir)
    with open(arguments.packages, encoding="utf-8") as stream:
        packages = [dict(zip(("name", "version"), line.split())) for line in sorted(set(stream)) if line.strip()]
    content = json.dumps([recipe, packages], sort_keys=True, separators=(",", ":"))
    print(json.dumps({
        "schema_version": SCHEMA_VERSION,
        "name": recipe["name"],
        "tag": recipe["tag"],
        "architecture": arguments.architecture,
        "checksum": arguments.checksum,
        "digest": "sha256:" + hashlib.sha256(content.encode()).hexdigest(),
        "created": datetime.datetime.fromtimestamp(int(arguments.created), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "build_seconds": int(arguments.build_seconds),
        "size_bytes": int(arguments.size_bytes),
        "file_count": int(arguments.file_count),
        "package_db_sha256": arguments.package_db_sha256,
        "config": recipe["config"],
        "packages": packages,
    }, indent=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_shell = commands.add_parser("shell")
    of_shell.add_argument("recipe_dir")
    of_shell.set_defaults(run=shell)
    of_metadata = commands.add_parser("metadata")
    of_metadata.add_argument("recipe_dir")
    for name in ("packages", "architecture", "checksum", "created", "build-seconds", "size-bytes", "file-count", "package-db-sha256"):
        of_metadata.add_argument(f"--{name}", required=True)
    of_metadata.set_defaults(run=metadata)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except Wrong as wrong:
        sys.exit(f"{os.path.join(arguments.recipe_dir, 'recipe.yaml')}: {wrong}")


if __name__ == "__main__":
    main()
