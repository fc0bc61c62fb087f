"""The losses of Multi-Headed Distillation, Eq. 1 to 5 of the paper, as pure functions.

Eq. 1  L_i = CE(private, main head) + distillation terms          terms: MHD.losses; sum: Client.step
       (there also CE(private, auxiliary heads), beyond the paper)
Eq. 2  nu_emb * sum_j |xi_i - xi_j|^2 on normalised embeddings    embedding_loss
Eq. 3  cross-entropy to every target                              targets with select = "all"
Eq. 4  cross-entropy to the most confident candidate              targets with select = "most_confident"
Eq. 5  head k learns from heads k - 1, summed over k              prediction_loss

Letters: outputs.py. Axis K counts auxiliary heads 1 ... m, so that entry k - 1 belongs to head k.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

from manyheads.config.types import Select
from manyheads.exchange.confidence import Confidence
from manyheads.outputs import Outputs

LEAST_WEIGHT = 1e-20


def embedding_loss(
    own: Mapping[int, Tensor],
    foreign: Sequence[Tensor],
    counts: Sequence[Tensor] = (),
    known: Sequence[Tensor | None] = (),
) -> Tensor:
    """Return Eq. 2: sum_j mean_B |xi_i - xi_j|^2, the squared distance to each foreign embedding, all normalised.

    `own` holds the client's own embedding by width: as it is, and mapped to each foreign width that differs. No
    gradient flows into the foreign embeddings. `counts` are their weights (1 without), `known` the samples that each
    covers (all without). A weight may be one number for each sample.

    >>> one, other = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]])
    >>> embedding_loss({2: one}, [other]), embedding_loss({2: one}, [2.0 * one])
    (tensor(0.0800), tensor(0.))
    """
    unit = {width: normalize(own_BE, dim=-1) for width, own_BE in own.items()}
    distances = []
    every: list[Tensor | None] = [None] * len(foreign)
    masks = zip(foreign, counts or every, known or every, strict=True)
    for foreign_BE, *weights in masks:
        apart_BE = unit[foreign_BE.shape[-1]] - normalize(foreign_BE.detach(), dim=-1)
        distance_B = apart_BE.square().sum(-1)
        for weight in weights:
            distance_B = distance_B if weight is None else distance_B * weight
        distances.append(distance_B.mean())
    return torch.stack(distances).sum() if distances else next(iter(own.values())).new_zeros(())


def candidates(
    own: Outputs, foreign: Sequence[Outputs], confidence: Confidence, *, same_level: bool, self_target: bool
) -> tuple[Tensor, Tensor]:
    """Return the possible targets of every auxiliary head: probabilities J x B x K x C and confidences J x B x K.

    Their order: the own head k - 1, then heads k - 1 of the others, with `same_level` also their heads k, and with
    `self_target` the own head k. Another is no candidate for samples that it does not cover: there its probabilities
    are zero and its confidence is the lowest possible.

    >>> from manyheads.exchange.named_confidences import CONFIDENCES
    >>> own = Outputs(torch.tensor([[[0.5, 0.5], [0.8, 0.2]]]), None)  # heads 0 and 1 about one sample
    >>> other = Outputs(torch.tensor([[[0.1, 0.9], [0.3, 0.7]]]), None)
    >>> surest = CONFIDENCES["max_probability"]
    >>> p_JBKC, confidence_JBK = candidates(own, [other], surest, same_level=False, self_target=False)
    >>> confidence_JBK.flatten(), targets(p_JBKC, confidence_JBK, "most_confident").flatten()
    (tensor([0.5000, 0.9000]), tensor([0.1000, 0.9000]))
    """
    heads = own.probabilities_BHC.shape[1]
    lower, level = slice(0, heads - 1), slice(1, heads)
    pairs = [(own, lower)] + [(other, lower) for other in foreign]  # others may not send their last head
    if same_level:
        pairs += [(other, level) for other in foreign]
    if self_target:
        pairs.append((own, level))
    p_JBKC = torch.stack([outputs.probabilities_BHC[:, heads] for outputs, heads in pairs])
    confidence_JBK = torch.stack([confidence.of(outputs)[:, heads] for outputs, heads in pairs])
    if any(outputs.known_B is not None for outputs, _ in pairs):
        like_B = own.probabilities_BHC.new_ones(len(own.probabilities_BHC), dtype=torch.bool)
        known_JB = torch.stack([like_B if outputs.known_B is None else outputs.known_B for outputs, _ in pairs])
        p_JBKC = p_JBKC * known_JB[:, :, None, None]
        confidence_JBK = confidence_JBK.where(known_JB[:, :, None], -torch.inf)
    return p_JBKC.detach(), confidence_JBK.detach()


def mixture(p_JBKC: Tensor, confidence_JBK: Tensor, confidence: Confidence, sharpness: float) -> Tensor:
    """Return sum_j w_j p_j over all candidates (B x K x C), where w_j is confidence to the power `sharpness`.

    Divided by its sum over classes it is the target. Who covers a sample counts a little even if not confident at all.

    >>> from manyheads.exchange.named_confidences import CONFIDENCES
    >>> p_JBKC = torch.tensor([[0.5, 0.5], [0.0, 1.0]])[:, None, None]
    >>> heard_BKC = mixture(p_JBKC, p_JBKC.amax(-1), CONFIDENCES["max_probability"], sharpness=1.0)
    >>> heard_BKC / heard_BKC.sum(-1, keepdim=True)
    tensor([[[0.1667, 0.8333]]])
    """
    weight_JBK = confidence.weight(confidence_JBK).pow(sharpness).clamp_min(LEAST_WEIGHT)
    return (weight_JBK * (confidence_JBK > -torch.inf))[..., None].mul(p_JBKC).sum(0)


def choose(confidence_JBK: Tensor, select: Select, uniform_BK: Tensor | None = None) -> Tensor:
    """Return which candidate teaches (B x K): the surest (ties go to the first) or, with `random`, the one drawn.

    In a mixture all of them teach, and the surest counts most.

    >>> choose(torch.tensor([0.5, 0.9, 0.9])[:, None, None], "most_confident")
    tensor([[1]])
    """
    if select == "random":
        if uniform_BK is None:
            raise ValueError('select = "random" needs uniform draws')
        known_JBK = confidence_JBK > -torch.inf
        number_BK = known_JBK.sum(0)
        drawn_BK = (uniform_BK * number_BK).long().minimum(number_BK - 1)
        return (known_JBK & (known_JBK.cumsum(0) == drawn_BK + 1)).long().argmax(0)
    return confidence_JBK.argmax(0)


def prefer_right(p_JBKC: Tensor, confidence_JBK: Tensor, labels: Tensor) -> Tensor:
    """Return confidences by which a candidate whose most likely class is the label is chosen, if there is one.

    An oracle, for measurements only: it shows how far better choices could go.

    >>> p_JBKC = torch.tensor([[0.1, 0.9], [0.6, 0.4]])[:, None, None]
    >>> prefer_right(p_JBKC, p_JBKC.amax(-1), torch.tensor([0])).argmax(0)
    tensor([[1]])
    """
    right_JBK = (p_JBKC.argmax(-1) == labels[:, None]) & (confidence_JBK > -torch.inf)
    place_JBK = confidence_JBK.argsort(dim=0, descending=True, stable=True).argsort(0)  # confidences may have any scale
    return torch.where(right_JBK, -place_JBK, -place_JBK - len(place_JBK)).to(confidence_JBK.dtype)


def targets(p_JBKC: Tensor, confidence_JBK: Tensor, select: Select, uniform_BK: Tensor | None = None) -> Tensor:
    """Return what each auxiliary head learns on each sample (B x K x C).

    With `most_confident` (Eq. 4) and `random` it is the chosen candidate, sample by sample; with `all` (Eq. 3) the sum
    over all candidates except the own head k - 1.
    """
    if select == "all":
        return p_JBKC[1:].sum(0)
    index = choose(confidence_JBK, select, uniform_BK)[None, :, :, None].expand(-1, -1, -1, p_JBKC.shape[-1])
    return p_JBKC.gather(0, index)[0]


def prediction_loss(logits_BHC: Tensor, target_BKC: Tensor) -> Tensor:
    """Return Eq. 5: sum_k mean_B CE(target_k, head k), the cross-entropy of each auxiliary head to its target.

    >>> logits_BHC, target_BKC = torch.zeros(1, 2, 4), torch.tensor([[[0.7, 0.1, 0.1, 0.1]]])
    >>> prediction_loss(logits_BHC, target_BKC)  # an even prediction of 4 classes: log 4
    tensor(1.3863)
    """
    return -(target_BKC.detach() * log_softmax(logits_BHC[:, 1:], dim=-1)).sum((1, 2)).mean()


def ramp_factor(step: int, steps: int, hold: float, rise: float) -> float:
    """Return the factor of the distillation terms: 0 for the first `hold` of the steps, then rising to 1.

    Both are fractions of all steps; hold = rise = 0 is the paper, where the chain can lock onto untrained targets.

    >>> [ramp_factor(step, steps=1_000, hold=0.1, rise=0.3) for step in (0, 100, 250, 400, 999)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    done = step / steps
    if done < hold:
        return 0.0
    return min(1.0, (done - hold) / rise) if rise > 0.0 else 1.0
