"""Secrets are hidden by the name of a variable and by the shape of a value, everywhere (D7)."""

import json
import logging
import os
import stat
import string
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.records import PAGES, make
from tests.support import clean_environ, run_cli, run_python

from rocsolid.cli.app import run
from rocsolid.cli.records import RECORD_TYPES, render_any
from rocsolid.errors import UsageError
from rocsolid.model.log import log
from rocsolid.model.redact import HIDDEN, redact, redact_value
from rocsolid.model.saved_probe import ImageEntry
from rocsolid.model.study import TrialRecord
from rocsolid.probe.ledger import Ledger
from rocsolid.probe.variables import relevant_variables
from rocsolid.report.doctor import mask_text
from rocsolid.report.result_pages import notebook_html
from rocsolid.tune.isolate.trial import TrialSpec
from rocsolid.tune.isolate.trial import run as run_trial
from rocsolid.tune.store import open_store

WORD = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40)
UPPER = st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16)
# Anything that a password may be, without blanks and quotes; the last character is no `@`, which would end it early.
PASSWORD = st.text(string.ascii_letters + string.digits + "/:?#%&=+~!$*-_.@", min_size=6, max_size=20).map(
    lambda t: f"S3c{t}9zQ"
)

SETTINGS = settings(deadline=None, max_examples=60)


@SETTINGS
@given(
    secret=WORD,
    prefix=st.sampled_from(["hf_", "ghp_", "gho_", "ghs_", "github_pat_", "sk-", "glpat-", "xoxb-", "npm_"]),
)
def test_known_prefixes(secret: str, prefix: str) -> None:
    assert secret not in redact(f"before {prefix}{secret} after")
    assert redact(f"before {prefix}{secret} after") == f"before {HIDDEN} after"


@SETTINGS
@given(secret=UPPER, prefix=st.sampled_from(["AKIA", "ASIA"]))
def test_amazon_keys(secret: str, prefix: str) -> None:
    assert redact(f"x={prefix}{secret};") == f"x={HIDDEN};"


@SETTINGS
@given(head=WORD, body=WORD, end=WORD)
def test_json_web_tokens(head: str, body: str, end: str) -> None:
    assert redact(f"eyJ{head}.{body}.{end}") == HIDDEN


@SETTINGS
@given(body=WORD)
def test_private_keys(body: str) -> None:
    text = f"a\n-----BEGIN RSA PRIVATE KEY-----\n{body}\n{body}\n-----END RSA PRIVATE KEY-----\nb"
    assert redact(text) == f"a\n{HIDDEN}\nb"
    assert body not in redact(text[: text.index("-----END")])  # cut off


@SETTINGS
@given(password=PASSWORD, scheme=st.sampled_from(["postgresql", "https", "redis"]))
def test_logins_in_urls(password: str, scheme: str) -> None:
    shown = redact(f"cannot reach {scheme}://bob:{password}@db.example:5432/x today")
    assert password not in shown
    assert shown == f"cannot reach {scheme}://db.example:5432/x today"


@SETTINGS
@given(secret=WORD, name=st.sampled_from(["password", "passwd", "PWD", "token", "api_key", "secret", "sig"]))
def test_named_values(secret: str, name: str) -> None:
    texts = (
        f"?{name}={secret}&y=1",
        f"{name}: {secret}",
        f'"{name}": "{secret}"',
        f"--{name}={secret} x",
        f"{name}='{secret}",
    )
    for text in (
        *texts,
        json.dumps(json.dumps({name: secret})),
        f"--hf-{name} {secret} x" if name in ("token", "password") else "",
    ):
        assert secret not in redact(text), text
        assert redact(redact(text)) == redact(text)
    assert redact(f"?{name}={secret}&y=1") == f"?{name}={HIDDEN}&y=1"


@pytest.mark.parametrize(
    "name", ["TORCH_COOKIE", "HIP_SESSION", "TORCH_PRIVATE", "TORCH_DB_PWD", "TORCH_API_KEY", "NCCL_AUTH"]
)
def test_probe_and_doctor_hide_the_same_names(name: str) -> None:
    assert relevant_variables({name: "plain"}) == {name: HIDDEN}
    assert redact_value(name, "plain") == HIDDEN


def test_probe_hides_values_by_shape() -> None:
    shown = relevant_variables(
        {"TORCH_X": "AKIAIOSFODNN7EXAMPLE", "TORCH_Y": "eyJhbGciOi.eyJzdWIiOi.SflKxw", "TORCH_Z": "u:SECRET/DDD4@host"}
    )
    assert shown["TORCH_X"] == shown["TORCH_Y"] == HIDDEN
    assert "AKIA" not in mask_text("AKIAIOSFODNN7EXAMPLE")
    assert redact("redis://u:SECRET/DDD4@host") == "redis://host"


def test_harmless_text_is_kept() -> None:
    for text in ("torch 2.13.0+cpu", "https://github.com/pytorch/pytorch/issues/1", "me@example.org", "monkey: 3", "a:b@c",
                 "/home/me/x.py:12", "TRITON_CACHE_DIR=/tmp/x", "key 5 of 7", "aten::mm", "inductor.max_autotune = True",
                 "next_token = logits.argmax(-1)", "def f(token: Tensor)", "sample_token: graph invalidated", "max_tokens=512",
                 "sig = inspect.signature(f)", "f(token=next_token_ids)", "from huggingface_hub import hf_hub_download",
                 "password=None"):  # fmt: skip
        assert redact(text) == text
    assert redact_value("TOKENIZERS_PARALLELISM", "false") == "false"


