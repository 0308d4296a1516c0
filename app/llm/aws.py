"""Signatures of requests to AWS, and the operator's credentials. The one module that imports botocore.

botocore signs with keys that it is given. It looks for keys by itself only in `OperatorCredentials`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from functools import cache
from typing import Any, Final, Protocol

import botocore.exceptions
import botocore.session
import httpx2
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from app.base.logs.structured import structlog
from app.llm.iam_keys import IamKeys
from app.llm.provider import NotAuthorized, Unreachable

log = structlog.get_logger(__name__)

SIGNING_NAME: Final = "bedrock"
"""The service in the scope of a signature, for the hosts bedrock-runtime.*."""
UNSTARTED_PROGRAMS: Final = "custom-process"
"""botocore's name for the source that starts the program of `credential_process`."""
NOT_CONFIGURED: Final = (
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.ProfileNotFound,
    botocore.exceptions.InvalidConfigError,
    botocore.exceptions.ConfigParseError,
    botocore.exceptions.UnknownCredentialError,
    botocore.exceptions.InfiniteLoopConfigError,
)
"""Errors of the standard chain that another try would repeat."""


class KeySource(Protocol):
    async def load(self) -> IamKeys:
        """Return keys that are valid now. Raise ProviderFault."""


class GivenKeys:
    """The keys of a tenant, as it stored them."""

    def __init__(self, keys: IamKeys) -> None:
        self._keys = keys

    async def load(self) -> IamKeys:
        return self._keys


class OperatorCredentials:
    """The identity of the service on AWS, from botocore's standard chain: environment, profile, role.

    The chain starts no program (`credential_process`), neither of a profile nor of the profile of a role. Nothing is
    looked for before the first `load`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: Any = None

    async def load(self) -> IamKeys:
        """Return the current keys, refreshed if they are about to expire. Raise NotAuthorized or Unreachable."""
        try:
            return await asyncio.to_thread(self._load)
        except (botocore.exceptions.BotoCoreError, OSError) as error:
            log.warning("bedrock.no_credentials", error=error)
            fault = NotAuthorized if isinstance(error, NOT_CONFIGURED) else Unreachable
            raise fault(
                f"The AWS credentials of the service cannot be loaded ({type(error).__name__}). Its log has the reason."
            ) from error

    def _load(self) -> IamKeys:
        with self._lock:
            if self._credentials is None:
                self._credentials = _standard_chain().get_credentials()
            if self._credentials is None:
                raise NotAuthorized("The service has no AWS credentials: the operator has to configure them.")
            frozen = self._credentials.get_frozen_credentials()
        return IamKeys(frozen.access_key, frozen.secret_key, frozen.token)


@cache
def operator_credentials() -> OperatorCredentials:
    """Return the credentials that all providers of this process share, so that they are refreshed once."""
    return OperatorCredentials()


def _standard_chain() -> Any:
    """Return a session without any `credential_process`. The profile of a role may name one, too, and botocore asks it
    by itself, so it is taken out of the configuration as well as of the chain."""
    session = botocore.session.Session()
    session.get_component("credential_provider").remove(UNSTARTED_PROGRAMS)
    for profile in session.full_config.get("profiles", {}).values():
        profile.pop("credential_process", None)
    return session


class RequestSigner(httpx2.Auth):
    """Signs each request with AWS Signature Version 4, in the place of any other Authorization."""

    requires_request_body = True

    def __init__(self, source: KeySource, region: str) -> None:
        self._source = source
        self._region = region

    async def load(self) -> IamKeys:
        """Return the keys of the next request. Raise ProviderFault, which an SDK would wrap into its own errors."""
        return await self._source.load()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        body = await request.aread()
        sign(request, body, await self._source.load(), self._region)
        yield request


def sign(request: httpx2.Request, body: bytes, keys: IamKeys, region: str) -> None:
    """Add the headers of a signature to a request. It covers the method, the URL, the body and the Content-Type."""
    kind = {"content-type": request.headers["content-type"]} if "content-type" in request.headers else {}
    signed = AWSRequest(method=request.method, url=str(request.url), data=body, headers=kind)
    SigV4Auth(keys, SIGNING_NAME, region).add_auth(signed)
    for name in ("Authorization", "X-Amz-Date", "X-Amz-Security-Token"):
        if name in signed.headers:
            request.headers[name] = signed.headers[name]
