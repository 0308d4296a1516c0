"""An nginx with a configuration of docs/operations.md, for the length of a block."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
START_S = 10.0
MAIN = """\
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/published.conf;
}}
"""


def program() -> str:
    """Return the nginx on PATH. Raise FileNotFoundError if there is none."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise FileNotFoundError(
            "There is no nginx on PATH. Install it, on Debian and Ubuntu with: apt-get install nginx-light"
        )
    return found


def published(title: str) -> str:
    """Return the configuration of docs/operations.md whose first line is the comment `title`."""
    blocks: list[str] = re.findall(
        r"^```nginx\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    (found,) = (block for block in blocks if block.startswith(f"# {title}\n"))
    return found


@contextlib.contextmanager
def nginx(folder: Path, title: str, servers: Mapping[str, int], without: str = "") -> Iterator[str]:
    """Run the published configuration `title` as it is, but for its addresses: `servers` has the port on loopback for each
    address of a server in it, and the line `without`. Yield the address at which it listens."""
    found = program()
    text = published(title)
    for address, port in servers.items():
        assert f"server {address}" in text, address
        text = text.replace(f"server {address}", f"server 127.0.0.1:{port}")
    assert without in text
    text = text.replace(without, "")
    assert not re.search(r"server 10\.", text), "an address was not replaced"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert text.count("listen 80;") == 1
    (folder / "published.conf").write_text(text.replace("listen 80;", f"listen 127.0.0.1:{port};"))
    main = folder / "nginx.conf"
    main.write_text(MAIN.format(folder=folder))
    log = folder / "nginx.log"
    with log.open("a") as out:
        process = subprocess.Popen([found, "-p", str(folder), "-c", str(main)], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "nginx does not listen"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
