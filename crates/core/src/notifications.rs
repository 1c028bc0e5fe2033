//! What programs know of notifications.

/// Key of the Secret of `--notify-secret` that holds the value of the header `authorization`.
pub const SECRET_KEY: &str = "authorization";
