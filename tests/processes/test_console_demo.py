"""The demo, decided in the console by somebody who has never seen it. Its pictures are those of the README and the guide:
PLANGATE_WRITE_IMAGES=1 writes them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import browsing
from tests.support.console_pages import browser_profile, take_picture
from tests.support.service import ROOT, plain_environment

pytestmark = pytest.mark.long

expect.set_options(timeout=30_000)

LINK = re.compile(r"http://127\.0\.0\.1:\d+/console#ticket=plt_\w+")


@pytest.fixture
def data() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="plangate-demo-", dir="/tmp")).resolve()
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_the_demo_is_decided_and_understood_in_the_console(data: Path) -> None:
    command = [sys.executable, "-m", "examples.flight_recovery", "--console", "--data-dir", str(data)]
    environment = {k: v for k, v in plain_environment().items() if not k.startswith("ANTHROPIC_")}
    with (
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as demo,
        browsing() as chromium,
        browser_profile(chromium) as context,
    ):
        assert demo.stdout is not None and demo.stdin is not None
        link = next(found for line in demo.stdout if (found := LINK.search(line)))
        page = context.new_page()
        page.goto(link[0])
        page.get_by_role("link", name="FlightRecovery").click()
        expect(page.get_by_role("heading", name="Run 3 actions of FlightRecovery")).to_be_visible()
        expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()
        actions = page.get_by_role("region", name="Actions")
        expect(actions).to_contain_text("issue_voucher")
        expect(actions).to_contain_text('"75.00"')
        take_picture(page, "console-approval.png")
        page.keyboard.press("a")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Follow it").first.click()
        expect(page.get_by_text("3 of 3 done")).to_be_visible()
        expect(page.get_by_text("Asked by")).to_be_visible()
        expect(page.get_by_text("Succeeded").first).to_be_visible()
        expect(page.get_by_role("region", name="Timeline of the work")).to_contain_text("issue_voucher")
        take_picture(page, "console-query.png")
        output, _ = demo.communicate("\n", timeout=60)
        assert demo.returncode == 0, output
        assert "The console stays open" in output
