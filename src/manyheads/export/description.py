"""The part of an exported model's model.json that loading needs; the rest is for people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from manyheads.config.experiment import ModelConfig
from manyheads.errors import RunError
from manyheads.files import digest, read_file
from manyheads.runs.summary import Deploy

DESCRIPTION, WEIGHTS = "model.json", "model.safetensors"


class ModelDescription(BaseModel):
    """The description of one client's model: how to make it, its classes and images, the checksum of its weights."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    name: str
    client: Annotated[int, Field(ge=0)]
    model: ModelConfig
    classes: Annotated[list[str], Field(min_length=1, max_length=1_000_000)]
    image_shape: Annotated[list[Annotated[int, Field(ge=1, le=65_536)]], Field(min_length=3, max_length=3)]
    heads: Annotated[int, Field(ge=1, le=10_000)]
    deploy: Deploy | None
    task: Literal["private", "shared"] | None = None  # what it was exported for; None: both
    log_prior: list[Annotated[float, Field(le=0.0, ge=-1e6)]] | None = None  # of its labels, for the private task
    sha256: str = ""

    @model_validator(mode="after")
    def _of_one_model(self) -> Self:
        if self.model.lists:
            raise ValueError("a list of values for the model of a single client")
        if self.deploy is not None and max(self.deploy.private, self.deploy.shared) >= self.heads:
            raise ValueError("a head that the model does not have")
        if self.log_prior is not None and len(self.log_prior) != len(self.classes):
            raise ValueError("a prior of other classes")
        return self


def read_description(folder: Path) -> tuple[ModelDescription, str]:
    """Return the checked description of an exported model, and a hash of the file."""
    path = folder / DESCRIPTION
    try:
        content = read_file(path, follow=True)
        return ModelDescription.model_validate_json(content), digest(content)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        problem = _first(error)
        raise RunError(
            f"{path}: not the description of an exported model ({problem}); export the model again"
        ) from None


def description_of(card: Mapping[str, Any], folder: Path) -> ModelDescription:
    """Return the description of the model of a client of a run."""
    try:
        return ModelDescription.model_validate(card)
    except ValidationError as error:
        raise RunError(f"{folder / 'summary.json'}: not the summary of a run ({_first(error)})") from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"][:4])), first["msg"])))
