"""Which Ray is used: one already connected, one at an address, or one started for the while and stopped again."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Any

import pytest

from pnml.engines.cluster import cluster


class FakeRay(ModuleType):
    """Notes what is asked of it."""

    def __init__(self, *, connected: bool = False) -> None:
        super().__init__("ray")
        self.connected = connected
        self.asked: list[Any] = []

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, **options: Any) -> None:
        self.connected = True
        self.asked.append(options)

    def shutdown(self) -> None:
        self.connected = False
        self.asked.append("shutdown")


def install(monkeypatch: pytest.MonkeyPatch, *, connected: bool = False) -> FakeRay:
    fake = FakeRay(connected=connected)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.data", ModuleType("ray.data"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


def test_one_is_started_here_quietly_and_stopped_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch)
    seen = []

    def work() -> None:
        with cluster(cpus=3) as ray:
            seen.extend([ray, ray.is_initialized(), logging.getLogger("ray.data").level])
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert seen == [fake, True, logging.CRITICAL]
    (options, stopped) = fake.asked
    assert (options["address"], options["num_cpus"], options["include_dashboard"]) == ("local", 3, False)
    assert stopped == "shutdown"
    assert logging.getLogger("ray.data").level != logging.CRITICAL


def test_one_that_is_connected_is_used_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, connected=True)
    with cluster() as ray:
        assert ray is fake
    assert fake.asked == []
    with pytest.raises(ValueError, match="2 cores were asked for, but the Ray that is connected"), cluster(cpus=2):
        pass


def test_an_address_is_joined_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with cluster():
        pass
    (options, left) = fake.asked
    assert not {"address", "num_cpus", "include_dashboard"} & set(options)  # Ray reads the address itself
    assert left == "shutdown"
    with pytest.raises(ValueError, match=r"but 10\.0\.0\.1:6379 brings its own"), cluster(cpus=2):
        pass


def test_without_ray_its_install_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"the engine ray needs 'ray'.*pip install 'pnml\[ray\]'"), cluster():
        pass
