"""What keys meant before their defaults changed: as the paper prints it, where the paper says something.

A run folder or a stored result that lacks a key was made when the key had this meaning. So these values, and no
others, are left out of hashes, which stay what they were; a new default is hashed like any other choice.
"""

from collections.abc import Mapping
from typing import Any

SECTIONS: dict[str, dict[str, Any]] = {
    "training": {"warmup_steps": 200, "balance": 0.0},
    "evaluate": {"every": 1_000},
}
KNOBS: dict[str, dict[str, Any]] = {  # by algorithm: those whose defaults changed
    "mhd": {
        "nu_emb": 1.0,
        "nu_aux": 3.0,
        "pull": "sum",
        "pull_ramp": {"hold": 0.0, "rise": 0.0},
        "own_labels": 0.0,
        "ask": "drawn",
        "select": "most_confident",
        "sharpness": 1.0,
        "remember": 0.0,
        "pool_size": 8,
        "pool_every": 100,
        "confidence": "max_probability",
        "fit_every": 1,
        "ramp": {"hold": 0.1, "rise": 0.3},
        "average_every": 50,
    },
    "averaging": {"average_every": 100},
    "fedmd": {"first_private_steps": 100, "digest_steps": 50, "revisit_steps": 50},
}
ADDED = {
    "training": ("balance",),
    "algorithm": ("pull", "pull_ramp", "own_labels", "ask", "sharpness", "remember", "fit_every"),
}  # keys that older files do not have


def as_printed(algorithm: str = "mhd") -> dict[str, Any]:
    """Return the sections with which an experiment trains as the paper prints it.

    >>> as_printed("averaging")
    {'training': {'balance': 0.0}, 'algorithm': {'name': 'averaging', 'average_every': 100}}
    """
    return {"training": {"balance": 0.0}, "algorithm": {"name": algorithm, **KNOBS.get(algorithm, {})}}


def filled_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run folder, and for each key that it is too old to have what this meant.

    >>> filled_in({"clients": 2, "algorithm": {"pull": 1.0, "pull_ramp": {}}})["algorithm"]
    {'pull': 1.0, 'pull_ramp': {}, 'own_labels': 0.0, 'ask': 'drawn', 'sharpness': 1.0, 'remember': 0.0, 'fit_every': 1}
    """
    found = dict(values)
    for section, meant in _added(values).items():
        own = found.get(section, {})
        found[section] = {**meant, **own} if isinstance(own, Mapping) else own
    return found


def without_printed(values: Mapping[str, Any], every: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is hashed: `values`, which differ from today's defaults, but as seen from the printed ones.

    `every` has all keys.

    >>> without_printed({}, {"training": {"warmup_steps": 200, "balance": 1.0}, "evaluate": {"every": 1_000}})
    {'training': {'balance': 1.0}}
    """
    found = dict(values)
    for section, printed in SECTIONS.items():
        own = {key: value for key, value in found.pop(section, {}).items() if key not in printed}
        own |= {key: every[section][key] for key, meant in printed.items() if every[section][key] != meant}
        if own:
            found[section] = own
    algorithm, meant = dict(found.pop("algorithm", {})), _added(every)["algorithm"]
    algorithm = {key: value for key, value in algorithm.items() if key not in meant or value != meant[key]}
    return found | ({"algorithm": algorithm} if algorithm else {})


def _added(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the keys that were added, with what they meant, for the algorithm of an experiment."""
    algorithm = values.get("algorithm", {})
    name = algorithm.get("name", "mhd") if isinstance(algorithm, Mapping) else ""
    if ":" in str(name) and "nu_aux" in algorithm:
        name = "mhd"  # somebody's own that inherits from it
    meant = {"training": SECTIONS["training"], "algorithm": KNOBS.get(str(name), {})}
    return {part: {key: meant[part][key] for key in keys if key in meant[part]} for part, keys in ADDED.items()}
