//! The time of day of the API server. Where a wrong clock would destroy something or lock everybody out, this one counts: it
//! is the API server that judges certificates, and all replicas see the same.

use jiff::{Timestamp, fmt::rfc2822};
use kube::{Client, client::Body};

/// Asks the API server for its time of day: each of its answers has it, a refusal too. Our own where a proxy took it out.
pub async fn now(client: &Client) -> kube::Result<Timestamp> {
    let mut request = http::Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/version");
    let answer = client.send(request).await?;
    Ok(time_of(answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok())))
}

/// What the `Date` of an answer says.
fn time_of(date: Option<&str>) -> Timestamp {
    date.and_then(|date| rfc2822::parse(date).ok()).map_or_else(Timestamp::now, |date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_answer_where_it_has_one() {
        let said = time_of(Some("Fri, 27 Nov 2020 20:18:46 GMT"));
        assert_eq!(said, "2020-11-27T20:18:46Z".parse().unwrap());
        for date in [None, Some("yesterday")] {
            assert!(time_of(date).duration_since(Timestamp::now()).abs().as_secs() < 5, "{date:?}");
        }
    }
}
