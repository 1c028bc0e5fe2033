//! Decodes AdmissionReviews, and answers those that cannot be decided.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};

use crate::admit::denial;

/// The request of a review; the error says what is wrong with the body.
pub(crate) fn request_of(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>, String> {
    // axum's errors name the field.
    let Json(review) = Json::<AdmissionReview<DynamicObject>>::from_bytes(body)
        .map_err(|error| format!("this is no AdmissionReview: {}", error.body_text()))?;
    let version = &review.types.api_version;
    let kind = &review.types.kind;
    if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        return Err(format!(
            "expected admission.k8s.io/v1 AdmissionReview, got {version} {kind}"
        ));
    }
    review
        .try_into()
        .map_err(|_| "this AdmissionReview has no request".to_owned())
}

/// The answer to a review that cannot be decided now: its client may try again.
pub(crate) fn try_again(body: &[u8], why: &str) -> Response {
    match request_of(body) {
        Ok(request) => {
            let mut response = AdmissionResponse::from(&request);
            response.allowed = false;
            response.result = denial::trouble(&denial::not_in_time(why), 1);
            Json(response.into_review()).into_response()
        }
        Err(message) => no_review(StatusCode::BAD_REQUEST, &message),
    }
}

/// The answer to an invalid review: a Status, as the API server itself would give it.
pub(crate) fn no_review(code: StatusCode, message: &str) -> Response {
    let status = denial::malformed(message).with_code(code.as_u16());
    (code, Json(status)).into_response()
}
