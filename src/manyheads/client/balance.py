"""Balance: heads that learn as if its client's labels were even (logit adjustment, Menon et al. 2021).

Trained on `logits + tau log prior`, the logits themselves answer as if every label were as frequent as any other. A
client that hardly sees a label then is not sure that it does not exist, and what it teaches can be believed.
"""

import numpy as np
from numpy.typing import NDArray


def log_prior(label_counts: NDArray[np.int64], balance: float) -> NDArray[np.float64]:
    """Return tau log prior of each label for a client with these private samples.

    Each label counts half a sample more than there are (Krichevsky and Trofimov 1981), so that one without samples has
    a prior, too: a small one, so its logit is hardly pushed down. A client that never saw a label then does not
    exclude it, and one with a single label learns nothing from it and is sure of nothing.

    >>> log_prior(np.array([6, 2, 0]), balance=1.0).round(3)
    array([-0.379, -1.335, -2.944])
    """
    counts = label_counts + 0.5
    adjusted: NDArray[np.float64] = balance * np.log(counts / counts.sum())
    return adjusted
