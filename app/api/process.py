"""Start a long-running process: prepare its database while a thread imports the service.

This module imports only what it needs for that. `plangate serve` and `plangate worker` begin here.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from app.api.database_startup import migrate_database, prepare_database
from app.api.open_files import raise_open_files
from app.base import embedded_postgres
from app.base.keys import has_key_shape, hash_key, new_key
from app.base.logs.configure import configure
from app.base.logs.structured import structlog
from app.deployment import Deployment, find_deployment, load_or_create_secret, prepare_blobs
from app.settings import Settings
from app.tenancy.installation import check_master_key, register_operator_key, require_key

log = structlog.get_logger(__name__)

SERVING_MODULE: Final = "app.api.serving"
stop_requested = threading.Event()
"""Set if SIGTERM arrives before the event loop handles signals."""


def serve(settings: Settings, *, with_worker: bool) -> None:
    """Serve the API, and work on queries. Returns after a signal. Raises SystemExit if the process cannot start."""
    with _prepared_deployment(settings) as site:
        key_file = _ensure_local_key(settings, site)
        if key_file is None:
            asyncio.run(require_key(site.dsn))
        from app.api import serving  # noqa: PLC0415 - waits for the thread that loads it

        serving.serve(settings, site, key_file, with_worker=with_worker)


def run_worker(settings: Settings) -> None:
    """Work on queries, without an API. Returns after a signal. Raises SystemExit if the process cannot start."""
    with _prepared_deployment(settings) as site:
        from app.api import serving  # noqa: PLC0415 - waits for the thread that loads it

        serving.run_worker(settings, site)


def migrate_only(settings: Settings) -> None:
    """Bring the database's schema up to date."""
    site = find_deployment(settings)
    try:
        asyncio.run(migrate_database(site, settings.database_wait_s))
    finally:
        site.release()


@contextmanager
def _prepared_deployment(settings: Settings) -> Iterator[Deployment]:
    """Yield the deployment with its database ready, and release it afterward."""
    configure(settings.log_level)
    _install_signal_handlers()
    _require_blobs(settings)
    raise_open_files()  # before Postgres starts, which inherits the limit
    _load_in_background(SERVING_MODULE)
    site = find_deployment(settings)
    try:
        _warn_of_listable_data(site)
        prepare_blobs(site.blobs)
        asyncio.run(prepare_database(site, settings.database_wait_s))
        asyncio.run(check_master_key(site.migrate_dsn, site.master))
        yield site
    finally:
        site.release()


def _load_in_background(module: str) -> None:
    """Import a module in a thread. The main thread mostly waits for Postgres meanwhile, and receives the signals.

    Other imports of the module wait for this thread. So does the exit of the process, which could crash in half-loaded
    native code.
    """

    def load() -> None:
        with suppress(Exception):  # the import in the main thread raises it again
            importlib.import_module(module)

    threading.Thread(target=load, name="load-modules").start()


def _install_signal_handlers() -> None:
    """Let SIGTERM unwind a process whose loop has not started yet. A terminal that closes is a SIGTERM too, unless the process
    was started with nohup."""
    signal.signal(signal.SIGTERM, _exit)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def _exit(_number: int, _frame: object) -> None:
    """Unwind the process, so that it releases what it holds. Outside its own loop, uvicorn leaves signals to us.

    Python ignores the exception in the callback of a weak reference, as while the garbage collector runs. The process then
    ends once it listens to signals itself.
    """
    stop_requested.set()
    raise SystemExit(0)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _ensure_local_key(settings: Settings, site: Deployment) -> Path | None:
    """Return the file of the operator's key, created if needed; None unless local with the embedded database."""
    if site.postgres is None or not is_loopback(settings.host):
        return None
    path = settings.data_dir / "local-key"
    if not path.exists():
        key, _ = new_key(cell=settings.cell)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(key + "\n")
    key = load_or_create_secret(path)
    if not has_key_shape(key):
        raise SystemExit(f"{path} does not hold a key; delete it and start again to get a new one.")
    asyncio.run(register_operator_key(site.migrate_dsn, hash_key(key)))
    return path


def _require_blobs(settings: Settings) -> None:
    """Exit if DATABASE_URL is set without PLANGATE_BLOBS: with a default per machine, bodies on other machines would be lost."""
    if settings.database_url is not None and settings.blobs is None:
        raise SystemExit(
            "PLANGATE_BLOBS is needed with DATABASE_URL: where the bodies of files are, the same for every process of "
            "this database. A directory that all of them see (on one machine any that is the service's own), or "
            "s3://bucket/prefix."
        )


def _warn_of_listable_data(site: Deployment) -> None:
    """Log a warning if other accounts can list the data directory. Its mode is the operator's to change."""
    if site.postgres is not None:
        warning = embedded_postgres.listing_warning(site.postgres.data_dir)
        if warning is not None:
            log.warning("data_dir.listable", error=warning)
