"""What an algorithm drew for the steps of a window, all at once: inside a step there is no host work."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

Steps = NDArray[Any]  # an array with a leading axis of steps


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """Arrays with a leading axis of steps: those that manyheads understands, and an algorithm's own."""

    targets: Steps | None = None  # steps x targets: the entries of the pool that teach
    public: Steps | None = None  # steps x samples: positions in the public set, instead of the next ones of the stream
    view: Steps | None = None  # with `public`: the view that a step's samples are shown in
    private_step: Steps | None = None  # which batch of the private stream is due, where not every step takes one
    phase: Steps | None = None  # a number: steps of different phases do different work
    arrays: Mapping[str, Steps] = field(default_factory=dict)  # `batch.array(name)` and `batch.number(name)` read these

    def at(self, steps: int | slice) -> "WindowPlan":
        """Return the plan of a step, or of several."""
        known = {name: None if (own := getattr(self, name)) is None else own[steps] for name in UNDERSTOOD}
        return replace(self, **known, arrays={name: own[steps] for name, own in self.arrays.items()})

    @property
    def targets_per_step(self) -> int:
        """Return how many snapshots teach in each step."""
        return 0 if self.targets is None else int(self.targets.shape[1])


UNDERSTOOD = ("targets", "public", "view", "private_step", "phase")
