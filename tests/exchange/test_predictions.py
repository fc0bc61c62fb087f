"""Tables of predictions: their encoding, what they leave out, what is refused, and what they teach."""

import contextlib
import dataclasses
import json
import math
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from manyheads import Experiment, resume, train
from manyheads.algorithms.base import Algorithm
from manyheads.algorithms.mhd import MHD
from manyheads.client.client import Client
from manyheads.config.types import Precision, Rest
from manyheads.data.batches import Pixels, Rows, Samples
from manyheads.engine.plain import exchange
from manyheads.errors import ConfigurationError, Interrupted, SnapshotError
from manyheads.exchange.message import DIGEST, MAGIC, Header, Table, decode
from manyheads.exchange.owner import Owner
from manyheads.exchange.received import PredictionsSnapshot, accept_message
from manyheads.exchange.request import PublicRows
from manyheads.exchange.row_format import RowFormat
from manyheads.exchange.schema import TableSchema
from manyheads.exchange.snapshot import Snapshot
from manyheads.outputs import Outputs
from manyheads.setup.build import Ensemble, assemble
from tests.contracts import train_by_hand, weights
from tests.runs.conftest import StopAt

PRECISIONS, RESTS = get_args(Precision), get_args(Rest)


def schema(form: RowFormat, names: NDArray[np.uint64], *, embedding: int = 0, rest: Rest = "spread") -> TableSchema:
    """Return a schema with a public sample for each name, in two views; they lie among twice as many others."""
    images = np.arange(2 * len(names)).astype(np.uint8).reshape(-1, 1, 1, 1)
    public = Samples(
        Pixels(images, torch.device("cpu")),
        None,
        1 + 2 * np.arange(len(names)),
        seed=0,
        purpose="public",
        client=0,
        augment="none",
        views_of=-1,
        views=2,
    )
    return TableSchema("this experiment", form, rest, (embedding,) * 3, public, names, whole=True)


def first_rows(count: int) -> PublicRows:
    """Return the rows of the first public samples in their first view."""
    return PublicRows(((np.arange(count), 0),))


def softmax(seed: int, *shape: int) -> Tensor:
    """Draw distributions from nearly even to nearly certain."""
    rng = np.random.default_rng(seed)
    sharpness = 10.0 ** rng.uniform(-1.0, 1.0, size=(*shape[:-1], 1))
    return torch.from_numpy((rng.standard_normal(shape) * sharpness).astype(np.float32)).softmax(-1)


@dataclasses.dataclass(frozen=True)
class TeacherAnswers:
    """The answers of a model about every row of a public set, and the table that holds them."""

    schema: TableSchema
    p_NHC: Tensor
    confidence_NH: Tensor
    embedding_NE: Tensor
    table: Table

    @property
    def form(self) -> RowFormat:
        return self.schema.form

    @property
    def rows(self) -> PublicRows:
        """The rows of the table."""
        return PublicRows.of(np.arange(len(self.schema.names_P)), np.arange(len(self.schema.names_P)) % 2)

    def accept(self, message: bytes) -> PredictionsSnapshot:
        return accept_message(self.schema, message, self.rows)


def answers_of(seed: int, rows: int, form: RowFormat, embedding: int = 0, rest: Rest = "spread") -> TeacherAnswers:
    rng = np.random.default_rng(seed)
    names = rng.integers(2**64, size=rows, dtype=np.uint64)
    p_NHC, embedding_NE = softmax(seed, rows, form.heads + 1, form.classes), rng.standard_normal((rows, embedding))
    confidence_NH, unit_NE = p_NHC.amax(-1), torch.from_numpy(embedding_NE.astype(np.float32))
    class_NHT, p_NHT = form.probabilities(p_NHC)
    arrays_of_rows: dict[str, Any] = {"names": names, "views": np.arange(rows) % 2}
    if class_NHT is not None:
        arrays_of_rows["classes"] = class_NHT
    arrays_of_rows["probabilities"] = p_NHT
    if form.confidence:
        arrays_of_rows["confidence"] = confidence_NH[:, : form.heads]
    if embedding:
        arrays_of_rows["embedding"] = form.embedding(unit_NE)
    layout = form.layout(rows, embedding)
    arrays = {name: np.asarray(array).astype(layout[name][0]) for name, array in arrays_of_rows.items()}
    header = Header(
        version=1, experiment="this experiment", client=2, step=7, rows=rows, embedding=embedding, form=form
    )
    known = schema(form, names, embedding=embedding, rest=rest)
    return TeacherAnswers(known, p_NHC[:, : form.heads], confidence_NH[:, : form.heads], unit_NE, Table(header, arrays))


@st.composite
def forms(draw: st.DrawFn) -> RowFormat:
    classes = draw(st.integers(2, 300))
    return RowFormat(
        classes=classes,
        heads=draw(st.integers(1, 3)),
        top_k=draw(st.one_of(st.just(classes), st.integers(1, classes))),
        precision=draw(st.sampled_from(PRECISIONS)),
        confidence=draw(st.booleans()),
    )


tables = st.builds(
    answers_of,
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 6),
    form=forms(),
    embedding=st.integers(0, 64),
    rest=st.sampled_from(RESTS),
)


def all_rows(known: TableSchema) -> Rows:
    """Return every public sample in the view that it has in the table above."""
    samples = torch.from_numpy(known.public.indices)
    return Rows(samples, torch.arange(len(samples)) % 2, torch.zeros(len(samples), 1))


