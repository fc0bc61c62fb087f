"""One pass of an architecture for whichever snapshot is asked, as a CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.engine.cuda.said import TeacherAnswers
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.models.norm import in_parts
from manyheads.outputs import Outputs


class CapturedPass:
    """One pass of an architecture, for whichever weights and lines are due: on a GPU a CUDA graph.

    A confidence that was fitted is measured after it: each snapshot has its own, and a graph knows one address.
    """

    def __init__(
        self,
        snapshot: WeightsSnapshot,
        from_to: Tensor,
        said: TeacherAnswers,
        shown: Callable[[Tensor], Rows],
        as_sent: Callable[[Outputs], Outputs],
    ) -> None:
        self._replica, self._said, self._shown, self._as_sent = snapshot.replica, said, shown, as_sent
        self._from_to, self._measures = from_to.clone(), bool(snapshot.fit_tensors)
        self._answer: tuple[Tensor, Tensor] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        if not from_to.is_cuda:
            return
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._forward()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._forward()

    def __call__(self, snapshot: WeightsSnapshot, from_to: Tensor) -> None:
        self._replica.state.values.copy_(snapshot.values)  # what counts batches does not matter here
        self._from_to.copy_(from_to)
        if self._graph is None:
            self._forward()
        else:
            self._graph.replay()
        if self._answer is not None:
            self._put(snapshot.with_confidence(Outputs(*self._answer)))

    def _forward(self) -> None:
        rows = self._shown(self._from_to[0])
        with in_parts(self._replica.model, ()):
            logits_BHC, embedding_BE = self._replica.model(rows.images)
        answer = logits_BHC.softmax(-1), embedding_BE
        if self._measures:
            self._answer = answer
        else:
            self._put(Outputs(*answer))

    def _put(self, outputs: Outputs) -> None:
        outputs = self._as_sent(outputs)
        self._said.make_room(outputs, len(outputs.probabilities_BHC) // self._from_to.shape[1])
        self._said.put(outputs, self._from_to[1])
