"""List the names of all rules, settings, profiles, known problems and runtime calls."""

from rocsolid.catalog.profiles import PROFILES
from rocsolid.catalog.registry import all_settings


def list_names(name: str) -> str | None:
    """Return the list of all problems, rules, settings, profiles or calls; None if `name` is not one of these words."""
    match name:
        case "problems":
            from rocsolid.catalog.problems import all_problems

            return _list_page("Known problems", [(p.id, f"{p.title} ({p.when})") for p in all_problems()])
        case "rules":
            from rocsolid.rules.engine import all_rules

            return _list_page(
                "Rules", [(f"{r.rule.code} {r.rule.name}", r.page.partition("\n")[0]) for r in all_rules()]
            )
        case "settings":
            return _list_page("Settings", [(s.id, s.summary) for s in all_settings()])
        case "profiles":
            return _list_page("Profiles", [(p.name, p.intent) for p in PROFILES])
        case "calls":
            from rocsolid.catalog.capture_rules import CAPTURE_RULES

            calls = {rule.call: ", ".join(rule.torch_callers) for rule in CAPTURE_RULES}
            return _list_page(
                "Calls during a capture", [(call, callers or "called by libraries") for call, callers in calls.items()]
            )
    return None


def _list_page(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join([f"# {title}", "", *(f"- `{name}`: {text}" for name, text in rows)]) + "\n"
