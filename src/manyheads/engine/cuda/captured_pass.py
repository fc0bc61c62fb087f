"""A pass of an architecture as a CUDA graph, for whichever snapshot is asked."""

from collections.abc import Callable

import torch
from torch import Tensor

from manyheads.data.batches import Rows
from manyheads.engine.cuda.teacher_answers import TeacherAnswers
from manyheads.exchange.weights import WeightsSnapshot
from manyheads.models.norm import in_parts
from manyheads.outputs import Outputs


class CapturedPass:
    """A pass of an architecture, for whichever weights and lines are due: on a GPU a CUDA graph.

    A fitted confidence is measured outside the graph: each snapshot has its own, and a graph knows one address only.
    """

    def __init__(
        self,
        snapshot: WeightsSnapshot,
        from_to: Tensor,
        answers: TeacherAnswers,
        shown: Callable[[Tensor], Rows],
        as_sent: Callable[[Outputs], Outputs],
    ) -> None:
        self._replica, self._answers, self._shown, self._as_sent = snapshot.replica, answers, shown, as_sent
        self._from_to, self._measures = from_to.clone(), bool(snapshot.fit_tensors)
        self._outputs: tuple[Tensor, Tensor] | None = None
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
        self._replica.state.values.copy_(snapshot.values)  # the counters of batches do not matter here
        self._from_to.copy_(from_to)
        if self._graph is None:
            self._forward()
        else:
            self._graph.replay()
        if self._outputs is not None:
            self._put(snapshot.with_confidence(Outputs(*self._outputs)))

    def _forward(self) -> None:
        rows = self._shown(self._from_to[0])
        with in_parts(self._replica.model, ()):
            logits_BHC, embedding_BE = self._replica.model(rows.images)
        answer = logits_BHC.softmax(-1), embedding_BE
        if self._measures:
            self._outputs = answer
        else:
            self._put(Outputs(*answer))

    def _put(self, outputs: Outputs) -> None:
        outputs = self._as_sent(outputs)
        self._answers.make_room(outputs, len(outputs.probabilities_BHC) // self._from_to.shape[1])
        self._answers.put(outputs, self._from_to[1])
