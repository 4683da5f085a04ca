"""What `rocsolid tune` does beside tuning: export a study, and show studies in a browser."""

import argparse
import json
import sys
from pathlib import Path

from rocsolid.cli.output import read, write
from rocsolid.errors import InputError, UsageError

ACTIONS = ("export", "dashboard")


def act(args: argparse.Namespace) -> int:
    """`rocsolid tune export` and `rocsolid tune dashboard`."""
    return _export(args) if args.workload == "export" else _dashboard(args)


def last_study(kept: str) -> Path:
    """Where the last study is kept as a whole: beside the trials, or in our folder when those are on a server."""
    from rocsolid.tune.store import shared

    return Path(".rocsolid/study.json") if shared(kept) else Path(kept).with_name("study.json")


def _export(args: argparse.Namespace) -> int:
    from rocsolid.cli.records import read_record
    from rocsolid.model.codec import encode
    from rocsolid.model.plan_toml import to_toml
    from rocsolid.model.study import Study
    from rocsolid.tune.export import citations, evidence_of

    file = args.record or last_study(args.study)
    study = read_record(read(file), str(file))
    if not isinstance(study, Study):
        msg = f"{file} holds a {type(study).__name__}, and only a study can be exported"
        raise InputError(msg)
    if not args.catalog:
        write(to_toml(encode(study.best)), args.out)
        return 0
    if args.out is None:
        msg = "an evidence record is cited by its file's name: say which, as in --out evidence/NAME.json"
        raise UsageError(msg)
    write(json.dumps(evidence_of(study), indent=1) + "\n", args.out)
    sys.stderr.write("what a setting can cite:\n" + "".join(f"  {line},\n" for line in citations(study, args.out)))
    return 0


def _dashboard(args: argparse.Namespace) -> int:
    from rocsolid.tune.dashboard import serve

    sys.stderr.write(f"http://{args.host}:{args.port}/ shows the studies in {args.study}; Ctrl-C ends it\n")
    serve(args.study, args.host, args.port)
    return 0
