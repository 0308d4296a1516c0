"""The cookie of a session, and what protects it against other sites.

The cookie is HttpOnly and SameSite=Strict. Away from loopback it is Secure and has the prefix `__Host-`, so that no
other host of the same domain can set it. Two more checks protect a request with a session, since a site includes all
ports and subdomains: browsers say which site a request comes from, and a write needs a header that no form can send.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Final

from fastapi import Request, Response

from app.base.errors import Forbidden, Unauthenticated
from app.base.keys import SESSION_PREFIX, has_key_shape
from app.base.public_url import PublicUrl, is_loopback_host
from app.tenancy.models import Credential, Session

COOKIE: Final = "plangate_session"
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
REQUEST_HEADER: Final = "plangate-request"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITE: Final = frozenset({"same-origin", "none"})
"""What Sec-Fetch-Site says of a request of the service's own pages, or of a person who typed the address."""


class CrossSiteRequest(Forbidden):
    """A request with a session does not show that a page of this service sent it."""

    kind: ClassVar[str] = "cross_site_request"
    title: ClassVar[str] = "The request may come from another site"


def reject_other_sites(request: Request) -> None:
    """Raise CrossSiteRequest if the browser says that a page of another origin sent the request."""
    site = request.headers.get("sec-fetch-site", "none")
    if site not in OWN_SITE:
        raise CrossSiteRequest(
            f"The browser says that this request comes from another origin ({site[:20]}). Sessions work only for pages of "
            "this service; elsewhere, send an API key in the header Authorization."
        )


def session_credential(request: Request, public_url: PublicUrl | None) -> Credential | None:
    """Return the session of a request, or None if it has no cookie. Raise Unauthenticated or CrossSiteRequest."""
    text = request.cookies.get(cookie_name(request, public_url))
    if not text:
        return None
    reject_other_sites(request)
    if request.method not in SAFE_METHODS and request.headers.get(REQUEST_HEADER) != "1":
        raise CrossSiteRequest("With a session, a write needs the header `Plangate-Request: 1`.")
    if not has_key_shape(text, SESSION_PREFIX):
        raise Unauthenticated("The session cookie is invalid. Sign in again.")
    return Credential.from_text("session", text)


def cookie_name(request: Request, public_url: PublicUrl | None) -> str:
    return SECURE_COOKIE if is_secure(request, public_url) else COOKIE


def is_secure(request: Request, public_url: PublicUrl | None) -> bool:
    """Return whether the cookie is Secure: everywhere but on loopback.

    Without a public URL, the Host header says how the browser reached the service. A request that passed a proxy
    did not come from loopback, even if the proxy says so.
    """
    if public_url is not None:
        return not public_url.is_loopback
    headers = request.headers
    if {"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "via"} & set(headers):
        return True
    return not is_loopback_host(headers.get("host", ""))


def set_cookie(
    request: Request, response: Response, public_url: PublicUrl | None, text: str, session: Session
) -> None:
    """Let the browser keep the session until it expires."""
    seconds = max(1, round((session.expires_at - datetime.now(UTC)).total_seconds()))
    _write_cookie(request, response, public_url, text, seconds)


def clear_cookie(request: Request, response: Response, public_url: PublicUrl | None) -> None:
    _write_cookie(request, response, public_url, "", 0)


def _write_cookie(
    request: Request, response: Response, public_url: PublicUrl | None, text: str, seconds: int
) -> None:
    response.headers["cache-control"] = "no-store"
    response.set_cookie(
        cookie_name(request, public_url),
        text,
        max_age=seconds,
        path="/",
        secure=is_secure(request, public_url),
        httponly=True,
        samesite="strict",
    )
