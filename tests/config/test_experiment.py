"""The configuration: to and from TOML, and one line for every mistake."""

import math
from pathlib import Path
from typing import Any

import pytest

from manyheads import ConfigurationError, Experiment, train
from manyheads.runs.read import read_experiment, read_summary
from manyheads.setup.notes import notes_of
from manyheads.setup.resolve import resolve

DIGITS = {"source": "digits"}
EXAMPLE = Path(__file__).parents[2] / "experiments" / "cifar100.toml"


def test_it_survives_a_round_trip(tiny: Experiment) -> None:
    again = Experiment.from_toml(str(tiny))
    assert again == tiny
    assert again.fingerprint() == tiny.fingerprint()


def test_a_completed_experiment_holds_every_default_and_is_complete(tiny: Experiment) -> None:
    short = Experiment(clients=4, data=DIGITS, model={"backbone": "cnn"})
    whole = resolve(short).experiment
    assert whole.algorithm.options()["ramp"] == {"hold": 0.0, "rise": 0.0}
    assert (whole.training.steps, whole.training.warmup_steps, whole.evaluate.every) == (4_000, 200, 1_000)
    assert [whole.algorithm.options()[key] for key in ("pool_size", "pool_every", "average_every")] == [4, 13, 50]
    assert whole.data.primary_labels.per_client == 2
    assert whole.data.private_fraction == 0.9
    assert resolve(Experiment.from_toml(str(whole))).experiment == whole


@pytest.mark.parametrize(
    ("data", "exchange", "ask"),
    [
        ({"augment": "none"}, "weights", "drawn"),
        ({}, "weights", "surest"),
        ({}, "predictions", "drawn"),  # in one view
        ({"public_views": 4}, "predictions", "surest"),
        ({"public_views": 4, "augment": "none"}, "predictions", "drawn"),
    ],
)
def test_the_surest_are_asked_where_samples_come_in_new_views(data: dict[str, Any], exchange: str, ask: str) -> None:
    short = Experiment(clients=4, data=DIGITS | data, model={"backbone": "cnn"}, algorithm={"exchange": exchange})
    knobs = resolve(short).experiment.algorithm.options()
    assert knobs["ask"] == ask
    assert (knobs["remember"] == 0.0) == (ask == "surest")


@pytest.mark.parametrize(("learning_rate", "expected"), [(0.03, 1.0), (0.05, 1.0), (0.2, 0.25), (0.5, 0.1)])
def test_own_labels_are_learnt_less_where_steps_are_long(
    tiny: Experiment, learning_rate: float, expected: float
) -> None:
    made = resolve(tiny.with_values(training={"learning_rate": learning_rate})).experiment
    assert made.algorithm.options()["own_labels"] == expected


def test_infinite_skew_survives(tiny: Experiment) -> None:
    assert math.isinf(Experiment.from_toml(str(tiny.with_values(data={"skew": math.inf}))).data.skew)


def test_what_does_not_decide_numbers_does_not_change_the_fingerprint(tiny: Experiment) -> None:
    assert tiny.with_values(training={"save_seconds": 1.0}).fingerprint() == tiny.fingerprint()
    assert tiny.with_values(training={"steps": 21}).fingerprint() != tiny.fingerprint()
    assert tiny.with_values(model={"heads_see": "embedding"}).fingerprint() == tiny.fingerprint()  # as by default
    assert tiny.with_values(algorithm={"nu_emb": 0.5}).fingerprint() != tiny.fingerprint()


def test_overrides(tiny_file: Path) -> None:
    made = Experiment.load(
        tiny_file, ["training.steps=7", "graph.name=cycle", "algorithm.ramp={hold=0.2, rise=0.1}", "data.skew=inf"]
    )
    assert made.training.steps == 7
    assert made.graph.name == "cycle"
    assert made.algorithm.options()["ramp"] == {"hold": 0.2, "rise": 0.1}
    assert math.isinf(made.data.skew)


