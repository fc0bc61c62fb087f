"""The pace of a replay: how far the host may be ahead of the device."""

MAX_STEPS = 16  # between two looks at the device
LOOK_SECONDS = 0.1  # about this long between two looks, unless a step takes longer


class Pace:
    """The number of steps that are handed to the device between two looks at its progress.

    Steps that were handed over cannot be taken back, and a run that is asked to stop waits for them; so there are few
    if steps take long. At most two looks' worth is under way.
    """

    def __init__(self) -> None:
        self.steps = 1

    def looked(self, seconds: float, steps: int) -> None:
        """Adapt to the time that these steps took."""
        fitting = MAX_STEPS if seconds <= 0.0 else int(steps * LOOK_SECONDS / seconds)
        self.steps = max(1, min(fitting, 2 * self.steps, MAX_STEPS))
