# The command line, without an environment of your own:
#   docker build --tag pnml .
#   docker run --rm --user "$(id -u)" --volume "$PWD:/work" pnml demo --out demo
FROM python:3.11-slim AS build
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim
COPY constraints.txt /tmp/
COPY --from=build /wheels /tmp/wheels
RUN for wheel in /tmp/wheels/*.whl; do \
      pip install --no-cache-dir --constraint /tmp/constraints.txt \
        --extra-index-url https://download.pytorch.org/whl/cpu "$wheel[torch,sklearn,parquet]"; \
    done && rm -r /tmp/wheels /tmp/constraints.txt
ENV PNML_CACHE=/tmp/pnml
WORKDIR /work
ENTRYPOINT ["pnml"]
CMD ["--help"]
