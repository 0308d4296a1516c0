"""A real Chromium for tests of pages. It comes from Debian's package `chromium`; nothing is downloaded."""

from __future__ import annotations

import contextlib
import functools
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-gpu",
    "--no-sandbox",  # needs privileges that containers lack; the tests open pages of their own only
)


def chromium() -> str:
    """Return the path of Chromium. Without one the test fails: a skipped test would prove nothing."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    pytest.fail(
        "There is no Chromium on PATH. Install it, on Debian and Ubuntu with: apt-get install chromium"
    )


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """Run a headless browser until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        try:
            yield browser
        finally:
            browser.close()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def static_files(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback until the block ends. Yield its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
