"""Serve the application below a path prefix, as a reverse proxy shows it to clients."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class PublicPath:
    """An application below a prefix. Proxies may pass the prefix on or remove it: both work.

    The application sees paths without the prefix, so no route and no check has to know it. A `Location` gets it again.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path == self._prefix or path.startswith(f"{self._prefix}/"):
            raw: bytes = scope.get("raw_path") or path.encode()
            scope = {
                **scope,
                "path": path.removeprefix(self._prefix) or "/",
                "raw_path": raw.removeprefix(self._prefix.encode()) or b"/",
            }

        async def send_located(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name, self._located(name, value)) for name, value in message.get("headers", ())]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_located)

    def _located(self, name: bytes, value: bytes) -> bytes:
        prefix = self._prefix.encode()
        if name.lower() != b"location" or not value.startswith(b"/") or value.startswith(prefix + b"/"):
            return value
        return prefix + value
