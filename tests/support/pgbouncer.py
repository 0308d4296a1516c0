"""A PgBouncer in front of an embedded Postgres, for the length of a block."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from app.base.embedded_postgres import OWNER, EmbeddedPostgres

START_S = 10.0


def version() -> tuple[int, int] | None:
    """Return the version of the PgBouncer on PATH; None where there is none."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    assert found, said
    return int(found[1]), int(found[2])


@contextlib.contextmanager
def pgbouncer(folder: Path, postgres: EmbeddedPostgres, **settings: object) -> Iterator[str]:
    """Run one with these settings; give the address of the database behind it."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert program is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        **settings,
    }
    path = folder / f"pgbouncer-{port}.ini"
    database = f"plangate = host={postgres.socket_dir} port={postgres.port} user={OWNER}"
    path.write_text(
        f"[databases]\n{database}\n[pgbouncer]\n"
        + "".join(f"{name} = {value}\n" for name, value in lines.items())
    )
    path.chmod(0o644)
    account = os.stat(postgres.socket_dir)  # it refuses to be root, and Postgres lets this account log in
    same = os.geteuid() == account.st_uid
    with path.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [program, str(path)],
            stdout=log,
            stderr=log,
            user=None if same else account.st_uid,
            group=None if same else account.st_gid,
            extra_groups=None if same else [],
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, path.with_suffix(".log").read_text()
            assert time.monotonic() < deadline, "PgBouncer does not listen"
            time.sleep(0.02)
        yield f"postgresql://plangate@127.0.0.1:{port}/plangate"
    finally:
        process.terminate()
        process.wait(10)
