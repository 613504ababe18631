"""A proxy that passes everything on a little later: delay for machines whose kernel has no netem."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress

_CHUNK = 1 << 16


class DelayProxies:
    """One listener for each of `ports`, on loopback, in a thread of its own. `listening` maps ports to theirs.

    Each byte arrives `seconds` later than it was sent, in either direction; nothing is lost or reordered.
    """

    def __init__(self, ports: Sequence[int], seconds: float) -> None:
        self.listening: dict[int, int] = {}
        self._seconds = seconds
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._listeners: list[asyncio.Server] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delay", daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def cut(self) -> int:
        """Cut every connection, and let new ones come; returns how many sides of connections were open."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    async def _cut(self) -> int:
        still_open, self._open = self._open, set()
        for writer in still_open:
            writer.transport.abort()
        return len(still_open)

    def close(self) -> None:
        """Cut every connection, and listen no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        for listener in self._listeners:
            listener.close()
        for writer in self._open:
            writer.transport.abort()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _listen(self) -> None:
        for port in self._ports:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port) -> None:
                await self._pass_on(port, reader, writer)

            listener = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._listeners.append(listener)
            self.listening[port] = listener.sockets[0].getsockname()[1]

    async def _pass_on(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()  # the server is down: as if no process listened
            return
        self._open.add(back_writer)
        await asyncio.gather(self._pump(reader, back_writer), self._pump(back_reader, writer))
        self._open -= {writer, back_writer}

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Bytes wait in a queue with the moment at which they are due, so that delay does not limit the rate."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)
        sending = asyncio.ensure_future(self._send(due, target))
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                await due.put((self._loop.time() + self._seconds, data))
        await due.put((self._loop.time() + self._seconds, b""))
        await sending

    async def _send(self, due: asyncio.Queue[tuple[float, bytes]], target: asyncio.StreamWriter) -> None:
        with suppress(OSError, RuntimeError):
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0.0, at - self._loop.time()))
                if not data:
                    break
                target.write(data)
                await target.drain()
        target.close()
