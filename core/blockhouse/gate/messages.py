"""How every conversation begins. What follows is each system's own: further messages, distinguished by their `type`.

task                                   driver
                                            <- Challenge(nonce)
Hello(work, epoch, lease)        ->         <- Greeting(proof)      a system's own, with what else the task needs
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """One line. A field that is not known is an error: both ends are of one version."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Challenge(Message):
    """The driver's first line, before anybody is believed."""

    nonce: str


class Hello(Message):
    """`work` names what the lease works on; `nonce` is the challenge the driver must answer, `proof` the task's answer
    to the driver's.
    """

    type: Literal["hello"] = "hello"
    work: str
    epoch: int
    lease: int
    pid: int
    proof: str
    nonce: str


class Greeting(Message):
    """Accepted: `proof` answers the task's nonce."""

    proof: str