@given(answers=tables)
def test_decoding_returns_what_was_encoded(answers: TeacherAnswers) -> None:
    message = answers.table.encode()
    found = decode(message)
    assert found.header == answers.table.header
    assert list(found.arrays) == list(answers.table.arrays)
    for name, array in answers.table.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert np.array_equal(found.arrays[name], array)
    assert Table(found.header, found.arrays).encode() == message
    snapshot = answers.accept(message)
    assert (snapshot.client, snapshot.step, snapshot.nbytes) == (2, 7, len(message))
    assert torch.frombuffer(bytearray(message), dtype=torch.uint8).equal(snapshot.tensors()["message"])


@given(answers=tables)
def test_the_size_of_a_message_follows_from_its_header(answers: TeacherAnswers) -> None:
    form, header = answers.form, answers.table.header
    each = {"float32": 4, "float16": 2, "uint8": 1}[form.precision]
    named = 0 if form.top_k == form.classes else 1 if form.classes <= 256 else 2
    row = 8 + 2 + form.heads * form.top_k * (each + named) + (2 * form.heads if form.confidence else 0)
    row += header.embedding * (4 if form.precision == "float32" else 1)
    beside = len(MAGIC) + DIGEST + 4 + len(header.encoded)
    assert len(answers.table.encode()) == beside + header.rows * row


@given(answers=tables)
def test_what_is_sent_is_as_precise_as_promised(answers: TeacherAnswers) -> None:
    """float32 is exact, float16 right to 2^-11 of itself, uint8 to half of 1/255; so is the embedding's direction."""
    form, arrays = answers.form, decode(answers.table.encode()).arrays
    exact_NHT = answers.p_NHC.sort(dim=-1, descending=True).values[..., : form.top_k]
    if "classes" in arrays:
        chosen = torch.from_numpy(arrays["classes"].astype(np.int64))
        assert torch.equal(answers.p_NHC.gather(-1, chosen), exact_NHT), "not the largest ones"
    else:
        exact_NHT = answers.p_NHC
    sent_NHT = torch.from_numpy(arrays["probabilities"].astype(np.float64))
    apart_NHT = sent_NHT / (255.0 if form.precision == "uint8" else 1.0) - exact_NHT.double()
    if form.precision == "float32":
        assert (apart_NHT == 0.0).all()
    elif form.precision == "float16":
        assert (apart_NHT.abs() <= exact_NHT.double() * 2.0**-11 + 2.0**-25).all()
    else:
        assert (apart_NHT.abs() <= 0.5 / 255.0 + 1e-6).all()
    if form.confidence:
        measured = torch.from_numpy(arrays["confidence"].astype(np.float32))
        assert ((measured - answers.confidence_NH).abs() <= 2.0**-11).all()
    if "embedding" in arrays:
        received = answers.accept(answers.table.encode()).outputs(all_rows(answers.schema)).embedding_BE
        assert received is not None
        assert (torch.cosine_similarity(received, answers.embedding_NE, dim=-1) > 0.999).all()


@given(answers=tables)
def test_what_is_not_sent_is_spread_or_left_out(answers: TeacherAnswers) -> None:
    """The reference is a loop over rows, heads and classes in float64."""
    form, arrays = answers.form, answers.table.arrays
    outputs = answers.accept(answers.table.encode()).outputs(all_rows(answers.schema))
    assert outputs.probabilities_BHC.shape == answers.p_NHC.shape
    for row in range(len(answers.p_NHC)):
        for head in range(form.heads):
            sent = [
                float(p) / (255.0 if form.precision == "uint8" else 1.0) for p in arrays["probabilities"][row, head]
            ]
            named = arrays["classes"][row, head].tolist() if "classes" in arrays else list(range(form.classes))
            left = max(0.0, 1.0 - sum(sent)) if answers.schema.rest == "spread" else 0.0
            # A class that is not named is at most as likely as the last one that is.
            expected = [min(left / max(1, form.classes - len(named)), sent[-1])] * form.classes
            for label, p in zip(named, sent, strict=True):
                expected[label] = p
            total = sum(expected)
            expected = [p / total if total > 0.0 else 1.0 / form.classes for p in expected]
            torch.testing.assert_close(
                outputs.probabilities_BHC[row, head].double(),
                torch.tensor(expected, dtype=torch.float64),
                rtol=1e-4,
                atol=1e-6,
            )
            assert sum(expected) == pytest.approx(1.0, abs=2e-3)
    if outputs.confidence_BH is not None:
        assert torch.equal(outputs.confidence_BH, torch.from_numpy(arrays["confidence"]).float())
    assert (outputs.confidence_BH is not None) == form.confidence


@given(seed=st.integers(0, 2**31), classes=st.integers(2, 300))
def test_all_classes_in_float32_are_the_bits_that_the_model_gave(seed: int, classes: int) -> None:
    """A score, the logarithm of a small probability, is therefore the owner's."""
    form = RowFormat(classes=classes, heads=2, top_k=classes, precision="float32", confidence=False)
    answers = answers_of(seed, 4, form)
    outputs = answers.accept(answers.table.encode()).outputs(all_rows(answers.schema))
    assert torch.equal(outputs.probabilities_BHC, answers.p_NHC)


