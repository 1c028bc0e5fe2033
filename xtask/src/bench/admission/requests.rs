//! What the API server was asked to do, from its own metrics: each request of the guard costs it time that the clients
//! wait for.

use std::collections::BTreeMap;

use kube::Client;

/// Requests so far, by verb and resource.
#[derive(Clone, Debug, Default)]
pub struct Requests(BTreeMap<String, f64>);

impl Requests {
    /// Reads the API server's metrics. That is megabytes of text: not while something is measured.
    pub async fn now(client: &Client) -> anyhow::Result<Self> {
        let text = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
        let mut requests = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
            let Some((labels, value)) = line.rsplit_once("} ") else { continue };
            let of = |name: &str| {
                let value = labels.split_once(&format!("{name}=\"")).map_or("", |(_, rest)| rest);
                value.split('"').next().unwrap_or_default()
            };
            if !of("resource").is_empty() {
                let what = format!("{} {} ({})", of("verb"), of("resource"), of("code"));
                *requests.entry(what).or_default() += value.parse::<f64>().unwrap_or_default();
            }
        }
        Ok(Self(requests))
    }

    /// What was asked since then, for each of `count` creations.
    #[allow(clippy::cast_precision_loss)]
    pub fn since(&self, before: &Self, count: usize) -> String {
        let each = |(what, number): (&String, &f64)| {
            let each = (number - before.0.get(what).unwrap_or(&0.0)) / count.max(1) as f64;
            (each >= 0.02).then(|| format!("{what} {each:.2}"))
        };
        self.0.iter().filter_map(each).collect::<Vec<_>>().join(", ")
    }
}
