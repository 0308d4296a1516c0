"""The main job in Python against a real service: with the library, and with a client that openapi-python-client generates.
`test_typescript_client.py` has that of the TypeScript client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import main_jobs
from tests.support import openapi_client
from tests.support.main_job import check_report
from tests.support.programs import openapi_client as openapi_client_programs
from tests.support.service import folder, serving

JOBS = Path(main_jobs.__file__).parent
RUN_WITHIN_S = 90.0


@pytest.mark.parametrize("client", ["plangate", pytest.param("openapi_client", marks=pytest.mark.long)])
def test_the_main_job(client: str) -> None:
    python, path = sys.executable, os.environ.get("PYTHONPATH", "")
    if client == "openapi_client":
        python, path = str(openapi_client_programs() / "python"), str(openapi_client.build())
    with folder() as at, serving(at) as service:
        env = {"PLANGATE_URL": service.url, "PLANGATE_API_KEY": service.key, "PYTHONPATH": path}
        done = subprocess.run(
            [python, str(JOBS / f"with_{client}.py"), str(JOBS / "job.json")],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        check_report(json.loads(done.stdout), service)
