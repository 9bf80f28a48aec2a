# The server as an image. Both stages stand on one base: any with Python 3.11 or newer and `venv`.
#
#   docker build -t railgym .
#
# Packages come from where pip looks by itself, or where the secret `pip.conf` says; its `cert` may
# be /run/secrets/ca.crt, which is the secret `ca.crt`.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
# pip lives in an environment of its own, so that the one which is shipped never had it.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/railgym
ENV PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements-build.lock requirements-server.lock ./
# A secret leaves no trace in the image.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt \
    /build/bin/pip install --require-hashes -r requirements-build.lock \
    && /build/bin/pip --python /opt/railgym install --require-hashes -r requirements-server.lock
COPY . .
RUN /build/bin/python -m hatchling build -t wheel -d /dist \
    && /build/bin/pip --python /opt/railgym install --no-deps --no-index /dist/*.whl \
    # Nobody runs the tests of numpy and scipy here, and they are large.
    && find /opt/railgym/lib -type d -name tests -prune -exec rm -r {} + \
    # A file system that is read only keeps no bytecode, so it is made now.
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/railgym/lib

FROM ${BASE}
# The build stage was the last to need the base's pip.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/site-packages/* \
        /usr/lib/python3*/ensurepip /usr/local/lib/python3*/ensurepip /usr/share/python-wheels \
    && mkdir -p /var/lib/railgym/log && chown -R 10001:10001 /var/lib/railgym
COPY --from=build /opt/railgym /opt/railgym
ENV PATH=/opt/railgym/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/railgym
USER 10001:10001
VOLUME /var/lib/railgym/log
EXPOSE 50051
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s CMD ["railgym", "health"]
ENTRYPOINT ["railgym"]
CMD ["serve", "--address", "0.0.0.0:50051", "--log-dir", "/var/lib/railgym/log", "--log-format", "json"]
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="railgym" \
      org.opencontainers.image.description="Stateful environments for tool-using agents behind gRPC" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
