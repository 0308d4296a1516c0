"""Load modules on first use, so that the command line starts fast."""

from __future__ import annotations

import importlib.abc
import importlib.util
import signal
import sys
import threading
from types import ModuleType
from typing import Any


class _UninterruptedLoader(importlib.abc.Loader):
    """Load a module completely or end the process.

    Python clears an interrupt that arrives while `from` loads a module lazily, and continues with half of the
    module. Nothing that would have to be released is held at this point.
    """

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        main = threading.current_thread() is threading.main_thread()  # other threads receive no signals
        is_default = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_default:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            self._loader.exec_module(module)
        finally:
            if is_default:
                signal.signal(signal.SIGINT, signal.default_int_handler)


def lazy_module(name: str) -> ModuleType:
    """Return the module of this name, which is loaded when one of its attributes is first read.

    For types, import it under `TYPE_CHECKING` by the same name.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec.loader = importlib.util.LazyLoader(_UninterruptedLoader(spec.loader))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
