"""The documentation as a site: `python -m docsite` builds it into the service, which serves it at /guides."""
