"""The plan of a window: all that an algorithm draws for its steps, at once, so that a step does no work on the host."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

Steps = NDArray[Any]  # an array with a leading axis of steps


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """Arrays with a leading axis of steps: those that manyheads understands, and an algorithm's own.

    >>> import numpy as np
    >>> plan = WindowPlan(targets=np.array([[0, 2], [1, 0]]), arrays={"ramp": np.array([0.0, 0.5])})
    >>> plan.at(1).targets, plan.at(1).arrays["ramp"]
    (array([1, 0]), np.float64(0.5))
    """

    # Steps x targets: the entries of the pool that teach; steps x targets x samples, if each sample has its own.
    targets: Steps | None = None
    public: Steps | None = None  # steps x samples: positions in the public set, instead of the next ones of the stream
    view: Steps | None = None  # with `public`: the view of a step's samples
    private_step: Steps | None = None  # which batch of the private stream is due, if not every step takes one
    phase: Steps | None = None  # the kind of step: steps of different phases do different work
    arrays: Mapping[str, Steps] = field(default_factory=dict)  # `batch.array(name)` and `batch.number(name)` read these

    def at(self, steps: int | slice) -> "WindowPlan":
        """Return the plan of a step, or of several steps."""
        known = {name: None if (own := getattr(self, name)) is None else own[steps] for name in PLAN_FIELDS}
        return replace(self, **known, arrays={name: own[steps] for name, own in self.arrays.items()})

    @property
    def targets_per_step(self) -> int:
        """The number of snapshots that teach in each step."""
        return 0 if self.targets is None else int(self.targets.shape[1])

    @property
    def samples_with_teachers(self) -> int | None:
        """The number of samples in a batch, if each has its own teachers."""
        return None if self.targets is None or self.targets.ndim == 2 else int(self.targets.shape[2])


PLAN_FIELDS = ("targets", "public", "view", "private_step", "phase")
