# Two stages: build with a Rust toolchain, run on plain Debian. Without a registry, give the names
# of images made locally: --build-arg BUILD_IMAGE=... --build-arg RUN_IMAGE=...
ARG BUILD_IMAGE=rust:1.95-bookworm
ARG RUN_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends libclang-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/root/.cargo/registry --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target cargo build --release --locked -p kvnode -p kvctl && \
    mkdir -p /out && cp /target/release/kvnode /target/release/kvctl /out/

FROM ${RUN_IMAGE} AS ringkv
COPY --from=build /out/kvnode /out/kvctl /usr/local/bin/
RUN mkdir -p /data
VOLUME /data
EXPOSE 7400 7401
ENTRYPOINT ["kvnode"]