@given(tables)
def test_quantizing_gives_what_a_message_gives(answers: TeacherAnswers) -> None:
    """The bits are the same, so a GPU need not encode and decode to train on what would be received."""
    message = answers.table.encode()
    assert len(message) == answers.table.header.message_size
    received = answers.accept(message).outputs(all_rows(answers.schema))
    quantized = answers.schema.quantized(
        Outputs(answers.p_NHC, answers.embedding_NE, answers.confidence_NH), torch.float32
    )
    assert torch.equal(quantized.probabilities_BHC, received.probabilities_BHC)
    for ours, theirs in (
        (quantized.embedding_BE, received.embedding_BE),
        (quantized.confidence_BH, received.confidence_BH),
    ):
        assert (ours is None) == (theirs is None)
        assert ours is None or theirs is None or torch.equal(ours, theirs)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_quantized_outputs_of_a_client_are_those_of_its_message(tiny: Experiment, precision: str) -> None:
    client = assemble(predictions(tiny, precision=precision, top_k=3)).clients[0]
    assert client.schema is not None
    rows, shown = client.schema.public.rows_in_view(np.arange(20), 0, torch.float32), client.snapshot(0)
    received = accept_message(client.schema, client.schema.encode(shown, first_rows(20)), first_rows(20)).outputs(rows)
    quantized = client.schema.quantized(shown.outputs(rows), torch.float32)
    assert torch.equal(quantized.probabilities_BHC, received.probabilities_BHC)
    assert quantized.embedding_BE is not None
    assert received.embedding_BE is not None
    assert torch.equal(quantized.embedding_BE, received.embedding_BE)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_diverged_model_says_nothing(tiny: Experiment, precision: str) -> None:
    """In 8 bits, NaN would look like a number."""
    ensemble = assemble(predictions(tiny, precision=precision, top_k=3))
    asker, client, other = ensemble.clients
    for diverged in (client, other):
        diverged.state.values.fill_(1e38)
    assert client.schema is not None
    with pytest.raises(SnapshotError, match=r"client 1, step 4: holds a probability that is not a number; "):
        client.schema.encode(client.snapshot(4), first_rows(20))
    exchange(ensemble, step=4)
    assert asker.refused == 1
    assert asker.pool.entries == []
    rows = client.schema.public.rows_in_view(np.arange(20), 0, torch.float32)
    assert client.schema.quantized(client.snapshot(4).outputs(rows), torch.float32).probabilities_BHC.isnan().all()


@given(
    classes=st.one_of(st.integers(2, 300), st.sampled_from([1_000, 32_769, 65_000, 65_536])),
    share=st.floats(0.0, 1.0),
    sharpness=st.sampled_from([0.0, 1e-3, 1.0, 10.0, 1e3]),
    precision=st.sampled_from(PRECISIONS),
    seed=st.integers(0, 2**31),
)
def test_the_output_of_a_softmax_is_accepted(
    classes: int, share: float, sharpness: float, precision: Precision, seed: int
) -> None:
    """Even or certain, with one class or all, whatever rounding does: it is accepted and read as a distribution."""
    form = RowFormat(
        classes=classes, heads=1, top_k=max(1, round(share * classes)), precision=precision, confidence=False
    )
    logits = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 1, classes))) * sharpness
    class_BHT, p_BHT = form.probabilities(logits.float().softmax(-1))
    arrays = {"names": np.arange(2), "views": np.zeros(2), "classes": class_BHT, "probabilities": p_BHT}
    header = Header(version=1, experiment="", client=0, step=0, rows=2, embedding=0, form=form)
    layout = form.layout(2, 0)
    decode(Table(header, {name: np.asarray(arrays[name]).astype(kind) for name, (kind, _) in layout.items()}).encode())
    for rest in RESTS:
        read_BHC = form.all_probabilities(class_BHT, p_BHT, rest, torch.float32)
        torch.testing.assert_close(read_BHC.double().sum(-1), torch.ones(2, 1).double(), rtol=0.0, atol=1e-3)


@given(
    classes=st.integers(2, 300),
    sharpness=st.sampled_from([0.0, 1.0, 10.0]),
    share=st.floats(0.0, 0.95),
    precision=st.sampled_from(["float32", "float16"]),
    seed=st.integers(0, 2**31),
)
def test_all_classes_that_add_up_to_less_than_1_are_refused(
    classes: int, sharpness: float, share: float, precision: Precision, seed: int
) -> None:
    form = RowFormat(classes=classes, heads=1, top_k=classes, precision=precision, confidence=False)
    logits = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 1, classes))) * sharpness
    _, p_BHT = form.probabilities(logits.softmax(-1) * share)
    header = Header(version=1, experiment="", client=0, step=0, rows=2, embedding=0, form=form)
    arrays = {"names": np.arange(2, dtype="<u8"), "views": np.zeros(2, "<u2"), "probabilities": p_BHT.numpy()}
    with pytest.raises(SnapshotError, match="add up to"):
        decode(Table(header, arrays).encode())


@pytest.mark.parametrize("rest", RESTS)
def test_probabilities_are_divided_by_the_total_that_was_sent(rest: Rest) -> None:
    """A tiny total is no exception: `decode` refuses it, `all_probabilities` does not."""
    form = RowFormat(classes=4, heads=1, top_k=2, precision="float32", confidence=False)
    p_BHT = torch.tensor([[[3e-20, 1e-20]]])
    read_BHC = form.all_probabilities(torch.tensor([[[2, 0]]]), p_BHT, rest, torch.float32)
    assert float(read_BHC.sum()) == pytest.approx(1.0)
    assert int(read_BHC.argmax()) == 2


