"""Text from elsewhere, as a terminal is shown it."""

from manyheads.errors import ConfigurationError, Interrupted, ManyheadsError, ModelError
from manyheads.printable import abridged


def test_an_error_is_one_line_whatever_names_it_holds() -> None:
    error = ConfigurationError('model.backbone = "a\nb\x1b[2J": unknown')
    assert str(error) == r'model.backbone = "a\nb\x1b[2J": unknown'
    assert str(ModelError("a\nb", "no")) == r"a\nb: no"
    assert str(Interrupted(None, 3)) == "stopped at step 3"


def test_a_long_error_keeps_its_beginning_and_its_end() -> None:
    line = str(ManyheadsError(f"data.path = {'x' * 1_000_000}: not found"))
    assert len(line) == 2_000
    assert line.startswith("data.path = xxx")
    assert line.endswith("xxx: not found")
    assert abridged(line) == line
