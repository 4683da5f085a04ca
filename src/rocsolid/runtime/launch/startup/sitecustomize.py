"""Runs at the start of every Python process of `rocsolid run`: hooks the import of torch, then runs the user's sitecustomize.

It must work with every Python version. When it is loaded, it imports only modules that Python itself has loaded already.
"""

import os
import sys

_THIS_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE_FOLDER = os.environ.get("ROCSOLID_RUN_PACKAGE_FOLDER", "")
_TRIGGER_MODULES = ("torch", "triton")


class _ImportTrigger:
    """Protects the process right before torch or Triton is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Protect the process, which may add finders, then search with all finders."""
        if name not in _TRIGGER_MODULES or _ImportTrigger not in sys.meta_path:
            return None
        sys.meta_path.remove(_ImportTrigger)
        if not _protect():
            # Stays in front of torch: a program that ignores SystemExit must not get torch without protection.
            sys.meta_path.insert(0, _ImportTrigger)
            raise SystemExit(3)
        specs = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
        return next((spec for spec in specs if spec is not None), None)


def _protect():
    sys.path.insert(0, _PACKAGE_FOLDER)
    try:
        from rocsolid.api.launch import start

        start()
    except Exception as error:  # noqa: BLE001 - whatever it is, the process is not protected
        reason = "%s: %s" % (type(error).__name__, error)
        if os.environ.get("ROCSOLID_RUN_BEST_EFFORT"):
            sys.stderr.write(
                "rocsolid: this process runs without rocsolid's protection (guard and deadline): %s\n" % reason
            )
            return True
        sys.stderr.write(
            "rocsolid: stopped, because this process cannot be protected: %s\n"
            "fix: remove the cause, or run it without protection: rocsolid run --best-effort\n" % reason
        )
        return False
    else:
        return True
    finally:
        if _PACKAGE_FOLDER in sys.path:
            sys.path.remove(_PACKAGE_FOLDER)


def _run_user_sitecustomize():
    """Import the `sitecustomize` that Python would have imported without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _THIS_FOLDER]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _interpreter_flags(words):
    """The letters of Python's own options, as in `-X importtime -Im module`; what follows belongs to the program."""
    flags = ""
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word, words = words[0], words[1:]
        if word.startswith("--"):
            words = words[1:] if word == "--check-hash-based-pycs" else words
            continue
        for index, letter in enumerate(word[1:], start=2):
            if letter in "cm":  # the program
                return flags
            if letter in "WX":  # takes the rest of the word, or the next word
                words = words if word[index:] else words[1:]
                break
            flags += letter
    return flags


def _warn_about_unprotected_child(event, args):
    """Warn when a Python process is started that will not run this file."""
    if event == "subprocess.Popen":
        command, env = args[1], args[3]
    elif event in ("os.exec", "os.posix_spawn"):
        command, env = args[1], args[2]
    else:
        return
    words = [os.fsdecode(word) for word in command] if isinstance(command, (list, tuple)) else []
    if not words or not os.path.basename(words[0]).startswith("python"):
        return
    path_missing = "PYTHONPATH" not in env and b"PYTHONPATH" not in env if env is not None else False
    isolating_flags = sorted(
        set(_interpreter_flags(words[1:])) & set("ISE")
    )  # Python ignores PYTHONPATH or sitecustomize
    if isolating_flags or path_missing:
        why = "started with -" + "".join(isolating_flags) if isolating_flags else "started without PYTHONPATH"
        sys.stderr.write(
            "rocsolid: a Python process %s runs without rocsolid's protection (guard and deadline): %s\n"
            % (why, " ".join(words[:4]))
        )


if _PACKAGE_FOLDER and sys.version_info >= (3, 10):
    sys.meta_path.insert(0, _ImportTrigger)
    sys.addaudithook(_warn_about_unprotected_child)
_run_user_sitecustomize()
