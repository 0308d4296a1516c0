"""Restart the chains of a tenant that came from another deployment, whose MACs were made under another key."""

from __future__ import annotations

from typing import Final

from app.artifacts import decision_store, store
from app.artifacts.chain import START, Chainer, ChainHead, MovedHead, StoredLink
from app.base.postgres.database import Tx

CHAINS_PER_PAGE: Final = 500
RECORDS_PER_PAGE: Final = 500


async def restart_chains(tx: Tx, chainer: Chainer) -> None:
    """Give every record of the tenant a MAC under the key of this deployment, and record where each chain ended before.

    `tx` belongs to the owner of the schema, because the service's role cannot change a record. It is not one transaction:
    nobody sees the tenant yet. The records are not verified: the export did that under the old key.
    """
    after = ""
    while chains := await store.chains(tx, after=after, limit=CHAINS_PER_PAGE):
        for thread_id, head in chains:
            if head.n:
                await _restart(tx, chainer, thread_id, head)
        after = chains[-1][0]
    await _seal_again(tx, chainer)


async def _restart(tx: Tx, chainer: Chainer, thread_id: str, head: ChainHead) -> None:
    last = ChainHead(0, START)
    while links := await _page(tx, thread_id, last.n):
        sealed = []
        for link in links:
            mac = chainer.mac(tx.tenant, thread_id, link.n, last.mac, link.record)
            sealed.append((link.id, last.mac, mac))
            last = ChainHead(link.n, mac)
        await store.replace_macs(tx, macs=sealed)
        await decision_store.replace_macs(tx, macs=sealed)
    await store.move(tx, thread_id=thread_id, head=last)
    seal = chainer.seal_link(tx.tenant, thread_id, head)
    await store.add_chain_link(tx, moved=MovedHead(thread_id, head, seal))


async def _page(tx: Tx, thread_id: str, after: int) -> list[StoredLink]:
    """Return the next records of a chain, in order: artifacts and decisions."""
    limit = RECORDS_PER_PAGE
    links = await store.links(tx, thread_id=thread_id, after=after, limit=limit)
    links += await decision_store.links(tx, thread_id=thread_id, after=after, limit=limit)
    return sorted(links, key=lambda link: link.n)[:limit]


async def _seal_again(tx: Tx, chainer: Chainer) -> None:
    """Seal the ends of deleted chains, and those of earlier moves, under the key of this deployment."""
    after = ""
    while tombstones := await store.tombstones(tx, after=after, limit=CHAINS_PER_PAGE):
        for tombstone in tombstones:
            seal = chainer.seal(tx.tenant, tombstone.thread_id, tombstone.head)
            await store.replace_tombstone_seal(tx, thread_id=tombstone.thread_id, seal=seal)
        after = tombstones[-1].thread_id
    last: MovedHead | None = None
    while ends := await store.chain_links(tx, after=last, limit=CHAINS_PER_PAGE):
        for last in ends:
            seal = chainer.seal_link(tx.tenant, last.thread_id, last.head)
            await store.replace_link_seal(tx, moved=last, seal=seal)
