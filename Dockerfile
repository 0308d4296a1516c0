# The service: one image for the API (`serve`), workers (`worker`) and the command line (`tenants`, `keys`, `migrate`).
FROM python:3.11-slim AS build
WORKDIR /build
COPY requirements-build.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-build.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY sdk/python sdk/python
COPY app app
COPY migrations migrations
COPY docs docs
COPY docsite docsite
COPY openapi openapi
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation -w /wheels ./sdk/python .

FROM python:3.11-slim

# Postgres never runs as root, and initdb only for a user that /etc/passwd knows.
RUN useradd --uid 10001 --create-home --home-dir /var/lib/plangate --shell /usr/sbin/nologin plangate

# The service with every extra, and no development tools.
WORKDIR /srv/plangate
COPY requirements-all.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-all.lock
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --disable-pip-version-check --no-deps /wheels/*.whl \
 && python -m compileall -q -x '/(pip|setuptools)/' /usr/local/lib/python3.11/site-packages

ENV PYTHONUNBUFFERED=1 \
    PLANGATE_HOST=0.0.0.0 \
    PLANGATE_PORT=8700 \
    PLANGATE_DATA_DIR=/var/lib/plangate
# A volume that is mounted there for the first time gets this owner.
RUN install --directory --owner plangate --group plangate --mode 700 /var/lib/plangate /var/lib/plangate/blobs
USER plangate
VOLUME /var/lib/plangate
EXPOSE 8700
STOPSIGNAL SIGTERM

# For the API. A worker has no HTTP: switch the check off there.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['PLANGATE_PORT']), timeout=4); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]

ENTRYPOINT ["plangate"]
CMD ["serve"]
