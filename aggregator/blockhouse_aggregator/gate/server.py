"""The driver's end of the gate: accepts tasks, checks who they are and hands each to the owner of its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from pydantic import ValidationError

from blockhouse.config.pipeline import Gate
from blockhouse_aggregator.gate.messages import FROM_TASK, Challenge, FromDriver, FromTask, Hello
from blockhouse_aggregator.gate.wire import MAX_LINE, new_nonce, prove, proves, to_line

log = structlog.get_logger(__name__)
HELLO_TIMEOUT = 10.0


class TaskSession:
    """One authenticated task. Closed means: whatever it was doing has an unknown fate."""

    def __init__(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proof: str) -> None:
        self.hello = hello
        self.proof = proof
        self.gone = asyncio.Event()
        self._reader = reader
        self._writer = writer

    def send(self, message: FromDriver) -> None:
        """Queue a message; a broken connection shows in `receive`."""
        if not self._writer.is_closing():
            self._writer.write(to_line(message))

    async def receive(self) -> FromTask | None:
        """The next message, or None when the task is gone. Raises ValidationError on a message nobody can mean."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return None
        return FROM_TASK.validate_json(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        self.gone.set()
        self._writer.close()


class GateServer:
    """Listens for tasks. `accept` gets every authenticated session and returns when it is over."""

    def __init__(self, config: Gate, key: bytes, accept: Callable[[TaskSession], Awaitable[None]]) -> None:
        self._config = config
        self._key = key
        self._accept = accept
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, int]:
        """Start listening; returns the address tasks must use."""
        self._server = await asyncio.start_server(self._serve, self._config.host, self._config.port, limit=MAX_LINE)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for conversation in tuple(self._conversations):
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.current_task()
        assert conversation is not None
        self._conversations.add(conversation)
        try:
            session = await asyncio.wait_for(self._authenticate(reader, writer), HELLO_TIMEOUT)
            if session is not None:
                await self._accept(session)
        except (TimeoutError, ConnectionError, ValidationError, ValueError) as error:
            log.warning("gate.session_failed", peer=writer.get_extra_info("peername"), error=str(error)[:300])
        except asyncio.CancelledError:
            pass  # only `stop` cancels conversations
        finally:
            self._conversations.discard(conversation)
            writer.close()

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> TaskSession | None:
        nonce = new_nonce()
        writer.write(to_line(Challenge(nonce=nonce)))
        hello = FROM_TASK.validate_json(await reader.readline())
        if not isinstance(hello, Hello) or not proves(
            self._key, hello.proof, nonce, hello.stream, hello.epoch, hello.lease
        ):
            log.warning("gate.refused", peer=writer.get_extra_info("peername"), why="wrong proof")
            return None
        return TaskSession(hello, reader, writer, prove(self._key, hello.nonce, "driver"))
