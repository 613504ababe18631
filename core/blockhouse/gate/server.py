"""The driver's end of the gate: accepts tasks, checks who they are and hands each to the owner of its work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError

from blockhouse.config.pipeline import Gate
from blockhouse.gate.messages import Challenge, Hello, Message
from blockhouse.gate.wire import MAX_LINE, new_nonce, prove, proves, to_line
from blockhouse.serving import cannot_listen

log = structlog.get_logger(__name__)
HELLO_TIMEOUT = 10.0
Received = TypeVar("Received")
Sent = TypeVar("Sent", bound=Message)


class TaskSession(Generic[Received, Sent]):
    """One authenticated task. Closed means: whatever it was doing has an unknown fate."""

    def __init__(
        self,
        hello: Hello,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        proof: str,
        from_task: TypeAdapter[Received],
    ) -> None:
        self.hello = hello
        self.proof = proof
        self.gone = asyncio.Event()
        self._reader = reader
        self._writer = writer
        self._from_task = from_task

    def send(self, message: Sent) -> None:
        """Queue a message; a broken connection shows in `receive`."""
        if not self._writer.is_closing():
            self._writer.write(to_line(message))

    async def receive(self) -> Received | None:
        """The next message, or None when the task is gone. Raises ValidationError on anything else."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return None
        return self._from_task.validate_json(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """End the session; `accept` may return."""
        self.gone.set()
        self._writer.close()


class GateServer(Generic[Received, Sent]):
    """Listens for tasks. `accept` gets every authenticated session and returns when it is over.

    `from_task` are the messages of tasks; Hello is one of them.
    """

    def __init__(
        self,
        config: Gate,
        key: bytes,
        from_task: TypeAdapter[Received],
        accept: Callable[[TaskSession[Received, Sent]], Awaitable[None]],
    ) -> None:
        self._config = config
        self._key = key
        self._from_task = from_task
        self._accept = accept
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, int]:
        """Start listening; returns the address tasks must use. Raises Permanent `CannotListen`."""
        host, port = self._config.host, self._config.port
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_LINE)
        except OSError as error:
            raise cannot_listen("gate's", host, port, error) from error
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """End all conversations; returns when they have ended."""
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
            session = await self._greeted(reader, writer)
            if session is not None:
                await self._accept(session)
        except asyncio.CancelledError:
            pass  # only `stop` cancels conversations
        except Exception:  # `accept` is ours, and reads nothing of the peer that may be wrong: the lease never begins
            log.exception("gate.internal_error", peer=writer.get_extra_info("peername"))
        finally:
            self._conversations.discard(conversation)
            writer.close()

    async def _greeted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> TaskSession[Received, Sent] | None:
        """The session of a peer that greets in time and as a task does; None for any other."""
        try:
            return await asyncio.wait_for(self._authenticate(reader, writer), HELLO_TIMEOUT)
        except (TimeoutError, ConnectionError, ValidationError, ValueError) as error:
            log.warning("gate.session_failed", peer=writer.get_extra_info("peername"), error=str(error)[:300])
            return None

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> TaskSession[Received, Sent] | None:
        nonce = new_nonce()
        writer.write(to_line(Challenge(nonce=nonce)))
        hello = self._from_task.validate_json(await reader.readline())
        if not isinstance(hello, Hello) or not proves(
            self._key, hello.proof, nonce, hello.work, hello.epoch, hello.lease
        ):
            log.warning("gate.refused", peer=writer.get_extra_info("peername"), why="wrong proof")
            return None
        return TaskSession(hello, reader, writer, prove(self._key, hello.nonce, "driver"), self._from_task)
