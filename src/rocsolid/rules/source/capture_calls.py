"""Which row of the capture-rule table a line of source leads to, and what the runtimes do there."""

from rocsolid.catalog.capture_rules import capture_rule, describe_behavior
from rocsolid.model.source import Site

# Reading a tensor's value copies it to the host and waits for the stream that is captured.
READ = "stream-synchronize"


def row_of(site: Site) -> str:
    """The case of a wait or a query, by what it is called on.

    Whether the capture recorded an event cannot be read off the line: one that is waited for is taken to be the capture's own, and
    one that is queried to be older, which is where runtimes differ.
    """
    owner, _, last = site.name.rpartition(".")
    owner = owner.rpartition(".")[2].lower()
    if last == "query":
        return "event-query-old" if "event" in owner else "stream-query"
    if "event" in owner:
        return "event-synchronize-captured"
    return READ if "stream" in owner else "device-synchronize"


def facts_of(case: str) -> dict[str, str]:
    """What a finding needs to cite the table: the call, and the sentence."""
    return {"call": capture_rule(case).call, "runtimes": describe_behavior(case)}
