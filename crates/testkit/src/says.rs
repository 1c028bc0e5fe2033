//! A check of texts.

/// Checks that a text, such as a message, contains all of these parts.
#[macro_export]
macro_rules! assert_says {
    ($text:expr, $($part:expr),+ $(,)?) => {{
        let text = ::std::string::ToString::to_string(&$text);
        $(match $part {
            part => assert!(text.contains(part), "{part:?} is not in: {text}"),
        })+
    }};
}