def test_another_algorithm_starts_from_its_own_defaults(tiny: Experiment) -> None:
    assert tiny.with_values(algorithm={"name": "separate"}).algorithm.options() == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clients = 3\nclient = 4", 'client: unknown key; did you mean "clients"?'),
        ("clients = 3\n[training]\nstep = 4", 'training.step: unknown key; did you mean "steps"?'),
        ("clients = 3\n[data.primary_labels]\nper_clients = 4", 'did you mean "per_client"?'),
        ("seed = 1", "clients: missing; give a value"),
        ("client = 3", 'client: unknown key; did you mean "clients"?'),
        ("clients = 0", "clients = 0: input should be greater than 0"),
        ('clients = "eight"', 'clients = "eight": input should be a valid integer'),
        ("clients = 2.5", "clients = 2.5: input should be a valid integer"),
        ("clients = true", "clients = true: input should be a valid integer"),
        ("clients = 3\nseed = -1", "seed = -1: input should be greater than or equal to 0"),
        ("clients = 3\n[data]\nchannels = true", "data.channels = true: input should be 1 or 3"),
        ("clients = 3\n[data]\nskew = -1.0", "data.skew = -1.0: input should be greater than or equal to 0"),
        ("clients = 3\n[data]\nskew = nan", "data.skew = NaN"),
        ("clients = 3\n[data]\npublic_fraction = 1.5", "data.public_fraction = 1.5: input should be less than"),
        ("clients = 3\ndata = {source = 'digits', private_fraction = 0.95}", "public and validation parts leave 0.9"),
        (
            "clients = 3\ndata = {source = 'digits', validation_fraction = 0.95}",
            "together more than all training samples",
        ),
        (
            "clients = 3\n[training]\nbatch_size = 1",
            "training.batch_size = 1: input should be greater",
        ),
        ("clients = 3\n[training]\nlearning_rate = 1e300", "training.learning_rate = 1e+300"),
        (
            'clients = 3\n[data]\npartition = "random"',
            "data.partition = \"random\": input should be 'skew', 'dirichlet' or 'fine'",
        ),
        ('clients = 3\n[model]\nstem = "huge"', "model.stem = \"huge\": input should be 'small' or 'large'"),
        ("clients = 3\n[training]\nmomentum = 1.0", "training.momentum = 1.0"),
        ("clients = 3\n[training]\nlearning_rate = nan", "training.learning_rate = NaN"),
        ("clients = 3\ntraining = 4", "training = 4"),
        ("clients = 3\n[data.primary_labels]\nclients_per_label = 2", "clients_per_label goes with"),
        ("clients = = 3", "experiment: not valid TOML: Invalid value (at line 1, column 11)"),
    ],
)
def test_wrong_keys_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Experiment.from_toml(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("override", ["training.steps", "=3", "clients.x=3"])
def test_wrong_overrides(tiny_file: Path, override: str) -> None:
    with pytest.raises(ConfigurationError, match="--set"):
        Experiment.load(tiny_file, [override])


def test_no_file_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        Experiment.load(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not a text file"):
        Experiment.load(tmp_path / "binary.toml")


def test_the_example_of_the_paper_s_setting_loads() -> None:
    assert Experiment.load(EXAMPLE).clients == 8


def test_a_default_follows_what_it_depends_on() -> None:
    short = Experiment(clients=8, data=DIGITS)
    assert short.with_values(data={"public_fraction": 0.3}).data.private_share == pytest.approx(0.7)
    assert short.with_values(data={"public": "all"}).data.private_share == 1.0
    assert short.with_values(data={"validation_fraction": 0.1}).data.private_share == pytest.approx(0.8)


def test_a_section_without_a_name_means_the_default() -> None:
    made = Experiment.from_toml("clients = 3\n[data]\nsource = 'digits'\n[algorithm]\nnu_aux = 1.0\n[graph]\n")
    assert (made.algorithm.name, made.graph.name) == ("mhd", "complete")
    assert resolve(made).experiment.algorithm.options()["nu_aux"] == 1.0


def test_a_completed_graph_holds_its_defaults() -> None:
    phases: list[dict[str, Any]] = [{"steps": 5, "name": "islands"}, {"name": "random_regular"}]
    for graph, expected in (
        ({"name": "islands"}, {"size": 2}),
        ({"name": "phases", "phases": phases}, {"phases": [{**phases[0], "size": 2}, {**phases[1], "degree": 3}]}),
    ):
        whole = resolve(Experiment(clients=4, data=DIGITS, graph=graph, algorithm={"name": "separate"})).experiment
        assert whole.graph.options() == expected
        assert resolve(Experiment.from_toml(str(whole))).experiment == whole


def test_the_two_keys_without_a_default() -> None:
    for text, key in (("seed = 1", "clients"), ("clients = 3", "data.source"), ("clients = 3\n[data]", "data.source")):
        with pytest.raises(ConfigurationError, match=f"^{key}: missing; "):
            Experiment.from_toml(text if key != "clients" else "data = {source = 'digits'}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("alpha=3", "alpha: unknown key; did you mean data.alpha?"),
        ("algorithm={name='averaging', average_every=20", "the value is not valid TOML"),
        ("algorithm.name=FedAvg", 'FedAvg is "averaging" on the complete graph'),
        ("algorithm.name=FedMD", 'did you mean "fedmd"'),
        ("graph.name=ring", 'that is "cycle"'),
    ],
)
def test_what_people_write_is_understood(tiny_file: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        resolve(Experiment.load(tiny_file, [override]))
    assert message in str(error.value)


def test_a_folder_is_not_an_experiment(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder; give a TOML file"):
        Experiment.load(tmp_path)
    (tmp_path / "experiment.toml").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"its experiment is .*experiment.toml; continue it with: manyheads resume"
    ):
        Experiment.load(tmp_path)


def test_keys_without_effect_are_told_of(tiny: Experiment) -> None:
    told = {"top_k": 3, "send_embedding": False}
    given = tiny.with_values(algorithm=told, data={"public_views": 4})
    says = (
        "without effect, because no predictions are exchanged: "
        "algorithm.top_k, algorithm.send_embedding, data.public_views"
    )
    assert says in notes_of(resolve(given))
    assert says in notes_of(resolve(resolve(given).experiment))  # with all defaults filled in
    sent = given.with_values(algorithm={"exchange": "predictions"})
    for quiet in (tiny, resolve(tiny).experiment, sent.with_values(data={"augment": "crop-flip"})):
        assert not [note for note in notes_of(resolve(quiet)) if "without effect" in note]
    one_view = 'without effect, because data.augment = "none" has one view: data.public_views'
    assert one_view in notes_of(resolve(sent.with_values(data={"augment": "none"})))


def test_clients_without_a_primary_label_are_told_of(tiny: Experiment) -> None:
    labels = {"primary_labels": {"assignment": "even", "clients_per_label": 1}}
    told = notes_of(resolve(tiny.with_values(clients=12, data=labels)))
    assert any(
        note.startswith("2 of 12 clients have no primary label: use fewer clients, or raise data.primary_labels.cl")
        for note in told
    )
    assert not [note for note in notes_of(resolve(tiny)) if "no primary label" in note]


@pytest.mark.parametrize(
    "values",
    [
        {"seed": 2**70},
        {"seed": 2**63},
        {"groups": [[0, 1], [2**63]]},
        {"training": {"log_every": 2**63}},
        {"training": {"batch_size": 10**30}},
        {"evaluate": {"every": 2**64}},
        {"data": {"source": "digits", "classes": [1, 2**63]}},
        {"algorithm": {"name": "mhd", "top_k": 2**63}},
        {"graph": {"name": "islands", "size": -(2**64)}},
    ],
    ids=str,
)
def test_numbers_that_no_file_can_hold(values: dict[str, Any]) -> None:
    """A run with such a number could not be read back."""
    with pytest.raises(ConfigurationError, match=r": a number of more than 64 bits$") as error:
        Experiment(**{"clients": 3, "data": {"source": "digits"}, **values})
    assert "\n" not in str(error.value)


def test_the_largest_seed_is_read_back(tiny: Experiment, tmp_path: Path) -> None:
    largest = tiny.with_values(seed=2**63 - 1, training={"steps": 4}, evaluate={"every": 4})
    train(largest, tmp_path / "run")
    assert read_summary(tmp_path / "run").seed == read_experiment(tmp_path / "run").seed == 2**63 - 1
