"""Runs at the start of every Python process under `rocsolid run`: hooks the import of torch, then runs the user's sitecustomize.

It must not fail in any interpreter, and it imports only modules that are loaded already.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_HOME = os.environ.get("ROCSOLID_RUN_HOME", "")
_TRIGGERS = ("torch", "triton")


class _ImportTrigger:
    """Protects the process right before torch or Triton is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Protect the process, then search with the current finders, some of which were just added."""
        if name not in _TRIGGERS or _ImportTrigger not in sys.meta_path:
            return None
        sys.meta_path.remove(_ImportTrigger)
        _protect()
        specs = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
        return next((spec for spec in specs if spec is not None), None)


def _protect():
    sys.path.insert(0, _HOME)
    try:
        from rocsolid.api.launch import start

        start()
    except Exception as error:  # noqa: BLE001 - the program must run in any case
        sys.stderr.write("rocsolid: this process runs without protection: %s: %s\n" % (type(error).__name__, error))
    finally:
        if _HOME in sys.path:
            sys.path.remove(_HOME)


def _run_user_sitecustomize():
    """Import the `sitecustomize` that Python would have imported without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _warn_about_unprotected_child(event, args):
    """Warn when a Python process is started that will not run this file."""
    if event != "subprocess.Popen":
        return
    command, env = args[1], args[3]
    words = [os.fsdecode(word) for word in command] if isinstance(command, (list, tuple)) else []
    if not words or not os.path.basename(words[0]).startswith("python"):
        return
    flags = ""
    for word in words[1:]:
        if not word.startswith("-") or word.startswith("--") or word in ("-m", "-c"):
            break
        flags += word[1:]
    missing = "PYTHONPATH" not in env if env is not None else False
    isolating = sorted(set(flags) & set("ISE"))
    if isolating or missing:
        why = "started with -" + "".join(isolating) if isolating else "started without PYTHONPATH"
        sys.stderr.write("rocsolid: a Python process %s runs without protection: %s\n" % (why, " ".join(words[:4])))


if _HOME and sys.version_info >= (3, 10):
    sys.meta_path.insert(0, _ImportTrigger)
    sys.addaudithook(_warn_about_unprotected_child)
_run_user_sitecustomize()
