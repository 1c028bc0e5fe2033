//! The connection that ledgers are written over.

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
};
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

/// A client without Nagle's delay and without retries. Otherwise like that of [`Client::try_from`].
///
/// kube 5.0 leaves Nagle's algorithm on: a short last piece of a request waits until the API server
/// has acknowledged the piece before it, which may take 40 ms. Most requests have one before them,
/// as many share one connection; with 16 clients on one scope this delay was a tenth of the
/// throughput (`cargo xtask bench admission`).
pub fn client(mut config: Config) -> kube::Result<Client> {
    // Kube's retries wait up to a thousand seconds in all.
    config.default_retry = false;
    // Proxies, and the expiry of certificates from exec plugins, are handled by kube's own
    // connector.
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        return Client::try_from(config);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let connections: HttpClient<_, Body> =
        HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace))
}
