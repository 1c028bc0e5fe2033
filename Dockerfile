FROM rust:1.95-slim-trixie AS build
WORKDIR /src
COPY . .
RUN cargo build --release -p backup-webhook -p backup-controller

FROM debian:trixie-slim AS backup-webhook
COPY --from=build /src/target/release/backup-webhook /backup-webhook
ENTRYPOINT ["/backup-webhook"]

FROM debian:trixie-slim AS backup-controller
COPY --from=build /src/target/release/backup-controller /backup-controller
ENTRYPOINT ["/backup-controller"]
