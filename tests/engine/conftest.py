"""A Ray instance for all tests that need one."""

import os
from collections.abc import Iterator

import pytest

from manyheads.engine.ray.cluster import connect


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    before = dict(os.environ)
    connect(None)
    yield
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)
