//! `/livez` and `/readyz`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use parking_lot::Mutex;

/// Readiness of the process's parts. A part is added before it starts, and marked once it can work.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, bool>>>,
}

impl Health {
    /// Adds a part that has to become ready.
    pub fn expect(&self, part: &'static str) {
        self.parts.lock().entry(part).or_insert(false);
    }

    pub fn ready(&self, part: &'static str) {
        self.parts.lock().insert(part, true);
    }

    fn waiting_for(&self) -> Vec<&'static str> {
        let parts = self.parts.lock();
        parts
            .iter()
            .filter(|(_, ready)| !**ready)
            .map(|(part, _)| *part)
            .collect()
    }
}

/// The routes. `/livez` answers as long as the process runs; no handler calls the API server.
pub fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(health)
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let waiting = health.waiting_for();
    if waiting.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("waiting for: {}\n", waiting.join(", ")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_ready_once_every_expected_part_is() {
        let health = Health::default();
        assert!(health.waiting_for().is_empty());
        health.expect("backups");
        health.expect("restores");
        health.ready("backups");
        assert_eq!(health.waiting_for(), ["restores"]);
        health.ready("restores");
        health.expect("restores");
        assert!(
            health.waiting_for().is_empty(),
            "a part that was ready stays so when a watch starts again"
        );
    }
}
