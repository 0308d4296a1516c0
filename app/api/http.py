"""The HTTP application: the one map of routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from fastapi import FastAPI, Query, Request, Response

import app.agents.routes
import app.approvals.routes
import app.artifacts.routes
import app.catalog.routes
import app.documents.routes
import app.engine.routes
import app.journal.routes
import app.plans.routes
import app.queries.routes
import app.references.routes
import app.runtimes.routes
import app.tenancy.routes
import app.tools.routes
import app.usage.routes
import app.workspace.routes
from app.api import cross_origin, errors, metrics, openapi, views
from app.api.pages import api_docs, assets, console, guides
from app.api.public_path import PublicPath
from app.assembly import Services
from app.base.errors import Unavailable
from app.tenancy.http import json_response, operation_id

ROUTERS = (
    app.runtimes.routes.specs,
    app.runtimes.routes.router,
    app.queries.routes.router,
    app.engine.routes.router,
    app.agents.routes.router,
    app.journal.routes.router,
    app.approvals.routes.router,
    app.plans.routes.router,
    app.references.routes.large,
    app.references.routes.router,
    app.documents.routes.router,
    app.documents.routes.memory,
    app.workspace.routes.router,
    app.workspace.routes.streamed,
    app.artifacts.routes.router,
    app.artifacts.routes.streamed,
    app.catalog.routes.router,
    app.tools.routes.router,
    app.tools.routes.results,
    app.tools.routes.streamed,
    app.tools.routes.mcp,
    app.usage.routes.router,
    app.tenancy.routes.router,
    app.tenancy.routes.sign_in,
    app.tenancy.routes.operator,
)


def create_app(services: Services | None = None) -> FastAPI:
    """Return the application over these services. Without services, it can only describe its API."""

    api = FastAPI(
        title="Plangate",
        version="0.1.0",
        lifespan=_life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a path that is not in the document is a 404, not a redirect to the Host header
        generate_unique_id_function=operation_id,
    )
    errors.install(api)
    for router in ROUTERS:
        # Not include_router: it builds every route again, which takes 0.1 s. The routers add nothing to their routes.
        api.router.routes += router.routes
    _operations(api)
    metrics.install(api)
    openapi.install(api)
    guides.install(api)
    api_docs.install(api)
    assets.install(api)
    console.install(api)
    if services is not None:
        api.state.services = services
        api.state.context = services.api
        api.state.metrics = metrics.MetricsEndpoint(services, services.metrics_token)
        api.add_middleware(
            errors.ShutdownResponder, health=services.health, draining=services.streams.draining
        )
        cross_origin.install(api, services.cors_origins)
        if services.api.public_url is not None and services.api.public_url.path:
            api.add_middleware(PublicPath, prefix=services.api.public_url.path)
    return api


@asynccontextmanager
async def _life(api: FastAPI) -> AsyncIterator[None]:
    services: Services = api.state.services
    await services.start()
    try:
        yield
    finally:
        await services.aclose()


def create_operations_app(services: Services) -> FastAPI:
    """Return the application of a worker: health, readiness and metrics. The process owns its lifespan."""
    api = FastAPI(
        title="Plangate worker", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    api.state.services = services
    api.state.metrics = metrics.MetricsEndpoint(services, services.metrics_token)
    errors.install(api)
    _operations(api)
    metrics.install(api)
    return api


def _operations(api: FastAPI) -> None:
    @api.get("/healthz", tags=["operations"], summary="The process runs", response_model=views.Health)
    async def check_health() -> Response:
        return json_response({"status": "ok"})

    @api.get(
        "/readyz",
        tags=["operations"],
        summary="The process can work: its database answers",
        description="200 while the database answers reads. With `need=writes` it is 503 while the database takes no "
        "writes: it is read-only, or its disk is full. The response always has both `reads` and `writes`.",
        response_model=views.Readiness,
    )
    async def check_readiness(
        request: Request,
        need: Annotated[Literal["reads", "writes"], Query(description="What must work for a 200.")] = "reads",
    ) -> Response:
        services: Services = request.app.state.services
        if services.health.draining:
            raise Unavailable("The service is shutting down.")
        await services.health.check_reads()
        readiness = {"reads": True, "writes": await services.health.accepts_writes()}
        if need == "writes" and not readiness["writes"]:
            unavailable = Unavailable(
                "The database takes no writes. It is read-only, or its disk is full; reads work."
            )
            unavailable.extra.update(readiness)
            raise unavailable
        stopped = {"recoveryNeeded": services.promotions.needs_recovery}
        return json_response({"status": "ready", "running": services.worker.busy, **readiness, **stopped})
