"""The system of agents as data: one analyst, with the toolkit `catalog` on one source."""

from __future__ import annotations

from plangate import DefinedRuntime, define_runtime, define_specialist, layered_prompt

from examples.questions.data import SOURCE

ANALYST = "analyst"


def define(*, tenant: str, model: str, scripted: bool) -> DefinedRuntime:
    """Return the whole system. `scripted`: the analyst follows a script."""
    asked = {"id": "none", "provider": "scripted"} if scripted else {"id": model, "provider": "anthropic"}
    analyst = define_specialist(
        ANALYST,
        asked,
        layered_prompt(
            identity="You answer questions about the flights that left New York in 2013.",
            communication="Short and factual. Plain text, no Markdown.",
            operational_rules=[
                "Find tables and columns with search_catalog and list_schema_fields.",
                "Then answer with one execute_query, and let the database aggregate. Its result may be a "
                "reference with a glimpse: work with the glimpse.",
                "Say what you found in one sentence, with the numbers of the glimpse.",
            ],
        ),
        toolkits=[{"id": "catalog", "config": {"sources": [SOURCE]}}],
    )
    return define_runtime(tenant, [analyst], name="questions")
