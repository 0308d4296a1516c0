"""A process without the shared settings of its database reports it at startup and changes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import forked


def plangate(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PLANGATE_") and k != "DATABASE_URL"}
    return forked.run("app", *arguments, "--data-dir", str(folder), env={**kept, **more})


def test_a_different_master_key_is_rejected_and_a_short_one_not_shown(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    folder = tmp_path / "data"
    made = plangate(folder, "tenants", "create", "acme")
    assert made.returncode == 0, made.stderr
    assert "Tenant acme made." in made.stdout
    other = plangate(folder, "tenants", "create", "beta", PLANGATE_SECRET_KEY="x" * 40)
    assert other.returncode != 0
    assert "PLANGATE_SECRET_KEY is not the one that this database was sealed with" in other.stderr
    short = plangate(folder, "tenants", "create", "beta", PLANGATE_SECRET_KEY="hunter2")
    assert short.returncode != 0
    assert "hunter2" not in short.stderr + short.stdout
    assert "PLANGATE_SECRET_KEY" in short.stderr
    again = plangate(folder, "tenants", "create", "acme")
    assert "Tenant acme exists already." in again.stdout
    wrong = plangate(folder, "tenants", "create", "Not a tenant")
    assert wrong.returncode != 0
    assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_an_external_database_requires_a_shared_blob_store(tmp_path: Path, command: str) -> None:
    nowhere = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none", "PLANGATE_SECRET_KEY": "s" * 40}
    refused = plangate(tmp_path, command, **nowhere)
    assert refused.returncode == 1
    assert refused.stderr.startswith("PLANGATE_BLOBS is needed with DATABASE_URL: ")
    assert "s3://bucket/prefix" in refused.stderr
