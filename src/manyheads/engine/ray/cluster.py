"""Connecting to a Ray cluster, and sharing out its resources."""

import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from manyheads.engine.cores import usable_cores
from manyheads.engine.options import ResolvedOptions
from manyheads.errors import STOP_SIGNALS, ConfigurationError
from manyheads.imports import import_library

CONNECT_SECONDS = 12.0
PROBE = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"


def import_ray() -> Any:
    """Import Ray, which is optional, when it is needed."""
    try:
        return import_library("ray")
    except ImportError:
        raise ConfigurationError("--engine ray: Ray is not installed; pip install 'manyheads[ray]'") from None


def reason_of(error: Exception) -> str:
    """Return the line of Ray's message that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "because" in line), lines[0])


def connect(address: str | None) -> bool:
    """Connect to a cluster, or start one on this machine; return whether to disconnect at the end."""
    ray = import_ray()
    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", there):
            raise ConfigurationError(f"--address {address}: this process uses {there} already; ray.shutdown() first")
        return False
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS")
    here = {} if address else {"num_cpus": usable_cores(), "include_dashboard": False}
    if address:
        _probe(address)
    with _same_handlers():
        try:
            ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **here)
        except Exception as error:
            raise ConfigurationError(f"--engine ray: Ray does not start: {reason_of(error)}") from None
    return True


def _probe(address: str) -> None:
    """Try to connect in another process: Ray waits long for a cluster that is not there, and may end the process."""
    if address.startswith("ray://"):
        raise ConfigurationError(f"--address {address}: give HOST:PORT (usually port 6379) of a machine of the cluster")
    try:
        tried = subprocess.run(
            [sys.executable, "-P", "-c", PROBE, address],
            capture_output=True,
            text=True,
            timeout=CONNECT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"--address {address}: no Ray cluster answers within {CONNECT_SECONDS:.0f} s; "
            "was it started there (ray start --head), and is the port open?"
        ) from None
    if tried.returncode:
        said = [line for line in tried.stderr.splitlines() if line.strip()] or ["no reason was given"]
        raise ConfigurationError(f"--address {address}: no Ray cluster can be used there: {said[-1]}")


def free_resources() -> dict[str, float]:
    """Return the free resources of the cluster. What a lost run held may take a moment to become free."""
    ray = import_ray()
    deadline = time.monotonic() + 5.0
    while True:
        free: dict[str, float] = ray.available_resources()
        if free.get("CPU", 0.0) >= 1.0 or time.monotonic() > deadline:
            return free
        time.sleep(0.1)


def shares(free: Mapping[str, float], actors: int, options: ResolvedOptions) -> dict[str, float]:
    """Return what each actor asks for, so that all find a place at the same time."""
    cpus, gpus = int(free.get("CPU", 0.0)), int(free.get("GPU", 0.0))
    if cpus < 1:
        raise ConfigurationError("--engine ray: the cluster has no free CPU; wait until another job has ended")
    asks = {"num_cpus": share(cpus, actors)}
    if options.device != "cpu":
        if gpus < 1:
            raise ConfigurationError(f"--device {options.device}: the cluster has no free GPU; use --device cpu")
        given = options.gpus_per_client
        asks["num_gpus"] = share(gpus, actors) if given is None else given
    return asks


def share(units: int, actors: int) -> float:
    """Return an actor's share of a CPU or GPU: 1, or less if actors must share. Each holds a whole number of actors."""
    together = math.ceil(actors / units)
    return 1.0 if together <= 1 else math.floor(10_000 / together) / 10_000


@contextlib.contextmanager
def _same_handlers() -> Iterator[None]:
    """Restore our signal handlers: Ray puts its own in place of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
