"""Ports: found free, and a taken one explained."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tallygate.engines.errors import EngineFailed, PortTaken
from tallygate.engines.ports import claim_port, free_port, holder_of, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this process listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_claim_port_names_port_purpose_setting_and_holder(taken: int) -> None:
    """The reader must know what to change, or whom to end, without looking anything up."""
    with pytest.raises(PortTaken) as refused:
        claim_port(taken, purpose="Valkey", setting="--owner-port")
    message = str(refused.value)
    assert all(part in message for part in (str(taken), "Valkey", "--owner-port", f"(pid {os.getpid()})"))


def test_claim_port_returns_a_free_port_as_it_is() -> None:
    """A fixed port is what gateways have in their settings."""
    port = free_port()
    assert port == claim_port(port, purpose="x", setting="--x")
    assert is_free(claim_port(0, purpose="x", setting="--x"))


@pytest.mark.parametrize("port", [-1, 65_536])
def test_claim_port_refuses_what_is_no_port(port: int) -> None:
    """The system's own error for it names neither the setting nor the value."""
    with pytest.raises(ValueError, match=f"--x: port {port} is not within 0 to 65535"):
        claim_port(port, purpose="x", setting="--x")


def test_holder_of_a_free_port_is_nobody() -> None:
    """A wrong name would send the reader to the wrong process."""
    assert holder_of(free_port()) is None


def test_is_free_says_when_the_address_is_not_ours() -> None:
    """It must not read as "taken": another port would not help."""
    with pytest.raises(EngineFailed, match=r"203\.0\.113\.1"):
        is_free(20_000, "203.0.113.1")
