"""The child process: runs the service's `serve`, and ends it when the program that started it is gone.

Run as a script, with the standard library alone until the service itself is loaded:
`python -P serve_child.py PARENT_PID FOLDER ARGUMENTS...`; FOLDER holds the package of the service, which is
loaded from there and nowhere else, since many a program has a package of its own called `app`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import select
import signal
import sys
import threading
import time
from importlib.machinery import PathFinder

CHECK_INTERVAL_S = 1.0
END_WITHIN_S = 20.0


def end_with_parent(parent: int) -> None:
    """End this process when its input closes or its parent changes: a killed program cannot notify it."""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], CHECK_INTERVAL_S)
        if readable and not os.read(0, 1):
            break
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_WITHIN_S)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parent, folder, *arguments = sys.argv[1:]
    threading.Thread(target=end_with_parent, args=(int(parent),), daemon=True).start()
    sys.path.append(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    )  # this library, for the service
    spec = PathFinder.find_spec("app", [folder])
    if spec is None or spec.loader is None:
        sys.exit(f"The service is not in {folder} any more.")
    package = importlib.util.module_from_spec(spec)
    sys.modules["app"] = package
    spec.loader.exec_module(package)
    sys.argv = ["plangate", *arguments]
    importlib.import_module("app.commands.main").main()


if __name__ == "__main__":
    main()
