"""Any value for any key: the experiment is found consistent and can be written and read, or one line says why not."""

import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from manyheads import Experiment
from manyheads.algorithms import ALGORITHMS
from manyheads.errors import ManyheadsError
from manyheads.graph import GRAPHS
from manyheads.setup.resolve import resolve
from tests.conftest import TINY

SMALL = str(Experiment(**TINY))
NUMBERS = (-1, 0, 1, 2, 3, 7, 127, 65_536, 10**6, 10**9, 2**63 - 1, 10**30)
FRACTIONS = (-1.0, -0.0, 5e-324, 1e-9, 0.3, 0.5, 1.0, 1.5, 1e20, 1e300)
WORDS = (
    "", " ", "x", "x" * 250, "../../x", "/etc/passwd", "/", ".", "/dev/zero", "/proc/self/mem", r"a\nb", r"\u0000",
    r"\u001b[2J", "²", "os:abort", "a:b:c", ":", "even", "all", "cycle", "density", "folder", "npz", "averaging",
)  # fmt: skip
OTHERS = (
    "true",
    "false",
    "nan",
    "inf",
    "-inf",
    "2020-01-01",
    "12:00:00",
    "{}",
    "{a = 1}",
    "[]",
    "[[]]",
    "[[0, 1], [2]]",
)
single = st.one_of(
    st.sampled_from(OTHERS),
    st.sampled_from(NUMBERS).map(str),
    st.sampled_from(FRACTIONS).map(str),
    st.sampled_from(WORDS).map('"{}"'.format),
)
values = st.one_of(single, st.lists(single, max_size=4).map(lambda inner: f"[{', '.join(inner)}]"))


def keys_of(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Name every key of a section, and of the sections within it."""
    for name, field in section.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from keys_of(field.annotation, f"{prefix}{name}.")


def settings_of_every_key() -> Iterator[tuple[str, ...]]:
    """For each key: the `--set` that it needs before it, if any, and its name."""
    for key in keys_of(Experiment):
        if key != "data.download":
            yield (key,)
    for section, entries in (("algorithm", ALGORITHMS), ("graph", GRAPHS)):
        for name, entry in entries.items():
            for field in dataclasses.fields(entry):  # type: ignore[arg-type]
                yield f"{section}.name={name}", f"{section}.{field.name}"
                if isinstance(field.type, type) and issubclass(field.type, BaseModel):
                    yield from ((f"{section}.{inner}",) for inner in keys_of(field.type, f"{field.name}."))


KEYS = sorted(settings_of_every_key())


def test_every_key_is_tried() -> None:
    assert {("seed",), ("data.primary_labels.per_client",), ("algorithm.ramp.hold",)} <= set(KEYS)
    assert {("algorithm.name=fedmd", "algorithm.nu_digest"), ("graph.name=edges", "graph.edges")} <= set(KEYS)
    assert len(KEYS) > 80


def refusal(overrides: list[str]) -> str | None:
    """Return what is said of a setting that is refused; of one that is not, check that it can be written and read."""
    try:
        found = resolve(Experiment.from_toml(SMALL, "small.toml", overrides)).experiment
    except ManyheadsError as error:
        return str(error)
    except OSError as error:  # a command shows both
        return f"{error.filename}: {error.strerror}"
    assert Experiment.from_toml(str(found)) == found
    return None


@settings(max_examples=800)
@given(key=st.sampled_from(KEYS), value=values)
def test_it_is_an_experiment_or_one_line(key: tuple[str, ...], value: str) -> None:
    *before, name = key
    said = refusal([*before, f"{name}={value}"])
    assert said is None or (said.isprintable() and 10 < len(said) < 700)


@pytest.mark.parametrize("value", ["1", '"x"', "nan", "[[0, 1]]"])
def test_an_unknown_key_is_named(value: str) -> None:
    with pytest.raises(ManyheadsError, match=r"^algorithm\.nu_axu: unknown key; did you mean \"nu_aux\"\?"):
        resolve(Experiment.from_toml(SMALL, "small.toml", [f"algorithm.nu_axu={value}"]))
