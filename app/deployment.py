"""Where a process finds its database, its master key and the bodies of files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.base import embedded_postgres
from app.base.blobs.local import LocalBlobs
from app.base.blobs.store import BlobStore
from app.base.extras import MissingExtra, import_with_extra
from app.base.sealing import derive_key
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where a process finds its database, its master key and the bodies of files."""

    dsn: str
    listen_dsn: str
    migrate_dsn: str
    master: bytes
    blobs: str
    postgres: embedded_postgres.EmbeddedPostgres | None = None
    is_local: bool = False
    """Return whether the database is the embedded one: everything is on this machine."""

    def release(self) -> None:
        if self.postgres is not None:
            self.postgres.release()


def find_deployment(settings: Settings) -> Deployment:
    """Return the database that the settings name, or the embedded one, which is started if needed; and the
    master key."""
    blobs = settings.blobs or str(settings.data_dir / "blobs")
    if settings.database_url is not None:
        if settings.secret_key is None:
            raise SystemExit(
                "PLANGATE_SECRET_KEY is needed with DATABASE_URL: at least 32 characters that every process of this "
                'database shares. Make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        url = settings.database_url
        return Deployment(
            url,
            settings.listen_url or url,
            settings.migrate_url or url,
            derive_key(settings.secret_key.encode(), "master"),
            blobs,
        )
    embedded_postgres.prepare_data_dir(settings.data_dir)
    text = settings.secret_key or load_or_create_secret(settings.data_dir / "secret-key")
    postgres = embedded_postgres.start(settings.data_dir)
    dsn = postgres.dsn()
    return Deployment(dsn, dsn, dsn, derive_key(text.encode(), "master"), blobs, postgres, is_local=True)


def child_greeting(settings: Settings, site: Deployment) -> dict[str, Any]:
    """Return the first message to a child process: the settings and site of this process, secrets included."""
    return {
        "settings": settings.explicit_values(),
        "site": {
            "dsn": site.dsn,
            "listen_dsn": site.listen_dsn,
            "migrate_dsn": site.migrate_dsn,
            "master": site.master.hex(),
            "blobs": site.blobs,
            "is_local": site.is_local,
        },
    }


def greeted_child(greeting: Mapping[str, Any]) -> tuple[Settings, Deployment]:
    """Return the settings and the site from the parent's first message, with a pool of two database connections."""
    values = greeting["site"]
    settings = Settings.model_validate(greeting["settings"]).model_copy(update={"pool_size": 2})
    return settings, Deployment(**{**values, "master": bytes.fromhex(values["master"])})


def load_or_create_secret(path: Path) -> str:
    """Return the text of a file that only its owner can read. Create the file if it does not exist."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="utf-8").strip()
    with os.fdopen(handle, "w") as file:
        text = secrets.token_urlsafe(32)
        file.write(text + "\n")
    return text


def open_blobs(where: str) -> BlobStore:
    """Return the blob store at a directory, which `prepare_blobs` makes, or at an s3:// URL. Nothing
    connects before the first body."""
    if "://" not in where:
        return LocalBlobs(Path(where))
    try:
        store: BlobStore = import_with_extra("app.base.blobs.bucket", "buckets").BucketBlobs(where)
        return store
    except MissingExtra as error:
        raise SystemExit(f"PLANGATE_BLOBS is a bucket: {error}.") from error
    except ValueError as error:
        raise SystemExit(f"PLANGATE_BLOBS is a directory or a bucket: {error}.") from error


def prepare_blobs(where: str) -> None:
    """Create the directory for bodies and try to write to it, so that an unusable directory is reported at
    startup. A bucket is not tried: an outage of the bucket passes."""
    if "://" in where:
        return
    try:
        LocalBlobs(Path(where)).prepare()
    except OSError as error:
        raise SystemExit(
            f"Bodies of files cannot be kept in {where} (PLANGATE_BLOBS): {error.strerror}. "
            "It has to be a directory that the service may write to."
        ) from error
