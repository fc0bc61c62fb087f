"""The options of engines. They are checked without PyTorch, so that a mistake is answered at once."""

from dataclasses import dataclass, replace
from typing import TypedDict

from manyheads.config.device import check_device, check_gpu
from manyheads.config.messages import nearest
from manyheads.engine import ENGINES
from manyheads.errors import ConfigurationError

PRECISIONS = ("bf16", "tf32", "float32")


class EngineKeywords(TypedDict, total=False):
    """The fields of `EngineOptions`, as keywords of `train` and `resume`."""

    engine: str | None
    device: str | None
    workers: int | None
    address: str | None
    gpus_per_client: float | None
    precision: str | None
    profile: bool


@dataclass(frozen=True)
class EngineOptions:
    """The options that say how windows are run; an engine refuses what belongs to another.

    None stands for the default or, on resuming, for what the run was started with.

    >>> EngineOptions(engine="parallel", workers=2).workers
    2
    >>> EngineOptions(engine="plain", workers=2)
    Traceback (most recent call last):
    manyheads.errors.ConfigurationError: --workers 2: belongs to --engine parallel, not to plain; leave it out
    """

    engine: str | None = None  # plain, parallel, cuda or ray
    device: str | None = None  # cpu or cuda
    workers: int | None = None  # parallel: the number of processes; None: one per core
    address: str | None = None  # ray: HOST:PORT of a running cluster; None: one on this machine
    gpus_per_client: float | None = None  # ray: may be a fraction; None: all GPUs, divided evenly
    precision: str | None = None  # of a GPU: bf16, tf32 or float32
    profile: bool = False  # write a trace of two steps into the run folder

    def __post_init__(self) -> None:
        if self.engine is not None and self.engine not in ENGINES:
            raise ConfigurationError(f"--engine {self.engine}: unknown engine; {nearest(self.engine, ENGINES)}")
        if self.device is not None:
            check_device(self.device)
        if self.precision is not None and self.precision not in PRECISIONS:
            known = nearest(self.precision, PRECISIONS)
            raise ConfigurationError(f"--precision {self.precision}: unknown precision; {known}")
        if self.engine is not None:
            _check_together(self, self.engine)

    def continued(self, engine: str, device: str) -> "EngineOptions":
        """Return these options for a run that was started with this engine on this device."""
        if self.engine is not None:
            return self
        return replace(self, engine=engine, device=self.device or device)

    def for_nodes(self, nodes: int) -> "EngineOptions":
        """Return these options for a run that may have fewer clients, or groups, than the one they were given for.

        >>> EngineOptions(engine="parallel", workers=4).for_nodes(1).workers
        1
        """
        return self if self.workers is None else replace(self, workers=min(self.workers, nodes))

    def usual_device(self) -> str:
        """Return the device that is meant where none was given."""
        return self.device or ("cuda" if self.engine == "cuda" else "cpu")

    def without_gpu(self) -> str:
        """Return what to do where this needs a GPU and there is none."""
        return "use --engine parallel" if self.engine == "cuda" else "use cpu"

    def check_gpu(self) -> None:
        """Raise where a GPU is needed and this machine has none; with Ray, another machine may have it."""
        if self.engine != "ray":
            check_gpu(self.usual_device(), self.without_gpu())


@dataclass(frozen=True)
class ResolvedOptions(EngineOptions):
    """The options of engines with all defaults filled in, as `resolve_options` makes them."""

    engine: str = "plain"
    device: str = "cpu"
    precision: str = "float32"


def _check_together(options: EngineOptions, engine: str) -> None:
    """Refuse options that do not go with an engine, or not with each other."""
    belongs = {
        "workers": (options.workers, "parallel"),
        "address": (options.address, "ray"),
        "gpus-per-client": (options.gpus_per_client, "ray"),
    }
    for name, (value, owner) in belongs.items():
        if value is not None and engine != owner:
            raise ConfigurationError(f"--{name} {value}: belongs to --engine {owner}, not to {engine}; leave it out")
    on_cpu = options.device is None or options.device == "cpu"
    if engine == "cuda" and options.device == "cpu":
        raise ConfigurationError("--engine cuda --device cpu: it needs a GPU; for a CPU use --engine parallel")
    if engine == "parallel" and not on_cpu:
        raise ConfigurationError(
            f"--device {options.device}: the workers of --engine parallel train on the CPU; "
            "use --engine cuda, or --engine plain"
        )
    if engine != "cuda" and on_cpu and options.precision not in (None, "float32"):
        raise ConfigurationError(
            f"--precision {options.precision}: a CPU computes in float32; leave it out, or --device cuda"
        )
    if (share := options.gpus_per_client) is not None and share <= 0.0:
        raise ConfigurationError(f"--gpus-per-client {share}: must be above 0, such as 0.25")
    if share is not None and on_cpu:
        raise ConfigurationError(f"--gpus-per-client {share}: needs --device cuda")
