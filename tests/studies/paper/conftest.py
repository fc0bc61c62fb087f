"""The cells of all tables share a few models: what is found out about one is kept."""

from typing import Any

import pytest

from manyheads.models.facts import ModelFacts
from manyheads.setup import models


@pytest.fixture(scope="session")
def facts_of_models() -> dict[Any, ModelFacts]:
    return {}


@pytest.fixture
def each_model_once(facts_of_models: dict[Any, ModelFacts], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each different model of any cell once in a session, instead of once in each cell."""
    tried = models._tried

    def once(config: Any, dataset: Any, heads: int, *others: Any) -> ModelFacts:
        key = (config, dataset.image_shape, dataset.classes, heads)
        if key not in facts_of_models:
            facts_of_models[key] = tried(config, dataset, heads, *others)
        return facts_of_models[key]

    monkeypatch.setattr(models, "_tried", once)