@pytest.mark.parametrize(
    "piece",
    ["a", "://", "-eyJa", "password", "=:", "hf_", "://a@", "--token ", "?a", "token='", "-----BEGIN ", "Basic ", "1"],
)
def test_no_text_takes_long(piece: str) -> None:
    """20,000 letters took 94 s."""
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    redact(text)
    redact(f"token: {text}(")
    assert time.process_time() - started < 5


HUNTER = "hunter2Hunter2"
SECRET_TEXT = (
    f"password={HUNTER} hf_{HUNTER}{HUNTER} postgresql://bob:{HUNTER}@db/x AKIAHUNTERHUNTER2222 \u2028 ?token={HUNTER}\n"
    f'-----BEGIN RSA PRIVATE KEY-----\n{HUNTER}\n-----END RSA PRIVATE KEY----- eyJ{HUNTER}.{HUNTER}.{HUNTER} \'{{"secret": "{HUNTER}"}}\''
)


@pytest.mark.parametrize("output", ["text", "json", "html", "sarif", "github"])
def test_every_string_of_every_record_is_redacted(output: str) -> None:
    """Whatever field a secret gets into, it is in no output."""
    for cls in RECORD_TYPES.values():
        for variant in range(3):
            record = make(
                cls, lambda path: "SRC201" if path.endswith("findings[].code") else SECRET_TEXT, variant=variant
            )
            try:
                shown = render_any(record, output, verbose=True)
            except UsageError:  # this record has no such format
                continue
            assert "hunter" not in shown.lower(), cls


def test_pages_of_a_notebook_are_redacted() -> None:
    for cls in {*PAGES, *RECORD_TYPES.values()}:
        assert "hunter" not in notebook_html(make(cls, lambda _: SECRET_TEXT)).lower(), cls


def test_ledgers_and_studies_are_redacted(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").add([make(ImageEntry, lambda _: SECRET_TEXT)])
    store = open_store(tmp_path / "study.db", "key", "work.py:f")
    number = store.claim("variant")
    store.save(replace(make(TrialRecord, lambda _: SECRET_TEXT), number=number))
    assert store.finished()
    store.close()
    for name in ("ledger.db", "study.db"):
        assert b"hunter" not in (tmp_path / name).read_bytes().lower(), name


def test_log_lines_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError(SECRET_TEXT)
    log.warning("%s failed: %s", "f", error, exc_info=error)
    log.warning("cache file %s ignored", "x")
    assert caplog.messages[1] == "cache file x ignored"
    formatter = logging.Formatter()
    assert "hunter" not in "".join(formatter.format(record) for record in caplog.records).lower()
    assert "ValueError: password" in formatter.format(caplog.records[0])


def test_output_of_a_trial_is_redacted(tmp_path: Path) -> None:
    """What a workload prints or raises is kept in the study, its JSON and its page; the file with all its output is for this user."""
    (tmp_path / "work.py").write_text(
        f"def f(report, **_):\n    text = {SECRET_TEXT!r}\n    print(text, flush=True)\n    raise ValueError(text)\n"
    )
    old = os.umask(0o002)
    try:
        result = run_trial(TrialSpec(target=f"{tmp_path / 'work.py'}:f"), tmp_path / "trial")
    finally:
        os.umask(old)
    assert "hunter" in Path(result.cost.log).read_text()
    assert "hunter" not in str(result).lower()
    assert "password=(hidden)" in result.message
    assert "password=(hidden)" in result.cost.log_tail
    assert stat.S_IMODE((tmp_path / "trial").stat().st_mode) == 0o700


def test_a_crash_report_is_redacted_and_follows_no_link(tmp_path: Path) -> None:
    folder = tmp_path / f"rocsolid-crashes-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir(mode=0o777)
    (tmp_path / "elsewhere").chmod(0o777)
    folder.symlink_to("elsewhere")
    program = f"""
import rocsolid.report.page_index as index
from rocsolid.cli import main
def fail(name): raise KeyError({SECRET_TEXT!r})
index.list_names = fail
raise SystemExit(main(["explain", "rules"]))
"""
    ran = run_python("-c", program, env=clean_environ(TMPDIR=str(tmp_path), HOME=str(tmp_path)))
    assert ran.code == 3
    assert "hunter" not in ran.err.lower()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (file,) = tmp_path.glob("rocsolid-crash-*.txt")
    assert "hunter" not in file.read_text().lower()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.torch
def test_the_report_of_run_is_redacted(tmp_path: Path) -> None:
    env = clean_environ(
        TORCHINDUCTOR_CACHE_DIR="/x", AMD_LOG_LEVEL=f"password={HUNTER}", MIOPEN_FIND_ENFORCE=f"hf_{HUNTER}{HUNTER}"
    )
    report = tmp_path / "r.jsonl"
    run_cli("run", "--pretend", "gfx942", "--report", str(report), "-c", "import torch", env=env)
    assert "hf_" not in report.read_text()
    assert "hunter" not in report.read_text().lower()
    assert "(hidden)" in report.read_text()


def test_d7_errors_of_commands_show_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    for url in (
        "postgresql://bob:s3cret@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?password=s3cret",
        "postgresql://u:s3cret/D@127.0.0.1:1/x",
    ):
        assert run(["tune", "dashboard", "--study", url]) in (2, 3)
        assert run(["report", url]) == 2
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err
