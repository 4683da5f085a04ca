"""`rocsolid tune export` and `rocsolid tune dashboard`."""

import argparse
import json
from pathlib import Path

from rocsolid.cli.output import note, read, write
from rocsolid.errors import InputError, UsageError

ACTIONS = ("export", "dashboard")


def act(args: argparse.Namespace) -> int:
    """Run the action that was named instead of a workload."""
    return _export(args) if args.workload == "export" else _dashboard(args)


def last_study(store: str) -> Path:
    """Return the file with the last complete study: next to the stored trials, or in .rocsolid if the trials are on a server."""
    from rocsolid.tune.store import is_server_url

    return Path(".rocsolid/study.json") if is_server_url(store) else Path(store).with_name("study.json")


def _export(args: argparse.Namespace) -> int:
    from rocsolid.cli.records import read_record
    from rocsolid.model.codec import encode
    from rocsolid.model.plan_toml import to_toml
    from rocsolid.model.redact import redact_all
    from rocsolid.model.study import Study
    from rocsolid.tune.export import citations, study_evidence

    file = args.record or last_study(args.study)
    study = read_record(read(file), str(file))
    if not isinstance(study, Study):
        msg = f"only a study can be exported, but {file} contains a {type(study).__name__}"
        raise InputError(msg)
    if not args.catalog:
        write(to_toml(encode(study.best)), args.out)
        return 0
    if args.out is None:
        msg = "--catalog needs --out evidence/NAME.json, because an evidence record is cited by its file name"
        raise UsageError(msg)
    write(json.dumps(redact_all(study_evidence(study)), indent=1) + "\n", args.out)
    lines = "".join(f"\n  {line}," for line in citations(study, args.out))
    note(f"lines with which a setting in the catalogue can cite this record:{lines}")
    return 0


def _dashboard(args: argparse.Namespace) -> int:
    from rocsolid.tune.dashboard import serve

    def on_start() -> None:
        note(f"serving the studies in {args.study} at http://{args.host}:{args.port}/ (Ctrl-C stops)")

    serve(args.study, args.host, args.port, on_start)
    return 0
