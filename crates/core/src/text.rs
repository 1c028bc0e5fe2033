//! Texts for users.

use std::{borrow::Borrow, error::Error, fmt::Display};

/// An error with its causes, except for causes that its own text includes.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

/// "1 item", "2 items".
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// "a, b and 3 more": the given names, out of `total`.
pub fn listed<S: Borrow<str>>(named: &[S], total: usize) -> String {
    let text = named.join(", ");
    match total.saturating_sub(named.len()) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// The first `chars` characters of a text, with an ellipsis if it is longer.
pub fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text of any origin on one line, without control characters: safe for a terminal and for an
/// Event.
pub fn plain(text: &str) -> String {
    text.split(char::is_control)
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
