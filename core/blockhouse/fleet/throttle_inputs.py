"""What a throttle is set up from: options of commands into settings, a record and a source of load."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from blockhouse.config.pipeline import Admin
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import Retryable
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttle_context import Context, ThrottleStore
from blockhouse.fleet.throttle_store import FileStore, default_path
from blockhouse.fleet.throttling import Targets, Throttler, toward
from blockhouse.load.model import LoadSource
from blockhouse.placement.model import InvalidInput
from blockhouse.throttle.model import Capacity, Event, Override, Overrides, Settings
from blockhouse.throttle.units import EXAMPLES, rate_of

THROTTLE = "Throttle"
AUTO, NONE = "auto", "none"

CapacityOption = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        help=f"What the network of a broker carries in one direction, with a unit: {EXAMPLES}.",
        rich_help_panel=THROTTLE,
    ),
]
BrokerCapacities = Annotated[
    list[str] | None,
    typer.Option("--broker-capacity", help="The same of one broker, ID=RATE. Repeatable.", rich_help_panel=THROTTLE),
]
MinRate = Annotated[
    str,
    typer.Option("--min-rate", help="Never less than this, and what unknown brokers get.", rich_help_panel=THROTTLE),
]
MaxRate = Annotated[str | None, typer.Option("--max-rate", help="Never more than this.", rich_help_panel=THROTTLE)]
Share = Annotated[
    float,
    typer.Option(
        "--share", min=0.01, max=1.0, help="Part of the free capacity that copying may use.", rich_help_panel=THROTTLE
    ),
]
Interval = Annotated[
    float, typer.Option("--interval", min=1.0, help="Seconds between two decisions.", rich_help_panel=THROTTLE)
]
StateFile = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Record of what is ours in the cluster; default: ~/.local/state/blockhouse/throttle-CLUSTER.json.",
        rich_help_panel=THROTTLE,
    ),
]
Adopt = Annotated[
    bool,
    typer.Option(
        "--adopt",
        help="Take throttles that another tool or person set for ours, as after a lost record.",
        rich_help_panel=THROTTLE,
    ),
]
HttpAddress = Annotated[
    str | None,
    typer.Option(
        "--http",
        help="Show and fix rates over HTTP at this HOST:PORT, as docs/openapi.yaml states.",
        rich_help_panel=THROTTLE,
    ),
]
HttpToken = Annotated[
    Path | None,
    typer.Option(
        "--http-token-file",
        help="File with the token that requests must give; required outside loopback.",
        rich_help_panel=THROTTLE,
    ),
]


@dataclass(frozen=True, slots=True)
class ThrottleOptions:
    """The options as given; `settings` reads them."""

    capacity: str | None = None
    broker_capacities: tuple[str, ...] = ()
    min_rate: str = "10MB/s"
    max_rate: str | None = None
    share: float = 0.9
    interval: float = 30.0
    state: Path | None = None
    adopt: bool = False

    @property
    def knows_capacity(self) -> bool:
        """Whether that of any broker is given."""
        return bool(self.capacity or self.broker_capacities)

    def settings(self) -> Settings:
        """Raises InvalidInput naming every option that cannot be used."""
        problems: list[str] = []

        def rate(option: str, text: str | None) -> int | None:
            try:
                return rate_of(text) if text is not None else None
            except ValueError as error:
                problems.append(f"{option}: {error}")
                return None

        capacity = Capacity(rate("--capacity", self.capacity), dict(self._brokers(problems)))
        least, most = rate("--min-rate", self.min_rate), rate("--max-rate", self.max_rate)
        if least and most and least > most:
            problems.append(f"--min-rate {self.min_rate} is above --max-rate {self.max_rate}")
        if problems:
            raise InvalidInput(problems)
        return Settings(
            capacity=capacity,
            min_rate=float(least or 0),
            max_rate=most,
            max_outbound=self.share,
            max_inbound=self.share,
            window=max(60.0, 2 * self.interval),
            foreign="Adopt" if self.adopt else "Respect",
        )

    def _brokers(self, problems: list[str]) -> Iterable[tuple[int, float]]:
        for text in self.broker_capacities:
            id, _, rate = text.partition("=")
            try:
                yield int(id), float(rate_of(rate))
            except ValueError:
                problems.append(f"--broker-capacity {text}: give ID=RATE, such as 1001=10Gbit/s")


class FixedRate:
    """A record with a rate for all brokers that have no override of their own: `apply --throttle RATE`."""

    def __init__(self, store: ThrottleStore, rate: int) -> None:
        self._store = store
        self._rate = rate
        self.ownership = store.ownership
        self.remember = store.remember
        self.forget_override = store.forget_override
        self.exclusive = store.exclusive

    def overrides(self) -> Overrides:
        given = self._store.overrides()
        return Overrides(given.everywhere or Override(self._rate), given.brokers)


def http_settings(address: str | None, token_file: Path | None) -> Admin | None:
    """Where HTTP is answered; None without an address. Raises InvalidInput."""
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    token = SecretRef(file=token_file) if token_file is not None else None
    try:
        return Admin.model_validate({"host": host.strip("[]"), "port": port, "token": token})
    except ValidationError as error:
        words = [each["msg"].removeprefix("Value error, ") for each in error.errors()]
        raise InvalidInput([f"--http {address}: {text}" for text in words]) from None


def store_of(fleet: KafkaFleet, options: ThrottleOptions) -> FileStore:
    """The record of the cluster."""
    cluster = fleet.cluster_id()
    return FileStore(options.state or default_path(cluster), cluster)


def throttler_for(
    fleet: KafkaFleet,
    options: ThrottleOptions,
    store: ThrottleStore,
    plan: Targets | None = None,
    loads: LoadSource | None = None,
) -> Throttler:
    """A throttler that reports to the terminal."""
    context = Context(
        store=store,
        settings=options.settings(),
        clock=time.monotonic,
        wall=time.time,
        loads=loads,
        report=show_event,
    )
    return Throttler(fleet, context, toward(plan) if plan is not None else None)


def owned_targets(fleet: KafkaFleet, store: ThrottleStore) -> Targets | None:
    """The moves that our own commands throttle already; None, for all there are, when they throttle none."""
    owned = {
        (topic, entry.partition(":")[0]) for (topic, _), entries in store.ownership().lists.items() for entry in entries
    }
    moves = {key: move.target for key, move in fleet.moves().items() if (key.topic, str(key.partition)) in owned}
    return moves or None


def show_event(event: Event) -> None:
    typer.echo(f"{'warning: ' if event.warning else ''}{event.text}", err=True)


def chosen_throttle(given: str | None, options: ThrottleOptions) -> tuple[int | None, ThrottleOptions] | None:
    """What `apply --throttle` means: None for none, else a fixed rate or None for auto, and the options to use.

    Auto needs a capacity: without one a person is asked, and a script gets InvalidInput.
    """
    if given == NONE:
        return None
    if given not in (None, AUTO):
        try:
            return rate_of(given), options
        except ValueError as error:
            raise InvalidInput([f"--throttle: {error}; or auto, or none"]) from None
    if options.knows_capacity:
        return None, options
    if not sys.stdin.isatty():
        raise InvalidInput(
            [
                "how fast may replicas be copied? Give --capacity (what a broker's network carries, such as 10Gbit/s) "
                "so that clients keep theirs, or --throttle RATE for a fixed rate, or --throttle none"
            ]
        )
    answer = typer.prompt("How much does the network of a broker carry (10Gbit/s, 1250M), or 'none' for no throttle?")
    if answer.strip() == NONE:
        return None
    try:
        rate_of(answer)
    except ValueError as error:
        raise InvalidInput([str(error)]) from None
    return None, replace(options, capacity=answer)


def attempt(round_: Callable[[], bool]) -> bool | None:
    """One interval of a command that runs for hours: None when the cluster did not answer, which is shown."""
    try:
        return round_()
    except Retryable as error:
        typer.echo(f"warning: {error}; trying again at the next interval", err=True)
        return None
