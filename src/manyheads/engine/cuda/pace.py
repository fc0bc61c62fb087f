"""How far the host may be ahead of the device."""

MOST_STEPS = 16  # between two looks at how far the device is
LOOK_SECONDS = 0.1  # between two looks, about, where steps are not longer than that


class Pace:
    """How many steps are handed to the device between two looks at how far it is.

    What was handed over cannot be taken back, and a run that is asked to stop waits for it: so there are few where
    steps take long. At most two looks' worth is under way.
    """

    def __init__(self) -> None:
        self.steps = 1

    def looked(self, seconds: float, steps: int) -> None:
        """So many steps were seen to take so long."""
        fitting = MOST_STEPS if seconds <= 0.0 else int(steps * LOOK_SECONDS / seconds)
        self.steps = max(1, min(fitting, 2 * self.steps, MOST_STEPS))
