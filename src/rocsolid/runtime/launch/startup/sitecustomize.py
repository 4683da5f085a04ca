"""Runs at the start of every Python that `rocsolid run` is behind: waits for torch, then lets the user's own file run.

It must not fail, whatever interpreter it meets, and it imports nothing that is not loaded already.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_HOME = os.environ.get("ROCSOLID_RUN_HOME", "")
_WAITED_FOR = ("torch", "triton")


class _Waiting:
    """Prepares the process at the last moment before torch, or Triton, is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Prepare everything, then find what the others find: some of them have only just come."""
        if name not in _WAITED_FOR or _Waiting not in sys.meta_path:
            return None
        sys.meta_path.remove(_Waiting)
        _prepare()
        specs = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
        return next((spec for spec in specs if spec is not None), None)


def _prepare():
    sys.path.insert(0, _HOME)
    try:
        from rocsolid.api.launch import start

        start()
    except Exception as error:  # noqa: BLE001 - the program runs, protected or not
        sys.stderr.write("rocsolid: this process is not protected: %s: %s\n" % (type(error).__name__, error))
    finally:
        if _HOME in sys.path:
            sys.path.remove(_HOME)


def _run_the_users_own():
    """Find the `sitecustomize` that would have been imported without us, and import it in our place."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _tell_of_unprotected(event, args):
    """Say when a Python is started that will not come by here."""
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
    blind = sorted(set(flags) & set("ISE"))
    if blind or missing:
        why = "started with -" + "".join(blind) if blind else "started without PYTHONPATH"
        sys.stderr.write("rocsolid: a Python %s is not protected: %s\n" % (why, " ".join(words[:4])))


if _HOME and sys.version_info >= (3, 10):
    sys.meta_path.insert(0, _Waiting)
    sys.addaudithook(_tell_of_unprotected)
_run_the_users_own()
