"""The tutorial as a reader follows it: an empty folder, two terminals, and a browser in which the plan is approved. It
takes the picture of the page: PLANGATE_WRITE_IMAGES=1 writes it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from tests.support.browser import browsing
from tests.support.console_pages import browser_profile, take_picture
from tests.support.fresh_projects import UV
from tests.support.guides import FOLDER, ROOT, Block, Page, matches
from tests.support.programs import wheels
from tests.support.service import folder, plain_environment
from tests.support.terminal import Terminal, terminal

pytestmark = pytest.mark.long

expect.set_options(timeout=30_000)

pytestmark = pytest.mark.long

TUTORIAL = Page(FOLDER / "tutorial.md")
COMMANDS, SERVICE = "# Terminal 1\n", "# Terminal 2\n"
DEFAULT_PORT = "8700"
OPENED = "opened"


@pytest.fixture
def at() -> Iterator[Path]:
    with folder() as empty:
        yield empty


def free_port() -> str:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return str(bound.getsockname()[1])


def reader(programs: Path, port: str) -> dict[str, str]:
    """Return the environment of a reader with Python and uv, whose packages come from this machine. Their browser writes
    the address that it is to open to `programs`."""
    (programs / "uv").symlink_to(UV)
    browser = programs / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{programs / OPENED}"\n')
    browser.chmod(0o755)
    path = [str(Path(sys.base_prefix) / "bin"), str(programs), os.environ["PATH"]]
    return {
        **{name: value for name, value in plain_environment().items() if name != "VIRTUAL_ENV"},
        "PATH": os.pathsep.join(path),
        "CHECKOUT": str(ROOT),
        "PLANGATE_PORT": port,
        "BROWSER": str(browser),
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels()),
    }


def approve(page: BrowserPage) -> None:
    page.get_by_role("link", name="Restock").click()
    expect(page.get_by_role("heading", name="Run 2 actions of Restock")).to_be_visible()
    expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()
    expect(page.get_by_text("137.20").first).to_be_visible()
    take_picture(page, "tutorial-approval.png")
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Follow it").first.click()
    expect(page.get_by_text("2 of 2 done")).to_be_visible()


def follow(block: Block, at: Path, first: Terminal, second: Terminal, port: str, page: BrowserPage) -> str:
    """Do what a block says, and return what the second terminal prints."""
    text = block.text.replace(DEFAULT_PORT, port)
    if block.role == "program":
        assert block.file is not None
        (at / block.file).write_text(text, "utf-8")
        return ""
    if text.startswith(SERVICE):
        first.start(text)
        first.wait_for(f"http://127.0.0.1:{port}")
        return ""
    assert text.startswith(COMMANDS), f"{block.place} does not say in which terminal"
    second.start(text)
    if "restock.py" in text:
        second.wait_for("Waiting for a decision")
        approve(page)
    return second.finish()


def test_the_tutorial_leads_to_an_approved_plan(at: Path, tmp_path: Path) -> None:
    port = free_port()
    environment = reader(tmp_path, port)
    followed = []
    with (
        browsing() as chromium,
        browser_profile(chromium) as context,
        terminal(at, environment) as first,
        terminal(at, environment) as second,
    ):
        page = context.new_page()
        printed = ""
        for block in TUTORIAL.blocks:
            if block.role == "output":
                assert matches(printed, block.text), f"{block.place}: printed\n{printed}"
            elif block.role != "fragment":
                printed = follow(block, at, first, second, port, page)
                followed.append(block.file or block.text.splitlines()[-1])
            if (opened := tmp_path / OPENED).exists():
                page.goto(opened.read_text())
                expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
                opened.unlink()
    assert {"plangate console", "python restock.py", "shop.py", "agents.py"} < set(followed)
