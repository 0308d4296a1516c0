"""The image and the compose file, read without Docker: the files that they name exist."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer
import yaml

from app.commands.main import cli
from app.settings import Settings
from docsite.freshness import SOURCES

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
OURS = [name for name, service in COMPOSE["services"].items() if "build" in service]


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} +(.*)$", DOCKERFILE, re.MULTILINE)


def copied() -> list[str]:
    return [source for line in instructions("COPY") for source in line.split()[:-1]]


def commands() -> set[str]:
    group = typer.main.get_command(cli)
    return set(getattr(group, "commands", {}))


def test_copied_files_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in ignored
    for source in copied():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source


def test_all_package_sources_are_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"], "pyproject.toml"}
    site = {"hatch_build.py", *(source.partition("/")[0] for source in SOURCES)}
    assert needed | site <= set(copied())


def test_the_image_starts_an_existing_command() -> None:
    (entry,) = instructions("ENTRYPOINT")
    (command,) = instructions("CMD")
    (script,) = (e for e in entry_points(group="console_scripts") if [e.name] == json.loads(entry))
    assert callable(script.load())
    assert json.loads(command)[0] in commands()


def test_the_image_runs_as_its_own_user_and_stops_on_sigterm() -> None:
    (user,) = instructions("USER")
    assert user != "root"
    assert f" {user}\n" in DOCKERFILE.partition("RUN useradd")[2].partition("WORKDIR")[0]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


def test_the_dependencies_come_from_the_lock_with_hashes() -> None:
    assert "--require-hashes -r requirements-all.lock" in DOCKERFILE
    assert "requirements-dev.lock" not in DOCKERFILE
    assert "--require-hashes -r requirements-build.lock" in DOCKERFILE
    assert "--no-deps --no-build-isolation -w /wheels ./sdk/python ." in DOCKERFILE


def test_the_health_check_requests_readyz() -> None:
    (check,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, option, code = json.loads(check)
    assert (program, option) == ("python", "-c")
    compile(code, "healthcheck", "exec")
    assert "/readyz" in code


def test_the_compose_file_runs_an_api_two_workers_and_a_postgres() -> None:
    services = COMPOSE["services"]
    assert services["db"]["image"].startswith("postgres:")
    assert services["api"]["command"] == ["serve", "--no-worker"]
    assert services["worker"]["command"] == ["worker"]
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["worker"]["healthcheck"] == {"disable": True}
    assert {services[name]["command"][0] for name in OURS} <= commands()


def test_the_compose_file_gives_each_process_the_same_database_and_key() -> None:
    variables = {str(f.validation_alias or f"PLANGATE_{n.upper()}") for n, f in Settings.model_fields.items()}
    given = [COMPOSE["services"][name]["environment"] for name in OURS]
    assert len(OURS) == 3
    assert all(environment == given[0] for environment in given)
    assert {"DATABASE_URL", "PLANGATE_SECRET_KEY", "PLANGATE_BLOBS"} <= set(given[0]) <= variables


def test_the_compose_file_gives_each_process_the_same_files() -> None:
    volumes = [COMPOSE["services"][name]["volumes"] for name in OURS]
    where = COMPOSE["services"]["api"]["environment"]["PLANGATE_BLOBS"]
    assert volumes == [[f"blobs:{where}"]] * 3
    assert "blobs" in COMPOSE["volumes"]
    (user,) = instructions("USER")
    made = f"install --directory --owner {user} --group {user} --mode 700 {Path(where).parent} {where}\n"
    assert made in DOCKERFILE.partition("USER ")[0]


def test_the_compose_file_has_no_password() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    for name in ("POSTGRES_PASSWORD", "PLANGATE_SECRET_KEY"):
        assert f"${{{name}:?" in text
