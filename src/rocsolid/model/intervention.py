"""What the guard changed: who asked for what, what they got, and why."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """One value that was asked for and not given."""

    setting: str
    asked: object
    got: object
    why: str
    how: str  # assignment, options, mode, annotation, backend, variable
    place: str  # the user's line, or the variable
    thread: str = ""

    def __str__(self) -> str:
        if self.how == "variable":
            return f"{self._variable()}. {self.why}"
        where = f" at {self.place}" if self.place else ""
        return f"{self.setting}: {self.how}{where} asked for {self.asked!r} and got {self.got!r}. {self.why}"

    def _variable(self) -> str:
        name = self.setting.partition(".")[2]
        if self.got is None:
            return f"{name}={self.asked} was taken out of the environment"
        return f"{name}={self.got} was set" + (f" in place of {self.asked}" if self.asked is not None else "")
