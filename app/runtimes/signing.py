"""Sign the calls that the service makes for a runtime, so that receivers can verify the sender.

Each line of versions has one secret in the form of Standard Webhooks (https://www.standardwebhooks.com):
`whsec_` and the base64 of random bytes. It is shown once, when it is created. After a rotation, both secrets
sign for a day.
"""

from __future__ import annotations

import base64
import secrets as randomness
from datetime import datetime

from plangate.spec.models import RuntimeSpec
from standardwebhooks import Webhook

from app.base.errors import NotFound
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.base.sealing import Sealer, secret_context
from app.runtimes import store
from app.runtimes.checks import transports
from app.runtimes.models import SealedSigningSecret

PREFIX = "whsec_"
SECRET_BYTES = 32
OLD_SECRET_VALID_S = 24 * 3600.0


def is_signed(spec: RuntimeSpec) -> bool:
    """Return whether calls of this runtime are signed, because a part of it has the transport `http`."""
    return any(transport.kind == "http" for _, transport in transports(spec))


class SigningSecrets:
    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    async def ensure(self, tx: Tx, runtime_name: str) -> str | None:
        """Create the secret of a line of versions. Return it to be shown, or None if there already is one."""
        secret = _new_secret()
        sealed = self._seal(tx.tenant, runtime_name, secret)
        return (
            secret if await store.new_signing_secret(tx, runtime_name=runtime_name, sealed=sealed) else None
        )

    async def rotate(self, tx: Tx, runtime_name: str) -> str:
        """Return a new secret. The old one also signs for a day, so that receivers can switch. Raise
        NotFound."""
        secret = _new_secret()
        sealed = self._seal(tx.tenant, runtime_name, secret)
        if not await store.rotate_signing_secret(
            tx, runtime_name=runtime_name, sealed=sealed, old_signs_for_s=OLD_SECRET_VALID_S
        ):
            raise NotFound(
                f"The runtime {runtime_name!r} has no signing secret, because no part of it uses the transport http."
            )
        return secret

    async def load(self, tx: Tx, runtime_name: str) -> SealedSigningSecret | None:
        """Return the secret that signs calls of a line of versions, sealed, or None if it has none."""
        return await store.signing_secret(tx, runtime_name=runtime_name)

    async def signature(
        self,
        tenant: str,
        runtime_name: str,
        stored: SealedSigningSecret | None,
        message_id: str,
        at: datetime,
        body: bytes,
    ) -> str:
        """Return the header `webhook-signature`: one signature, or two while an old secret still signs. Raise
        NotFound if there is no secret."""
        if stored is None:
            raise NotFound(f"The runtime {runtime_name!r} has no signing secret: register it again.")
        context = signing_context(tenant, runtime_name)
        secrets = [self._sealer.open(s, context).decode() for s in (stored.sealed, stored.previous) if s]

        def sign() -> str:
            return " ".join(Webhook(secret).sign(message_id, at, body.decode()) for secret in secrets)

        return await offload(sign, size=len(body))

    def _seal(self, tenant: str, runtime_name: str, secret: str) -> bytes:
        return self._sealer.seal(secret.encode(), signing_context(tenant, runtime_name))


def signing_context(tenant: str, runtime_name: str) -> str:
    """Return the context that the signing secrets of a runtime's name are sealed for."""
    return secret_context(tenant, f"signing/{runtime_name}")


def _new_secret() -> str:
    return PREFIX + base64.b64encode(randomness.token_bytes(SECRET_BYTES)).decode()
