//! Whether somebody does the work.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use crate::{
    client::Session,
    error::{About, Problem},
    print::{age::ago, table::plain},
    view::doctor::Finding,
};

/// The Lease of the controller that leads.
const LEASE: &str = "backup-controller";
/// Renewed every few seconds: this long without is no pause any more.
const OLD: i64 = 60;

/// Whether a controller leads, by its Lease.
pub async fn leads(session: &Session, now: Timestamp) -> Result<Vec<Finding>, Problem> {
    let about = About { verb: "get", kind: "lease", plural: "leases", name: LEASE };
    let remedy =
        format!("kubectl -n {} get pods -l app.kubernetes.io/name=backup-controller", session.namespace);
    let lease = match session.call(about, session.api::<Lease>().get(LEASE)).await {
        Err(Problem::NotFound { .. }) => {
            let text = "no controller has ever led here: nothing is backed up or restored";
            return Ok(vec![Finding::bad("controller", text, remedy)]);
        }
        other => other?.spec.unwrap_or_default(),
    };
    let holder = plain(lease.holder_identity.as_deref().unwrap_or_default());
    Ok(vec![match lease.renew_time.map(|at| at.0) {
        _ if holder.is_empty() => {
            Finding::bad("controller", "no controller leads: the last one has left", remedy)
        }
        None => Finding::bad("controller", format!("{holder} has never renewed its lease"), remedy),
        Some(at) if now.as_second() - at.as_second() > OLD => Finding::bad(
            "controller",
            format!("{holder} renewed its lease {}: nothing is backed up or restored", ago(at, now)),
            remedy,
        ),
        Some(_) => Finding::good("controller", format!("{holder} leads")),
    }])
}
