"""How results are displayed in a notebook."""

from importlib import import_module


class NotebookResult:
    """A result that Jupyter shows as the table or plot of its HTML page instead of its text."""

    def _repr_html_(self) -> str:
        # By name: pages are rendered in `report`, which is a layer above, and only a notebook needs them.
        rendered: str = import_module("rocsolid.report.notebook").to_html(self)
        return rendered
