"""The link that `plangate serve` prints at a terminal."""

from __future__ import annotations

import socket

import pytest

from app.api.console_link import listening_url, print_console_link
from app.deployment import Deployment
from tests.support.client import good
from tests.support.cluster import Cluster
from tests.support.world import World, world


@pytest.mark.parametrize(
    ("family", "host", "url"),
    [(socket.AF_INET, "127.0.0.1", "http://127.0.0.1:"), (socket.AF_INET6, "::1", "http://[::1]:")],
)
def test_the_address_of_a_socket_is_a_url(family: socket.AddressFamily, host: str, url: str) -> None:
    with socket.socket(family) as listening:
        listening.bind((host, 0))
        assert listening_url(listening) == f"{url}{listening.getsockname()[1]}"


async def test_the_link_signs_in_once(idle: World, capsys: pytest.CaptureFixture[str]) -> None:
    await print_console_link(idle.services, idle.operator_key, "http://[::1]:8700")
    printed = capsys.readouterr().out.strip()
    link, _, ticket = printed.rpartition("#ticket=")
    assert link == "Open the console within five minutes: http://[::1]:8700/console"
    response = await idle.http.post("/session", json={"ticket": ticket})
    assert good(response)["tenant"] == "local"
    assert (await idle.http.post("/session", json={"ticket": ticket})).status_code == 401


async def test_the_link_has_the_public_address(
    cluster: Cluster, site: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    public = "https://plans.example/gate"
    async with world(site, cluster.operator_key, with_worker=False, public_url=public) as running:
        await print_console_link(running.services, running.operator_key, "http://127.0.0.1:8700")
    assert f" {public}/console#ticket=" in capsys.readouterr().out


async def test_without_a_database_no_link_is_printed_and_nothing_is_raised(
    idle: World, capsys: pytest.CaptureFixture[str]
) -> None:
    idle.faults.fail("INSERT INTO sessions")
    await print_console_link(idle.services, idle.operator_key, "http://127.0.0.1:8700")
    printed = capsys.readouterr().out
    assert "#ticket=" not in printed
    assert "console_link.failed" in printed
