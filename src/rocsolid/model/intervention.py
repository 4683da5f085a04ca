"""A value that rocsolid refused or changed: the requested value, the value used instead, the line that requested it, and the reason."""

from dataclasses import dataclass

from rocsolid.model.code_line import CodeLine, underline


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """One value that was requested and not used. `str()` is the message for users."""

    setting: str
    requested: object
    used: object
    why: str
    how: str  # assignment, config.patch, mode='...', options['...'], annotation, backend='cudagraphs', variable
    location: str  # the user's file:line, or "the environment"
    source: str = ""  # the source line there, if it can be read
    thread: str = ""  # name of the thread that requested it

    def __str__(self) -> str:
        if self.how == "variable":
            return f"{self._variable()}\n  why: {self.why}"
        lines = [f"{self.setting}: {self.requested!r} refused, {self.used!r} used (requested by {self.how})"]
        if self.location:
            lines += [f"  {line}" for line in self._code_line().lines()]
        return "\n".join([*lines, f"  why: {self.why}"])

    def _code_line(self) -> CodeLine:
        file, _, line = self.location.rpartition(":")
        start, end = (
            underline(self.source, "compile", "patch", self.setting.rpartition(".")[2]) if self.source else (0, 0)
        )
        return CodeLine(file=file, line=int(line) if line.isdigit() else 0, text=self.source, start=start, end=end)

    def _variable(self) -> str:
        name = self.setting.partition(".")[2]
        if self.used is None:
            return f"{name}={self.requested} removed from the environment"
        return f"{name}={self.used} set in the environment" + (
            f" (was {self.requested})" if self.requested is not None else ""
        )
