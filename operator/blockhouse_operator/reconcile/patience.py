"""An end for what may stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from blockhouse.errors import Retryable

Result = TypeVar("Result")


async def bounded(awaitable: Awaitable[Result], seconds: float, late: Retryable) -> Result:
    """What `awaitable` gives or raises; raises `late` when it takes longer, and cancels it.

    A TimeoutError of its own passes as it is. A thread that it waits for is left to itself.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await awaitable
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise late from error
