"""What torch hashes before it looks into its caches of compiled code.

The key of every entry holds a hash of Triton's whole installation, its compiler library of hundreds of megabytes included. It is
reckoned once a process, when the first graph has been traced: 0.4 to 0.8 s on the machines where we measured, in which nothing else
goes on. Reading and hashing need no interpreter, so a thread can do it while the rest of torch's compiler is imported.
"""

import contextlib
import threading

from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.doors import door

_TRITON_KEY = door("torch._inductor.runtime.triton_compat", "triton_key", "2.7..")


def hash_ahead() -> threading.Thread | None:
    """Begin to hash Triton's installation; whoever asks later finds the answer. None where there is nothing to hash."""
    try:
        reckon = _TRITON_KEY.reach()  # imported here: two threads that import torch may see half of it
    except UnsupportedTorchError:
        return None

    def run() -> None:
        with contextlib.suppress(Exception):  # no Triton, or none that can be read: who needs the key will say so
            reckon()

    thread = threading.Thread(target=run, name="rocsolid-triton-key", daemon=True)
    thread.start()
    return thread