# Messages that somebody else could send.

FORM = RowFormat(classes=5, heads=2, top_k=3, precision="float32", confidence=True)
GOOD = answers_of(1, 4, FORM, embedding=3)
MESSAGE = GOOD.table.encode()


def sealed(content: bytes) -> bytes:
    """Return a message of these bytes with a correct checksum."""
    return MAGIC + sha256(content).digest() + content


def crafted(header: dict[str, Any] | None = None, **arrays: NDArray[Any]) -> bytes:
    """Return the good message with some of its contents replaced."""
    kept = GOOD.table.header.model_dump() | (header or {})
    return Table(Header(**kept), GOOD.table.arrays | arrays).encode()


def with_form(**values: Any) -> dict[str, Any]:
    return {"form": {**FORM.model_dump(), **values}}


def set_to(name: str, value: float, at: tuple[int, ...]) -> NDArray[Any]:
    changed = GOOD.table.arrays[name].copy()
    changed[at] = value
    return changed


def accepted(message: bytes) -> PredictionsSnapshot:
    return GOOD.accept(message)


def test_the_good_message_is_good() -> None:
    assert accepted(MESSAGE).nbytes == len(MESSAGE)
    assert crafted() == MESSAGE


@settings(max_examples=200)
@given(size=st.integers(0, len(MESSAGE) - 1))
def test_a_truncated_message_is_refused(size: int) -> None:
    with pytest.raises(SnapshotError):
        accepted(MESSAGE[:size])


@settings(max_examples=100)
@given(more=st.binary(min_size=1, max_size=64), in_front=st.booleans())
def test_an_extended_message_is_refused(more: bytes, in_front: bool) -> None:
    with pytest.raises(SnapshotError):
        accepted(more + MESSAGE if in_front else MESSAGE + more)


@settings(max_examples=300)
@given(at=st.integers(0, len(MESSAGE) - 1), flip=st.integers(1, 255))
def test_a_message_with_a_changed_byte_is_refused(at: int, flip: int) -> None:
    changed = bytearray(MESSAGE)
    changed[at] ^= flip
    with pytest.raises(SnapshotError):
        accepted(bytes(changed))


@settings(max_examples=300)
@given(at=st.integers(len(MAGIC) + DIGEST, len(MESSAGE) - 1), flip=st.integers(1, 255))
def test_a_changed_byte_under_a_right_checksum_is_good_or_refused(at: int, flip: int) -> None:
    """Any other error or warning fails this test."""
    changed = bytearray(MESSAGE)
    changed[at] ^= flip
    with contextlib.suppress(SnapshotError):
        answers = accepted(sealed(bytes(changed[len(MAGIC) + DIGEST :]))).outputs(all_rows(GOOD.schema))
        assert answers.probabilities_BHC.isfinite().all()
        assert (answers.probabilities_BHC.sum(-1) < 1.01).all()


@settings(max_examples=300)
@given(content=st.binary(max_size=300), as_message=st.sampled_from(["raw", "magic", "sealed", "header"]))
def test_random_bytes_are_refused(content: bytes, as_message: str) -> None:
    made = {
        "raw": content,
        "magic": MAGIC + content,
        "sealed": sealed(content),
        "header": sealed(struct.pack("<I", len(content)) + content),
    }
    with pytest.raises(SnapshotError):
        accepted(made[as_message])


