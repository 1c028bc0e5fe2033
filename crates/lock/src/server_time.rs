//! The API server's clock. It is used where a wrong clock would destroy data or deny all users: the
//! API server is what judges certificates, and all replicas see the same time.

use jiff::{Timestamp, fmt::rfc2822};
use kube::{Client, client::Body};

/// Reads the API server's clock from a response header, which refusals have too. Our own clock if a
/// proxy removed the header.
pub async fn now(client: &Client) -> kube::Result<Timestamp> {
    let mut request = http::Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/version");
    let answer = client.send(request).await?;
    Ok(time_of(
        answer
            .headers()
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok()),
    ))
}

/// The time in a `Date` header.
fn time_of(date: Option<&str>) -> Timestamp {
    date.and_then(|date| rfc2822::parse(date).ok())
        .map_or_else(Timestamp::now, |date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_answer_where_it_has_one() {
        let said = time_of(Some("Fri, 27 Nov 2020 20:18:46 GMT"));
        assert_eq!(said, "2020-11-27T20:18:46Z".parse().unwrap());
        for date in [None, Some("yesterday")] {
            assert!(
                time_of(date)
                    .duration_since(Timestamp::now())
                    .abs()
                    .as_secs()
                    < 5,
                "{date:?}"
            );
        }
    }
}
