//! Follows where installations work, as the registration says: objects elsewhere claim nothing.

use std::{collections::BTreeSet, time::Duration};

use backup_lock::{Installations, Registration, errors::plain};
use kube::Client;

/// Between two looks at the registration. An installation that was just named is guarded after this at the latest.
const POLL: Duration = Duration::from_secs(10);

/// Reads the registration once. One that is not there or cannot be read leaves what is known.
pub(crate) async fn look(client: &Client, own: &str, installations: &Installations) {
    match Registration::read(client.clone()).await {
        Ok(Some(found)) => {
            let mut namespaces: BTreeSet<String> = found.installations;
            namespaces.insert(own.to_owned());
            if installations.update(namespaces.clone()) {
                tracing::info!(?namespaces, "objects of these namespaces claim places");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(error = plain(&error), "the registration was not read; trying again"),
    }
}

pub(crate) async fn follow(client: Client, own: String, installations: Installations) {
    loop {
        tokio::time::sleep(POLL).await;
        look(&client, &own, &installations).await;
    }
}
