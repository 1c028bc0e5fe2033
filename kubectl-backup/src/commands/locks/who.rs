//! Who is at the terminal, as the API server knows them.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, api::PostParams};

use crate::{
    client::Session,
    error::{About, Problem},
    print::table::plain,
};

/// The user's name. Nothing is stored by asking.
pub async fn am_i(session: &Session) -> Result<String, Problem> {
    let about = About { verb: "ask", kind: "selfsubjectreview", plural: "selfsubjectreviews", name: "" };
    let api: Api<SelfSubjectReview> = Api::all(session.client.clone());
    let post = PostParams::default();
    let review = session.call(about, api.create(&post, &SelfSubjectReview::default())).await?;
    let name = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    Ok(name.map_or_else(|| "somebody".to_owned(), |name| plain(&name)))
}
