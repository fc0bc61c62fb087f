"""Tables and pictures show the numbers that runs leave behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from manyheads import Experiment
from manyheads.report.advice import RunSettings
from manyheads.report.figures import accuracy_figure, compare_figure
from manyheads.report.frontier_figure import frontier_figure
from manyheads.report.plots import plot_run
from manyheads.report.relations_figures import hops_figure, matrix_figure, taught_figure
from manyheads.report.sentences import after_text, differences_text, no_gain_text
from manyheads.report.tables import compare_table, hop_table, run_table
from manyheads.report.taught_tables import taught_by_class_table, taught_table
from manyheads.runs.events import EvaluationEvent, Event, ProbeEvent, StartEvent, TaughtEvent
from manyheads.runs.relations import Relations
from manyheads.runs.summary import Summary

# Three clients in a row (2 learns from 1, 1 from 0), one primary label each, two auxiliary heads.
CHOSEN = [[[10, 0, 0], [10, 0, 0]], [[6, 4, 0], [2, 8, 0]], [[0, 5, 5], [0, 9, 1]]]  # students x heads x teachers
RIGHT = [[[5, 0, 0], [4, 0, 0]], [[6, 1, 0], [1, 8, 0]], [[0, 4, 0], [0, 3, 1]]]
CHOSEN_BY_CLASS = [[20, 8, 0], [5, 16, 5], [0, 0, 6]]  # teachers x classes
RIGHT_BY_CLASS = [[15, 1, 0], [0, 16, 0], [0, 0, 1]]
TAUGHT = {
    "step": 20,
    "own": [19, 19],
    "own_right": [6, 13],
    "others": [[6, 5, 0], [2, 9, 0]],
    "others_right": [[6, 4, 0], [1, 3, 0]],
    "chosen_by_class": CHOSEN_BY_CLASS,
    "right_by_class": RIGHT_BY_CLASS,
}
ACCURACY_ON = [
    [[0.9, 0.0, 0.1], [0.8, 0.0, 0.1], [0.7, 0.0, 0.1]],
    [[0.2, 0.8, 0.0], [0.6, 0.8, 0.0], [0.5, 0.7, 0.0]],
    [[0.0, 0.1, 0.7], [0.1, 0.5, 0.6], [0.4, 0.5, 0.5]],
]
BY_HOP = {"0": [0.8, 0.73, 0.63], "1": [0.15, 0.55, 0.5], "2": [0.0, 0.1, 0.4], "none": [0.03, 0.03, 0.03]}
PRIVATE = [[0.9, 0.8, 0.7], [0.8, 0.8, 0.7], [0.7, 0.6, 0.5]]
SHARED = [[0.3, 0.4, 0.45], [0.31, 0.5, 0.55], [0.32, 0.6, 0.65]]


def summary_values(**changes: Any) -> dict[str, Any]:
    clients = [
        {
            "name": f"client-{i}",
            "backbone": "cnn",
            "width": 16,
            "samples": 100 + i,
            "primary_labels": [i],
            "private_accuracy": PRIVATE[i],
            "shared_accuracy": SHARED[i],
        }
        for i in range(3)
    ]
    return {
        "algorithm": "mhd",
        "seed": 0,
        "version": "0",
        "data": "made",
        "image_shape": [1, 1, 1],
        "steps": 20,
        "seconds": 1.5,
        "classes": ["cat", "dog", "owl"],
        "private_accuracy": np.mean(PRIVATE, axis=0).tolist(),
        "shared_accuracy": np.mean(SHARED, axis=0).tolist(),
        "deploy": None,
        "by_hop": BY_HOP,
        "after": {},
        "taught": TAUGHT,
        "probe": None,
        "exchange": "weights",
        "bytes_received": [0, 2_000, 4_000],
        "bytes_received_total": 6_000,
        "clients": clients,
        **changes,
    }


def summary(**changes: Any) -> Summary:
    return Summary.model_validate(summary_values(**changes))


def with_one_head(**changes: Any) -> Summary:
    clients = [client | ONE_ACCURACY for client in summary_values()["clients"]]
    by_hop = {away: by_head[:1] for away, by_head in BY_HOP.items()}
    return summary(**ONE_ACCURACY | {"clients": clients, "by_hop": by_hop, "taught": None} | changes)


ONE_ACCURACY = {"private_accuracy": [0.97], "shared_accuracy": [0.8]}
NEW_KEYS = ("by_hop", "after", "taught", "probe", "exchange", "bytes_received_total")


def old_summary() -> Summary:
    """Return a summary as an earlier version wrote it."""
    old = {key: value for key, value in summary_values().items() if key not in NEW_KEYS}
    for client in old["clients"]:
        del client["backbone"], client["width"]
    return Summary.model_validate(old)


def headers(table: Table) -> list[str]:
    return [str(column.header).replace("\n", " ").strip() for column in table.columns]


def rows(table: Table) -> list[list[str]]:
    return [list(row) for row in zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True)]


def width(table: Table) -> int:
    """Return the width of the widest line, as a terminal shows it."""
    table.box, table.collapse_padding, table.pad_edge = SIMPLE_HEAD, True, False
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return max(len(line.rstrip()) for line in captured.get().splitlines())


def test_hops_are_rows_and_heads_are_columns() -> None:
    table = hop_table(summary())
    assert headers(table) == ["hops", "main", "aux 1", "aux 2"]
    assert rows(table) == [
        ["0 (own)", "80.0", "73.0", "63.0"],
        ["1", "15.0", "55.0", "50.0"],
        ["2", "0.0", "10.0", "40.0"],
        ["none", "3.0", "3.0", "3.0"],
    ]


def test_taught_says_who_taught_each_head_and_how_well() -> None:
    table = taught_table(summary())
    # Head 1: of 30 samples the own heads taught 10 + 4 + 5, rightly 5 + 1 + 0; of the 11 by others 6 + 4 were right.
    # Client 0 taught 6 samples of others, client 1 taught 5.
    assert rows(table) == [
        ["aux 1", "63.3", "31.6", "36.7", "90.9", "53.3", "client-0 (20.0)"],
        ["aux 2", "63.3", "68.4", "36.7", "36.4", "56.7", "client-1 (30.0)"],
    ]
    assert width(table) <= 80


def test_taught_says_what_was_missed_where_that_is_known() -> None:
    table = taught_table(summary(taught=TAUGHT | {"missed": [9, 0]}))
    assert headers(table)[5:] == ["all right", "right one missed", "other client chosen most"]
    assert [row[5:] for row in rows(table)] == [
        ["53.3", "30.0", "client-0 (20.0)"],
        ["56.7", "0.0", "client-1 (30.0)"],
    ]
    assert headers(taught_table(summary())) == [*headers(table)[:6], headers(table)[-1]]
    unknown = dict.fromkeys(("own_right", "others_right", "chosen_by_class", "right_by_class"))
    blind = taught_table(summary(taught=TAUGHT | {"missed": [9, 0]} | unknown))
    assert headers(blind) == ["head", "own heads", "other clients", "other client chosen most"]


def test_all_that_is_known_of_many_heads_and_clients_fits_a_terminal() -> None:
    always = {"own": [0] * 12, "own_right": [0] * 12, "others": [[1, 0, 9]] * 12, "others_right": [[1, 0, 9]] * 12}
    ours = summary(taught=TAUGHT | always | {"missed": [10] * 12})
    clients = [client.model_copy(update={"name": "client-12"}) for client in ours.clients]
    table = taught_table(ours.model_copy(update={"clients": clients}))
    assert rows(table)[-1] == ["aux 12", "0.0", "", "100.0", "100.0", "100.0", "100.0", "client-12 (90.0)"]
    assert width(table) < 80  # beside the last column, a terminal needs one more


def test_a_head_that_no_peer_taught_names_none() -> None:
    alone = {"own": [30], "own_right": [30], "others": [[0, 0, 0]], "others_right": [[0, 0, 0]]}
    table = taught_table(summary(taught={**TAUGHT, **alone}))
    assert rows(table) == [["aux 1", "100.0", "100.0", "0.0", "", "100.0", ""]]


def test_few_classes_have_a_row_each() -> None:
    table = taught_by_class_table(summary())
    assert rows(table) == [
        ["cat", "0", "80.0", "75.0", "20.0", "0.0", "client-0 (80.0)", "75.0"],
        ["dog", "1", "66.7", "100.0", "33.3", "12.5", "client-1 (66.7)", "100.0"],
        ["owl", "2", "54.5", "16.7", "45.5", "0.0", "client-2 (54.5)", "16.7"],
    ]
    assert width(table) <= 80


def test_many_classes_give_way_to_a_row_per_teacher() -> None:
    padded = {
        f"{key}_by_class": [row + [0] * 18 for row in counts]
        for key, counts in (("chosen", CHOSEN_BY_CLASS), ("right", RIGHT_BY_CLASS))
    }
    many = summary(classes=[str(label) for label in range(21)], taught={**TAUGHT, **padded})
    table = taught_by_class_table(many)
    assert rows(table) == [
        ["client-0", "46.7", "57.1", "33.3", "75.0", "13.3", "12.5"],
        ["client-1", "43.3", "61.5", "26.7", "100.0", "16.7", "0.0"],
        ["client-2", "10.0", "16.7", "10.0", "16.7", "0.0", ""],
    ]
    assert width(table) <= 80


def test_run_table_shows_what_was_received_once() -> None:
    table = run_table(summary())
    assert headers(table)[-1] == "received"
    assert [row[-1] for row in rows(table)] == ["0 B", "2.0 KB", "4.0 KB", "2.0 KB", "", "", "", ""]
    assert rows(table)[3][4:7] == ["80.0", "73.3", "63.3"]
    assert "received" not in headers(run_table(summary(bytes_received=[0, 0, 0])))
    assert table.caption is None


def test_run_table_names_backbones_only_where_they_differ() -> None:
    mixed = summary_values(bytes_received=[0, 0, 0])
    assert headers(run_table(Summary.model_validate(mixed)))[-1] == "aux 2"
    mixed["clients"][1]["width"] = 8
    table = run_table(Summary.model_validate(mixed))
    assert headers(table)[-1] == "backbone (width)"
    assert [row[-1] for row in rows(table)] == ["cnn (16)", "cnn (8)", "cnn (16)", ""] * 2


def test_run_table_calls_the_probe_an_upper_bound() -> None:
    caption = str(run_table(summary(probe=[0.9, 0.95, 0.97])).caption)
    assert caption.startswith("The embedding allows about 94.0 (90.0 to 97.0) % shared accuracy")


AFTER = {
    "digest": {"private_accuracy": [0.951], "shared_accuracy": [0.902]},
    "revisit": {"private_accuracy": [0.97], "shared_accuracy": [0.8]},
}


def test_states_in_which_an_algorithm_is_judged_have_a_line_each() -> None:
    assert after_text(summary(after=AFTER)) == [
        "after digest: private 95.1 %, shared 90.2 %",
        "after revisit: private 97.0 %, shared 80.0 %",
    ]
    heads = {"digest": {"private_accuracy": [0.5, 0.4], "shared_accuracy": [0.2, 0.3]}}
    assert after_text(summary(after=heads)) == ["after digest: private (main) 50.0 %, shared (aux 1) 30.0 %"]
    assert after_text(summary()) == []


def test_compare_shows_states_bytes_and_spread() -> None:
    later = {**AFTER, "digest": {"private_accuracy": [0.931], "shared_accuracy": [0.922]}}
    table = compare_table({"mhd": [summary()], "fedmd": [with_one_head(after=AFTER), with_one_head(after=later)]})
    heads = ["shared main", "shared aux 1", "shared aux 2"]
    assert headers(table) == ["run", "clients", "private main", *heads, "received per client", "seconds"]
    assert rows(table) == [
        ["mhd", "3", "80.0", "31.0", "50.0", "55.0", "2.0 KB", "1.5"],
        ["fedmd (after digest)", "3", "94.1 ± 1.4", "91.2 ± 1.4", "", "", "2.0 KB", "1.5"],
        ["fedmd (after revisit)", "3", "97.0 ± 0.0", "80.0 ± 0.0", "", "", "2.0 KB", "1.5"],
    ]


def test_what_runs_differ_in_is_said() -> None:
    ring = Experiment(clients=3, data={"source": "digits"}, graph={"name": "cycle"})
    few = ring.with_values(seed=1, algorithm={"exchange": "predictions", "ramp": {"hold": 0.5}})
    told = ring.with_values(algorithm={"exchange": "weights", "ramp": {"hold": 0.1}})
    other = ring.with_values(algorithm={"name": "x"})
    assert differences_text({"one": told.keys(), "two": few.keys(), "three": other.keys()}) == [
        'one: algorithm.name = "mhd", algorithm.exchange = "weights", algorithm.ramp.hold = 0.1',
        'two: algorithm.name = "mhd", algorithm.exchange = "predictions", algorithm.ramp.hold = 0.5',
        'three: algorithm.name = "x"',
    ]
    assert differences_text({"one": ring.keys(), "two": ring.with_values(seed=1).keys()}) == []
    wide = ring.with_values(model={"width": [8, 8, 16]})
    assert differences_text({"one": wide.keys(), "two": ring.keys()})[0] == "one: model.width = [8, 8, 16]"


def test_a_doubt_is_said_where_the_last_head_knows_less_than_the_main_one() -> None:
    settings = RunSettings("mhd", steps=20)
    assert no_gain_text([summary(shared_accuracy=[0.3, 0.4, 0.5], validation=None)], settings) is None
    worse = summary(shared_accuracy=[0.3, 0.4, 0.2], validation=None)
    assert "Distillation did not help" in str(no_gain_text([worse], settings))
    assert no_gain_text([with_one_head()], settings) is None


def test_old_summaries_are_shown_as_they_were() -> None:
    old = old_summary()
    assert len(rows(run_table(old))) == 8
    assert headers(run_table(old))[-1] == "received"
    assert rows(compare_table({"old": [old]}))[0][:3] == ["old", "3", "80.0"]
    for table in (hop_table(old), taught_table(old), taught_by_class_table(old)):
        assert table.row_count == 0
    assert after_text(old) == []


def evaluation(step: int, **more: Any) -> EvaluationEvent:
    values = {"step": step, "part": "test", "private_accuracy": PRIVATE, "shared_accuracy": SHARED}
    return EvaluationEvent.model_validate(values | more)


START = StartEvent(
    label_counts=[[9, 1, 0], [0, 9, 1], [1, 0, 9]],
    primary_labels=[[0], [1], [2]],
    class_names=["cat", "dog", "owl"],
    client_names=["berlin", "paris", "rome"],
)
TAUGHT_EVENT = TaughtEvent.model_validate(TAUGHT)
PAIRS = Relations(step=20, accuracy_on=ACCURACY_ON, chosen=CHOSEN, right=RIGHT)
BASIC = ["accuracy.png", "losses.png", "split.png"]


def run_folder(
    folder: Path, *events: Event, ended: Summary | None = None, pairs: Relations | None = None, start: Event = START
) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(event.model_dump_json() + "\n" for event in (start, *events)))
    for name, content in (("summary", ended), ("relations", pairs)):
        if content is not None:
            (folder / f"{name}.json").write_text(content.model_dump_json())
    return folder


ONE_HEAD = evaluation(20, private_accuracy=[[0.9]] * 3, shared_accuracy=[[0.5]] * 3, by_hop={"0": [0.9], "1": [0.1]})
OF_ONE_HEAD = Relations(step=20, accuracy_on=[[on[0]] for on in ACCURACY_ON])
NO_HEADS = TAUGHT_EVENT.model_copy(update={"own": [], "own_right": [], "others": [], "others_right": []})
OF_NO_HEADS = Relations(step=20, accuracy_on=ACCURACY_ON, chosen=[[], [], []], right=[[], [], []])


def test_a_run_of_one_client_has_no_pictures_of_pairs(tmp_path: Path) -> None:
    alone = StartEvent(label_counts=[[9]], primary_labels=[[]], class_names=["cat"], client_names=["rome"])
    judged = evaluation(20, private_accuracy=[[0.9]], shared_accuracy=[[0.8]], by_hop={"0": [0.9]})
    folder = run_folder(tmp_path / "run", judged, start=alone, pairs=Relations(step=20, accuracy_on=[[[0.9]]]))
    assert [path.name for path in plot_run(folder)] == BASIC


@pytest.mark.parametrize(
    ("events", "pairs", "more"),
    [
        ([evaluation(20)], None, []),  # as an earlier version wrote it
        ([evaluation(20, by_hop=BY_HOP), TAUGHT_EVENT], PAIRS, ["hops.png", "matrix.png", "taught.png"]),
        ([evaluation(20, by_hop=BY_HOP), TAUGHT_EVENT], None, ["hops.png"]),  # of many clients
        ([ONE_HEAD], OF_ONE_HEAD, ["hops.png", "matrix.png"]),
        ([evaluation(20, by_hop=BY_HOP), NO_HEADS], OF_NO_HEADS, ["hops.png", "matrix.png"]),
        ([], None, []),
    ],
)
def test_a_run_has_the_pictures_that_it_measured(
    tmp_path: Path, events: list[Event], pairs: Relations | None, more: list[str]
) -> None:
    folder = run_folder(tmp_path / "run", *events, pairs=pairs)
    paths = plot_run(str(folder))
    assert paths == [folder / "plots" / name for name in BASIC + more]
    assert {path.name for path in (folder / "plots").iterdir()} == {*BASIC, *more}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each line by its label; lines without a label are left out."""
    return {
        str(line.get_label()): [(float(x), round(float(y), 6)) for x, y in np.array(line.get_data()).T]
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def picture(axes: Axes) -> Any:
    shown: Any = axes.images[0].get_array()
    return np.ma.filled(shown, np.nan)


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_accuracy_shows_what_the_embedding_allows_in_the_shared_panel() -> None:
    events: list[Event] = [evaluation(10), evaluation(20), ProbeEvent(step=20, shared_accuracy=[0.9, 0.95, 0.97])]
    private, shared = accuracy_figure(events).axes
    assert lines(private)["main"] == [(10.0, 80.0), (20.0, 80.0)]
    assert lines(shared)["aux 2"] == [(10.0, 55.0), (20.0, 55.0)]
    assert [y for _, y in lines(shared)["embedding allows"]] == [94.0, 94.0]
    assert "embedding allows" not in lines(private)
    assert "embedding allows" not in lines(accuracy_figure(events[:2]).axes[1])


def test_accuracy_tells_the_states_of_an_algorithm_apart() -> None:
    events = [evaluation(10, after="digest"), evaluation(20, after="revisit"), evaluation(30, after="digest")]
    shown = lines(accuracy_figure(events).axes[1])
    assert len(shown["main"]) == 3
    assert [x for x, _ in shown["after digest"]] == [10.0, 30.0]
    assert [x for x, _ in shown["after revisit"]] == [20.0]


def test_hops_keep_what_cannot_arrive_apart() -> None:
    (axes,) = hops_figure(BY_HOP).axes
    assert lines(axes)["main"] == [(0.0, 80.0), (1.0, 15.0), (2.0, 0.0)]
    assert lines(axes)["aux 2"] == [(0.0, 63.0), (1.0, 50.0), (2.0, 40.0)]
    apart = [line.get_xydata() for line in axes.get_lines() if line.get_linestyle() == "None"]
    np.testing.assert_allclose(np.array(apart), [[[3.0, 3.0]]] * 3)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n(own)", "1", "2", "cannot\narrive"]


def test_matrix_shows_main_and_last_head_with_numbers_where_there_is_room() -> None:
    main, last, _ = matrix_figure(ACCURACY_ON).axes
    np.testing.assert_allclose(picture(main), [[90, 0, 10], [20, 80, 0], [0, 10, 70]])
    np.testing.assert_allclose(picture(last), [[70, 0, 10], [50, 70, 0], [40, 50, 50]])
    assert texts(last) == ["70", "0", "10", "50", "70", "0", "40", "50", "50"]
    assert len(matrix_figure([[on[0]] for on in ACCURACY_ON]).axes) == 2  # one head, and the colours
    for clients, written in ((12, 144), (13, 0)):
        axes = matrix_figure(np.zeros((clients, 2, clients)).tolist()).axes[0]
        assert len(texts(axes)) == written


def test_taught_shows_shares_by_student_and_right_answers_by_class() -> None:
    first, second, _, by_class, _ = all_axes(taught_figure(PAIRS, TAUGHT_EVENT, [[0], [1], [2]], ["cat", "dog", "owl"]))
    np.testing.assert_allclose(picture(first), [[100, 0, 0], [60, 40, 0], [0, 50, 50]])
    np.testing.assert_allclose(picture(second), [[100, 0, 0], [20, 80, 0], [0, 90, 10]])
    expected = np.array([[75, 12.5, np.nan], [0, 100, 0], [np.nan, np.nan, 100 / 6]])
    np.testing.assert_allclose(picture(by_class), expected)
    assert len(by_class.patches) == 3
    assert [label.get_text() for label in by_class.get_xticklabels()] == ["cat", "dog", "owl"]


def test_taught_leaves_many_classes_out() -> None:
    padded = {f"{key}_by_class": np.zeros((3, 31), dtype=int).tolist() for key in ("chosen", "right")}
    many = TaughtEvent.model_validate({**TAUGHT, **padded})
    figure = taught_figure(PAIRS, many, [[0], [1], [2]], [str(label) for label in range(31)])
    assert len(all_axes(figure)) == 3


def all_axes(figure: Figure) -> list[Axes]:
    """Return all axes from top to bottom, also those of subfigures."""
    parts: list[Any] = [*figure.subfigs] or [figure]
    return [axes for part in parts for axes in part.axes]


def test_compare_plots_every_evaluation_and_each_step_once(tmp_path: Path) -> None:
    better = (np.array(SHARED) + 0.1).tolist()
    events = [
        evaluation(10, after="digest"),
        evaluation(10, after="digest", shared_accuracy=better),  # the later one counts
        evaluation(20, after="revisit"),
        evaluation(20, part="validation", shared_accuracy=better),
    ]
    folders = [run_folder(tmp_path / "one", *events, ended=summary(after=AFTER))]
    folders.append(run_folder(tmp_path / "two", *events, ended=summary(shared_accuracy=[0.1, 0.2, 0.35])))
    over_time, at_end = compare_figure({"both": folders}).axes
    assert lines(over_time)["both"] == [(10.0, 65.0), (20.0, 55.0)]
    assert lines(at_end)["both"] == [(0.0, 20.5), (1.0, 35.0), (2.0, 45.0)]


def test_frontier_has_bytes_accuracy_and_spread() -> None:
    figure = frontier_figure(
        [
            ("top 8", "predictions", 5e5, [0.6, 0.7]),
            ("weights", "weights", 2e6, [0.72]),
            ("FedAvg", "averaging", 8e6, [0.8, 0.82, 0.84]),
            ("nobody", "nothing", 0, [0.2, 0.3]),
        ]
    )
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    low, high = axes.get_xlim()
    assert low < 5e5
    assert high > 8e6
    drawn = [bar.lines[0] for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
    points = np.concatenate([line.get_xydata() for line in drawn])
    np.testing.assert_allclose(points, [(5e5, 65.0), (2e6, 72.0), (8e6, 82.0)])
    assert texts(axes) == ["top 8", "weights", "FedAvg"]
    assert [to_hex(line.get_color()) for line in drawn] == [to_hex(f"C{number}") for number in range(3)]
    bars = [bar.lines[2][0].get_segments() for bar in axes.containers if bar.has_yerr]  # type: ignore[attr-defined]
    assert np.ptp(np.array(bars)[:, 0, :, 1], axis=1) == pytest.approx([2 * 100 * 0.1 / 2**0.5, 4.0])
    assert [y for _, y in lines(axes)["nobody (receives nothing)"]] == [25.0, 25.0]


def test_frontier_labels_do_not_cover_each_other() -> None:
    crowd = [(f"variant {number}", "predictions", 1e6 * 1.03**number, [0.5]) for number in range(4)]
    figure = frontier_figure([*crowd, ("far away", "weights", 3e7, [0.9])])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 5
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
