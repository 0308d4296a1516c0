"""A slow model vendor on loopback: it sends as many words as the prompt asks for, one by one."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import uuid
from typing import Any

from tests.processes.aimock.vendor_server import O_DONE, O_USAGE, a_end, a_start, o_chunk, sse

WORDS_WHILE_HELD = 10


class SlowModel:
    """Serves both vendors in a thread of its own. `turns` has the messages of each request, in order."""

    def __init__(self, pace_s: float = 0.02) -> None:
        self.pace_s = pace_s
        self.turns: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()
        self._thread = threading.Thread(target=self._run, name="slow-model")

    def prompt(self, seconds: float) -> str:
        """One of its kind, whose turn takes about so long."""
        return f"{uuid.uuid4().hex}: say {round(seconds / self.pace_s)} words"

    @staticmethod
    def text(prompt: str) -> str:
        found = re.search(r"say (\d+) words", prompt)
        return "".join(f"w{n} " for n in range(int(found[1]) if found else 1))

    def start(self) -> SlowModel:
        self._thread.start()
        self._ready.wait(5)
        return self

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def hold(self) -> None:
        """No turn says more than a few words from now on."""
        self._loop.call_soon_threadsafe(self._may_go_on.clear)

    def let_go(self) -> None:
        self._loop.call_soon_threadsafe(self._may_go_on.set)

    def provider(self, kind: str) -> dict[str, Any]:
        base = f"http://127.0.0.1:{self.port}"
        return {"kind": kind, "baseUrl": base if kind == "anthropic" else f"{base}/v1", "apiKey": "sk-slow"}

    def asked(self, prompt: str) -> int:
        return sum(prompt in turn for turn in self.turns)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        rest = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                sizes = [x for x in head.split("\r\n") if x.lower().startswith("content-length:")]
                body = await reader.readexactly(int(sizes[0].split(":")[1]))
                await self._answer(head, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        self.turns.append(json.dumps(json.loads(body)["messages"]))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        words = [f"{w} " for w in self.text(self.turns[-1]).split()]
        first, each, last = anthropic(words) if "/v1/messages" in head else openai(words)
        for events, pause in ((first, 0.0), (each, self.pace_s), (last, 0.0)):
            for n, event in enumerate(events):
                if n > WORDS_WHILE_HELD:
                    await self._may_go_on.wait()
                data = event.encode()
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()
                await asyncio.sleep(pause)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def anthropic(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """What comes before the words, the words, and what comes after."""
    start = sse("content_block_start", index=0, content_block={"type": "text", "text": ""})
    each = [sse("content_block_delta", index=0, delta={"type": "text_delta", "text": w}) for w in words]
    return [a_start(), start], each, [sse("content_block_stop", index=0), *a_end()]


def openai(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    first = [o_chunk({"role": "assistant", "content": ""})]
    each = [o_chunk({"content": word}) for word in words]
    return first, each, [o_chunk({}, "stop"), o_chunk(usage=O_USAGE), O_DONE]
