"""The TypeScript client, built from the API document and its sources: `python -m tests.support.typescript`.

It is built again only if one of these has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys

from tests.support.programs import FOLDER, ROOT, nodes, npm_program

PACKAGE = ROOT / "sdk" / "typescript"
COMPILED = PACKAGE / "tests" / "compiled"
STAMP = PACKAGE / "dist" / ".built"


def build() -> None:
    """Build `dist` and the compiled tests if their sources have changed. Raise SystemExit with what is wrong."""
    with (FOLDER / "typescript-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _digest()
        if STAMP.exists() and STAMP.read_text() == wanted:
            return
        modules, link = npm_program("typescript")[1], PACKAGE / "node_modules"
        if link.is_symlink() or not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(modules)
        done = subprocess.run(
            [nodes()[0], "build.mjs"], cwd=PACKAGE, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"sdk/typescript cannot be built:\n{done.stdout}{done.stderr}")
        STAMP.write_text(wanted)


def _digest() -> str:
    files = sorted(
        path
        for folder in (PACKAGE, PACKAGE / "src", PACKAGE / "tests", PACKAGE / "example")
        for path in (*folder.glob("*.ts"), *folder.glob("*.json"), *folder.glob("*.mjs"))
        if path.is_file()
    )
    hashed = hashlib.sha256((ROOT / "openapi" / "openapi.json").read_bytes())
    for path in files:
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()


if __name__ == "__main__":
    build()
    sys.exit(0)
