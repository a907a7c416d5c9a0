"""Which Ray is used: the connected one, the one at RAY_ADDRESS, or a new one that is stopped again."""

from __future__ import annotations

import logging
import os
import sys
from types import ModuleType
from typing import Any

import pytest

from pnml.engines.cluster import cluster


class FakeRay(ModuleType):
    """Records calls."""

    def __init__(self, *, connected: bool = False) -> None:
        super().__init__("ray")
        self.connected = connected
        self.calls: list[Any] = []

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, **options: Any) -> None:
        self.connected = True
        self.calls.append(options)

    def shutdown(self) -> None:
        self.connected = False
        self.calls.append("shutdown")


def install(monkeypatch: pytest.MonkeyPatch, *, connected: bool = False) -> FakeRay:
    fake = FakeRay(connected=connected)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.data", ModuleType("ray.data"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


def test_new_ray_is_started_quietly_and_stopped_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "")  # put back after the test
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    seen = []

    def work() -> None:
        with cluster(cpus=3) as ray:
            seen.extend([ray, ray.is_initialized(), logging.getLogger("ray.data").level])
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert seen == [fake, True, logging.CRITICAL]
    (options, stopped) = fake.calls
    assert (options["address"], options["num_cpus"], options["include_dashboard"]) == ("local", 3, False)
    assert stopped == "shutdown"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert logging.getLogger("ray.data").level != logging.CRITICAL


def test_connected_ray_is_used_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, connected=True)
    with cluster() as ray:
        assert ray is fake
    assert fake.calls == []
    with pytest.raises(ValueError, match="which the connected Ray determines itself, got 2"), cluster(cpus=2):
        pass


def test_missing_ray_raises_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"the engine ray needs 'ray'.*pip install 'pnml\[ray\]'"), cluster():
        pass
