"""Displays results in a Jupyter notebook."""

from importlib import import_module


class NotebookResult:
    """A result that Jupyter shows as the table or plot of its HTML page instead of its text."""

    def _repr_html_(self) -> str:
        # Imported by name, because `report` is a layer above `model`.
        html: str = import_module("rocsolid.report.result_pages").notebook_html(self)
        return html
