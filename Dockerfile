# docker build -t sfumato .
# docker run --rm -v "$PWD:/project" sfumato check monthly.toml
# docker run -v /path/to/project:/project -p 8439:8439 -p 5439:5439 sfumato serve --host 0.0.0.0 --json
#
# The project's folder is mounted: records, project file, ledger, serve.db and audit.jsonl stay outside. A server in a container
# listens on all addresses, so [serve] of the project file names a certificate and its key.
FROM python:3.12-slim AS build
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
COPY docs/sfumato.1 /source/docs/
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /source

FROM python:3.12-slim
COPY --from=build /wheel /wheel
RUN pip install --no-cache-dir "$(ls /wheel/*.whl)[serve,postgres]" && useradd --system --uid 10001 sfumato
USER sfumato
WORKDIR /project
EXPOSE 8439 5439
# SIGTERM stops a server in order; what was charged is finished first.
STOPSIGNAL SIGTERM
ENTRYPOINT ["sfumato"]
CMD ["--help"]
