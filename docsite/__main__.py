"""The command `python -m docsite`."""

from __future__ import annotations

import argparse
import functools
import http.server
import sys

from docsite.build import BuildFailed, broken_links, build_if_stale
from docsite.freshness import ROOT, SITE
from docsite.pages import BrokenPage

DEFAULT_PORT = 8701


def main() -> int:
    """Build the site if its sources have changed. Return 1 if a page or a link is broken."""
    parser = argparse.ArgumentParser(prog="python -m docsite", description=main.__doc__)
    parser.add_argument("--serve", action="store_true", help="show the site on loopback until Ctrl-C")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="where (%(default)s)")
    options = parser.parse_args()
    try:
        built = build_if_stale()
    except (BrokenPage, BuildFailed) as error:
        print(f"The site cannot be built:\n{error}", file=sys.stderr)
        return 1
    if broken := broken_links():
        print("Links of the pages lead to files that do not exist:", *broken, sep="\n  ", file=sys.stderr)
        return 1
    if built:
        print(f"The site is in {SITE.relative_to(ROOT)}")
    if options.serve:
        _serve(options.port)
    return 0


def _serve(port: int) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{port}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    sys.exit(main())
