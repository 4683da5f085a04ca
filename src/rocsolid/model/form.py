"""The forms of a model: eager, compiled as a whole or by region, each with or without a graph."""

from enum import Enum


class Form(str, Enum):
    """One way to run a model. Reports and JSON show its value, such as "compiled + graph".

    `rocsolid tune` and plans have two values instead: `form=compiled` (see `id`) and `graph=true` (see `graph`).

    Members are ordered from the simplest to the most complex.
    """

    EAGER = "eager"
    REGIONAL = "compiled by region"  # only the repeated layers are compiled
    COMPILED = "compiled"
    EAGER_GRAPH = "eager + graph"
    REGIONAL_GRAPH = "compiled by region + graph"
    COMPILED_GRAPH = "compiled + graph"

    @classmethod
    def of(cls, form_id: str, *, graph: bool = False) -> "Form":
        """Return the form with that id, for example `Form.of("regional", graph=True)`; raises ValueError for an unknown id."""
        for form in cls:
            if form.id == form_id and form.graph is graph:
                return form
        msg = f"{form_id!r} is not a form; the forms are {', '.join(f.id for f in cls if not f.graph)}"
        raise ValueError(msg)

    @property
    def id(self) -> str:
        """`eager`, `regional` or `compiled`, as in `form=compiled`."""
        return self.name.lower().removesuffix("_graph")

    @property
    def graph(self) -> bool:
        """Whether the whole call is captured as a CUDA graph or HIP graph."""
        return self.name.endswith("_GRAPH")

    @property
    def compiles(self) -> bool:
        """Whether the model or its layers are compiled."""
        return self.id != "eager"

    @property
    def label(self) -> str:
        """The text in reports."""
        return self.value

    @property
    def with_graph(self) -> "Form":
        """The same form, captured as a graph."""
        return Form.of(self.id, graph=True)

    def __str__(self) -> str:
        return self.value

    def __hash__(self) -> int:
        return hash(self.value)  # a form equals its label, so both need the same hash