P, CLASSES, NAMES = (GOOD.table.arrays[name] for name in ("probabilities", "classes", "names"))
VIEWS, MEASURED = GOOD.table.arrays["views"], GOOD.table.arrays["confidence"]
STRANGE = 0xDEADBEEF
CRAFTED: dict[str, tuple[bytes, str]] = {
    "a probability that is not a number": (
        crafted(probabilities=set_to("probabilities", math.nan, (1, 0, 0))),
        "probability that is not a number",
    ),
    "an infinite probability": (
        crafted(probabilities=set_to("probabilities", math.inf, (1, 0, 0))),
        "probability that is not a number",
    ),
    "a confidence that is not a number": (
        crafted(confidence=set_to("confidence", math.nan, (0, 1))),
        "confidence that is not a number",
    ),
    "an embedding that is not a number": (
        crafted(embedding=set_to("embedding", math.inf, (3, 2))),
        "embedding that is not a number",
    ),
    "a negative probability": (crafted(probabilities=set_to("probabilities", -0.1, (2, 1, 2))), "below 0"),
    "probabilities that are not sorted": (crafted(probabilities=P[..., ::-1]), "not sorted"),
    "probabilities of more than 1 in sum": (crafted(probabilities=np.full_like(P, 0.34)), "above 1 in sum"),
    "a probability above 1": (crafted(probabilities=set_to("probabilities", 1.5, (0, 0, 0))), "above 1"),
    "probabilities whose sum is no float": (crafted(probabilities=np.full_like(P, 3e38)), "above 1 in sum"),
    "probabilities that are all 0": (crafted(probabilities=np.zeros_like(P)), "add up to 0;"),
    "probabilities that are nearly 0": (crafted(probabilities=np.full_like(P, 1e-9)), "add up to 3e-09;"),
    "one row whose sum is too small": (crafted(probabilities=set_to("probabilities", 0.1, (2, 1))), "add up to 0.3;"),
    "a class that does not exist": (crafted(classes=set_to("classes", 5, (0, 1, 1))), "does not exist"),
    "a class twice": (crafted(classes=set_to("classes", CLASSES[3, 0, 0], (3, 0, 2))), "names a class twice"),
    "a row twice": (
        crafted(names=set_to("names", NAMES[0], (2,)), views=set_to("views", VIEWS[0], (2,))),
        "holds a row twice",
    ),
    "a confidence above 1": (crafted(confidence=np.full_like(MEASURED, 60_000.0)), "confidence"),
    "a negative confidence": (crafted(confidence=np.full_like(MEASURED, -1.0)), "confidence"),
    "another experiment": (crafted({"experiment": "another"}), "made for another experiment"),
    "a client that does not exist": (crafted({"client": 3}), "there are only 3 clients"),
    "another precision": (
        crafted(with_form(precision="float16"), probabilities=P.astype("<f2"), embedding=np.zeros((4, 3), "i1")),
        "in float16, with confidence, an embedding of 3, which is not what this experiment exchanges",
    ),
    "fewer classes in a row": (
        crafted(with_form(top_k=2), classes=CLASSES[..., :2], probabilities=P[..., :2]),
        "holds the 2 largest of 5 classes",
    ),
    "fewer heads": (
        crafted(with_form(heads=1), classes=CLASSES[:, :1], probabilities=P[:, :1], confidence=MEASURED[:, :1]),
        "of 1 heads",
    ),
    "another number of classes": (crafted(with_form(classes=6)), "of 6 classes"),
    "an embedding of another width": (crafted({"embedding": 2}, embedding=np.zeros((4, 2), "<f4")), "embedding of 2"),
    "more classes in a row than there are": (crafted(with_form(top_k=6)), "top_k = 6 of 5 classes; at most 5"),
    "a sample that is not in the public set": (crafted(names=set_to("names", STRANGE, (1,))), "00000000deadbeef"),
    "a view that does not exist": (crafted(views=set_to("views", 9, (1,))), "view 9; data.public_views = 2"),
    "too few bytes": (crafted(embedding=np.zeros((4, 2), "<f4")), "bytes of arrays instead of"),
    "too many bytes": (crafted(views=np.zeros(5, "<u2")), "bytes of arrays instead of"),
    "no arrays at all": (
        sealed(struct.pack("<I", len(header := GOOD.table.header.encoded)) + header),
        "the message holds 0 bytes of arrays",
    ),
    "a header that is not JSON": (sealed(struct.pack("<I", 7) + b"nothing" + bytes(99)), "version 1"),
    "a header that is not text": (sealed(struct.pack("<I", 3) + b"\xff\xfe\x00"), "version 1"),
    "a header of lists within lists": (sealed(struct.pack("<I", 9_999) + b"[" * 9_999), "version 1"),
    "a header longer than the message": (sealed(struct.pack("<I", 2**32 - 1) + b"{}"), "version 1"),
    "an empty header": (sealed(struct.pack("<I", 0)), "version 1"),
    "another program": (b"GIF89a" + MESSAGE, "not a message of predictions"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_message_is_refused_in_one_line_that_says_why(name: str) -> None:
    message, reason = CRAFTED[name]
    with pytest.raises(SnapshotError) as error:
        accepted(message)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    if message[: len(MAGIC)] == MAGIC and "version 1" not in reason:
        assert str(error.value).startswith(("client 2, step 7: ", "client 3, step 7: "))


def raw_header(**values: Any) -> bytes:
    """Return a message with any values in its header."""
    header = json.loads(GOOD.table.header.model_dump_json())
    form = {key: values.pop(key) for key in list(values) if key in header["form"]}
    content = json.dumps(header | values | {"form": header["form"] | form}).encode()
    return sealed(struct.pack("<I", len(content)) + content)


HUGE: list[dict[str, Any]] = [
    {"rows": 2**62},
    {"rows": 10**40},
    {"embedding": 10**15},
    {"heads": 2**62},
    {"rows": 0, "heads": 2**60},
    {"rows": 0, "heads": 10**40},
    {"rows": 0, "embedding": 2**62},
    {"classes": 2**40, "top_k": 2**40},
    {"top_k": 10**30},
    {"rows": -1},
    {"heads": 0},
    {"rows": 1e300},
    {"rows": True},
    {"version": 2},
    {"client": 10**30},
    {"colour": "red"},
    {"precision": "float64"},
]


@pytest.mark.parametrize("values", HUGE, ids=str)
def test_numbers_in_the_header_are_not_trusted(values: dict[str, Any]) -> None:
    """They ask for more memory than there is; nothing is allocated before the message's length is compared."""
    with pytest.raises(SnapshotError) as error:
        accepted(raw_header(**values))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_table_that_lacks_a_row_is_refused_when_it_arrives() -> None:
    lacking = {name: array[1:] for name, array in GOOD.table.arrays.items()}
    with pytest.raises(SnapshotError, match=f"lacks sample {int(NAMES[0]):016x}, view 0, and 0 more"):
        accepted(crafted({"rows": 3}, **lacking))


def test_a_table_with_rows_that_nobody_asked_for_is_refused() -> None:
    asked = PublicRows.of(np.arange(3), np.arange(3) % 2)
    with pytest.raises(SnapshotError, match="answers 4 rows where 3 were asked"):
        accept_message(GOOD.schema, MESSAGE, asked)


def test_rows_are_withheld_only_if_the_format_allows_it() -> None:
    with pytest.raises(SnapshotError, match="version 1"):
        accepted(raw_header(rows=3, withheld=1))


def test_nothing_that_is_withheld_is_read(tiny: Experiment) -> None:
    """Withheld rows are named in the message, and whoever reads them sees that they are not known."""
    client = assemble(tiny.with_values(algorithm={"exchange": "predictions", "precision": "float32"})).clients[0]
    assert client.schema is not None
    form = client.schema.form.model_copy(update={"withholds": True})
    schema, kept = dataclasses.replace(client.schema, form=form), client.snapshot(0)
    answered, withheld = first_rows(6), PublicRows(((np.arange(6, 9), 0),))
    message = schema.encode(kept, answered, withheld)
    assert len(message) == schema.header(kept, answered, withheld).message_size
    snapshot, direct = (
        accept_message(schema, message, first_rows(9)),
        accept_message(client.schema, client.schema.encode(kept, answered), answered),
    )
    rows, known = (schema.public.rows_in_view(np.arange(count), 0, torch.float32) for count in (9, 6))
    outputs = snapshot.outputs(rows)
    assert outputs.known_B is not None
    assert outputs.known_B.tolist() == [True] * 6 + [False] * 3
    assert torch.equal(outputs.probabilities_BHC[:6], direct.outputs(known).probabilities_BHC)
    nothing = accept_message(schema, schema.encode(kept, PublicRows(()), first_rows(9)), first_rows(9)).outputs(rows)
    assert nothing.known_B is not None
    assert not nothing.known_B.any()
    with pytest.raises(SnapshotError, match="lacks sample"):
        accept_message(schema, message, first_rows(10))


def test_nothing_is_known_of_a_row_that_was_not_asked(tiny: Experiment) -> None:
    """Another row's prediction is not read in its place."""
    ensemble = assemble(tiny.with_values(algorithm={"exchange": "predictions"}))
    client = ensemble.clients[0]
    assert client.schema is not None
    snapshot = accept_message(client.schema, client.schema.encode(client.snapshot(0), first_rows(5)), first_rows(5))
    known, unknown = (client.schema.public.rows_in_view(np.array([at]), 0, torch.float32) for at in (4, 5))
    assert snapshot.outputs(known).known_B is None
    known_B = snapshot.outputs(unknown).known_B
    assert known_B is not None
    assert not known_B.any()


# What a run with tables learns.


def predictions(experiment: Experiment, **knobs: Any) -> Experiment:
    return experiment.with_values(algorithm={"exchange": "predictions", **knobs})


def exact(experiment: Experiment, **knobs: Any) -> Experiment:
    return predictions(experiment, top_k=10, precision="float32", **knobs)


SAME: dict[str, dict[str, Any]] = {
    "views, first epoch": {"data": {"augment": "crop-flip"}},
    "several epochs": {"data": {"public_fraction": 0.05}},
    "views, a new one each epoch": {"data": {"augment": "crop-flip", "public_fraction": 0.05, "public_views": 50}},
    "several epochs, same level": {"data": {"public_fraction": 0.05}, "algorithm": {"same_level": True}},
    "views, same level": {
        "data": {"augment": "crop-flip"},
        "algorithm": {"same_level": True, "self_target": True, "targets_per_step": 2},
    },
    "views, different widths": {"data": {"augment": "crop-flip"}, "model": {"width": [4, 3, 5]}},
    "views, density": {"data": {"augment": "crop-flip"}, "algorithm": {"confidence": "density"}},
    "views, the surest asked": {"data": {"augment": "crop-flip"}, "algorithm": {"ask": "surest", "remember": 0.0}},
    "several epochs, the surest asked": {"data": {"public_fraction": 0.05}, "algorithm": {"ask": "surest"}},
}
ONE_VIEW = {"ask": "drawn", "remember": 0.5}  # defaults differ: one view of each public sample, or ever new ones


@pytest.mark.parametrize("case", SAME)
def test_everything_in_float32_teaches_what_weights_teach(tiny: Experiment, case: str) -> None:
    experiment = tiny.with_values(algorithm=ONE_VIEW).with_values(**SAME[case]).with_values(training={"steps": 12})
    expected, ours = (train_by_hand(assemble(made)) for made in (experiment, exact(experiment)))
    assert expected.shape == ours.shape == (12, 12)
    assert (expected[1:, 2::4] > 0.0).all(), "embeddings are not compared"
    # A density is sent in float16.
    tolerance = 5e-3 if "density" in case else 1e-4
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=1e-6)


def test_fewer_classes_teach_something_else(tiny: Experiment) -> None:
    """This shows that the comparison above can fail."""
    short = tiny.with_values(training={"steps": 6})
    full, few = (train_by_hand(assemble(made)) for made in (exact(short), predictions(short, top_k=1)))
    assert not torch.allclose(full, few, rtol=1e-3)


def whole_tables(experiment: Experiment, whole: bool) -> Ensemble:
    ensemble = assemble(experiment)
    for client in ensemble.clients:
        assert client.schema is not None
        assert not client.schema.whole, "the public set is too small for this test"
        changed = dataclasses.replace(client.schema, whole=whole)
        client.origin = dataclasses.replace(client.origin, schema=changed)
        client.owner = Owner(client.index, changed, client.snapshot)
        ensemble.origins[client.index] = client.origin
    return ensemble


@pytest.mark.parametrize("knobs", [{"top_k": 10}, {"top_k": 3, "targets_per_step": 2, "same_level": True}], ids=str)
def test_a_window_of_rows_teaches_what_all_rows_teach_and_costs_less(tiny: Experiment, knobs: dict[str, Any]) -> None:
    views = {"augment": "crop-flip", "public_views": 5, "public_fraction": 0.05}  # 72 samples: over several epochs
    experiment = predictions(tiny.with_values(data=views), precision="float32", **knobs)
    experiment = experiment.with_values(training={"steps": 12})
    window, whole = (whole_tables(experiment, whole) for whole in (False, True))
    torch.testing.assert_close(train_by_hand(window), train_by_hand(whole), rtol=1e-4, atol=1e-6)
    for less, more in zip(window.clients, whole.clients, strict=True):
        assert 0 < less.bytes_received < more.bytes_received


def test_views_come_round(tiny: Experiment) -> None:
    """Each epoch (72 samples in 4 1/2 steps) shows the next view; after the last comes the first."""
    data = {"augment": "crop-flip", "public_fraction": 0.05, "public_views": 3}
    public = assemble(predictions(tiny.with_values(data=data))).clients[0].public
    assert public is not None
    views = public.window(0, 22, 16).view_numbers_SB.flatten()
    assert views[::72].tolist() == [0, 1, 2, 0, 1]
    first, again = (
        public.rows_in_view(np.arange(72), 0, torch.float32),
        public.rows_in_view(np.arange(72), 0, torch.float32),
    )
    other = public.rows_in_view(np.arange(72), 1, torch.float32)
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


def test_with_many_views_tables_hold_the_rows_of_a_window(tiny: Experiment, tmp_path: Path) -> None:
    """No table could hold all rows; still, a run is stopped and resumed exactly."""
    experiment = predictions(tiny.with_values(data={"augment": "crop-flip", "public_views": 50}))
    known = assemble(experiment).clients[0].schema
    assert known is not None
    assert not known.whole
    expected = train(experiment)
    for number, client_steps in enumerate((5, 30)):
        folder = tmp_path / f"run{number}"
        with pytest.raises(Interrupted):
            train(experiment, folder, observer=StopAt(client_steps))
        resumed = resume(folder)
        assert resumed.summary["bytes_received"] == expected.summary["bytes_received"]
        for ours, theirs in zip(resumed.clients, expected.clients, strict=True):
            assert torch.equal(ours.state.values, theirs.state.values)
            assert torch.equal(ours.momentum, theirs.momentum)


@pytest.fixture
def twins_npz(small_npz: Path, tmp_path: Path) -> Path:
    """Return a file with each of the 200 training images of `small_npz` four times."""
    arrays = dict(np.load(small_npz))
    for name in ("x_train", "y_train"):
        arrays[name] = np.concatenate([arrays[name][:50]] * 4)
    path = tmp_path / "twins.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("pool_every", [2, 8])
def test_equal_public_images_share_one_row(tiny: Experiment, twins_npz: Path, pool_every: int) -> None:
    """They do so in windows (2 steps) and in whole tables (8 steps); equal pixels have equal views."""
    data = {"source": "npz", "path": str(twins_npz), "public_fraction": 0.4, "augment": "crop-flip"}
    data["primary_labels"] = {"assignment": "random", "per_client": 3}
    experiment = tiny.with_values(data=data, training={"steps": 9}, algorithm={"pool_every": pool_every})
    ensemble = assemble(predictions(experiment, precision="float32", top_k=5))
    known = ensemble.clients[0].schema
    assert known is not None
    assert known.whole == (pool_every == 8)
    assert len(known.names_P) == 80
    assert len(known.distinct) == len(np.unique(known.names_P)) < 60
    assert known.names_P[known.first_occurrence_P].tolist() == known.names_P.tolist()
    losses = train_by_hand(ensemble)
    assert losses.isfinite().all()
    client = ensemble.clients[0]
    shown = accept_message(known, known.encode(client.snapshot(9), known.every_row))
    answers = shown.outputs(known.public.rows_in_view(np.arange(80), 0, torch.float32))
    direct = client.snapshot(9).outputs(known.public.rows_in_view(np.arange(80), 0, torch.float32))
    torch.testing.assert_close(answers.probabilities_BHC, direct.probabilities_BHC[:, :2], rtol=1e-4, atol=1e-6)
    assert torch.equal(answers.probabilities_BHC, answers.probabilities_BHC[torch.from_numpy(known.first_occurrence_P)])


@pytest.mark.parametrize(("same_level", "heads"), [(False, 2), (True, 3)])
def test_the_last_head_is_sent_only_to_teach_its_own_level(tiny: Experiment, same_level: bool, heads: int) -> None:
    ensemble = assemble(predictions(tiny, same_level=same_level))
    exchange(ensemble, step=0)
    client = ensemble.clients[0]
    assert client.schema is not None
    table = decode(client.schema.encode(client.snapshot(0), first_rows(9)))
    assert table.arrays["probabilities"].shape == (9, heads, 8)
    assert client.model.shape_HC == (3, 10)


@pytest.mark.parametrize("embedding", [False, True])
def test_the_embedding_is_sent_only_to_be_compared(tiny: Experiment, embedding: bool) -> None:
    knobs = {"send_embedding": embedding, "nu_emb": 1.0 if embedding else 0.0}
    client = assemble(predictions(tiny, **knobs)).clients[0]
    assert client.schema is not None
    table = decode(client.schema.encode(client.snapshot(0), first_rows(9)))
    assert table.header.embedding == (16 if embedding else 0)
    assert ("embedding" in table.arrays) == embedding


def test_bytes_received_are_those_of_the_messages_in_a_window(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message of a window is for one client."""
    sizes, encode = [], TableSchema.encode

    def counted(self: TableSchema, *arguments: Any) -> bytes:
        message = encode(self, *arguments)
        sizes.append(len(message))
        return message

    monkeypatch.setattr(TableSchema, "encode", counted)
    ensemble = whole_tables(predictions(tiny), whole=False)
    train_by_hand(ensemble)
    assert len(sizes) > 15
    assert sum(client.bytes_received for client in ensemble.clients) == sum(sizes)


def test_bytes_received_are_those_of_the_whole_tables(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message counts for each client that receives it, once at each exchange."""
    quantized: dict[int, list[int]] = {0: [], 1: [], 2: []}
    apply = MHD.apply

    def counted(self: MHD, client: Client, received: list[Snapshot], step: int) -> None:
        messages = {(s.client, s.step): len(s.tensors()["message"]) for s in received}
        quantized[client.index] += messages.values()
        apply(self, client, received, step)

    monkeypatch.setattr(MHD, "apply", counted)
    ensemble = whole_tables(predictions(tiny), whole=True)
    train_by_hand(ensemble)
    assert [len(quantized[client]) for client in range(3)] == [
        2 + 4
    ] * 3  # both neighbours at the start, then one each time
    assert [client.bytes_received for client in ensemble.clients] == [sum(quantized[client]) for client in range(3)]


def test_fewer_bits_mean_fewer_bytes(tiny: Experiment) -> None:
    received = {}
    for precision in PRECISIONS:
        ensemble = assemble(predictions(tiny.with_values(training={"steps": 5}), precision=precision))
        train_by_hand(ensemble)
        received[precision] = ensemble.clients[0].bytes_received
    assert received["uint8"] < received["float16"] < received["float32"]


def test_top_k_beyond_the_classes_is_refused(tiny: Experiment) -> None:
    with pytest.raises(ConfigurationError, match=r"algorithm\.top_k = 11: there are only 10 classes; at most 10"):
        assemble(predictions(tiny, top_k=11))


def test_an_embedding_that_is_not_sent_is_not_compared(tiny: Experiment) -> None:
    """This holds for any nu_emb; and with nu_emb = 0 none is sent."""
    lost, off = (assemble(predictions(tiny, **knobs)) for knobs in ({"send_embedding": False}, {"nu_emb": 0.0}))
    assert torch.equal(train_by_hand(lost), train_by_hand(off))
    assert lost.clients[0].bytes_received == off.clients[0].bytes_received
    sent = assemble(predictions(tiny))
    train_by_hand(sent)
    assert sent.clients[0].bytes_received > lost.clients[0].bytes_received


@given(seed=st.integers(0, 2**31), classes=st.integers(3, 300), scale=st.floats(0.0, 10.0))
def test_eight_bits_keep_the_surest_class(seed: int, classes: int, scale: float) -> None:
    """Rounding never makes a class that was not sent the most likely one."""
    rng = torch.Generator().manual_seed(seed)
    p_BHC = (scale * torch.randn(8, 1, classes, generator=rng)).softmax(-1)
    form = RowFormat(classes=classes, heads=1, top_k=2, precision="uint8", confidence=False)
    class_BHT, codes_BHT = form.probabilities(p_BHC)
    assert class_BHT is not None
    decoded = form.all_probabilities(class_BHT, codes_BHT, "spread", torch.float64)
    first = decoded.gather(-1, class_BHT[..., :1])
    assert (first >= decoded.amax(-1, keepdim=True)).all()
    torch.testing.assert_close(decoded.sum(-1), torch.ones(8, 1, dtype=torch.float64))


def test_precision_changes_the_run_but_little(tiny: Experiment) -> None:
    made = {name: assemble(predictions(tiny.with_values(training={"steps": 6}), precision=name)) for name in PRECISIONS}
    losses = {name: train_by_hand(ensemble) for name, ensemble in made.items()}
    for name in ("float16", "uint8"):
        assert weights(made[name]) != weights(made["float32"])
        torch.testing.assert_close(losses[name], losses["float32"], rtol=0.05, atol=0.02)


def test_a_table_is_only_made_by_algorithms_that_exchange_tables(tiny: Experiment) -> None:
    for knobs in ({"exchange": "weights"}, {"name": "averaging"}, {"name": "separate"}):
        ensemble = assemble(tiny.with_values(algorithm=knobs))
        algorithm: Algorithm = ensemble.resolved.algorithm
        assert algorithm.table_contents(ensemble.resolved.heads, 10) is None
        assert all(client.schema is None for client in ensemble.clients)


def test_equal_checkpoints_in_a_pool_are_answered_once(tiny: Experiment) -> None:
    """With two clients, a first filling of the pool asks one neighbour as often as there are places."""
    experiment = predictions(tiny.with_values(clients=2), pool_size=4, targets_per_step=4)
    ensemble = assemble(experiment.with_values(data={"public_views": 50}))
    assert ensemble.clients[0].schema is not None
    assert not ensemble.clients[0].schema.whole
    exchange(ensemble, step=0)
    client = ensemble.clients[0]
    assert len(client.pool) == 4
    assert len({id(entry) for entry in client.pool.entries}) == 1
    assert client.bytes_received == client.pool.entries[0].nbytes
