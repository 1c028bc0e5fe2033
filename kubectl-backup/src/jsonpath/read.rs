//! Parses paths and templates.

use std::{cmp::Ordering, num::ParseIntError};

use serde_json::Value;

use super::{Comparison, EQUAL, Filter, OTHER, Path, Piece, Step};

/// Longer operators first, so that `<=` is not read as `<`.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", EQUAL),
    ("!=", OTHER),
    ("<=", &[Ordering::Less, Ordering::Equal]),
    (">=", &[Ordering::Greater, Ordering::Equal]),
    ("<", &[Ordering::Less]),
    (">", &[Ordering::Greater]),
];

/// Parses a text with expressions in braces.
pub(super) fn template(mut text: &str) -> Result<Vec<Piece>, String> {
    pieces(&mut text, false)
}

/// The pieces up to the end of the text, or up to the `{end}` of a range.
fn pieces(rest: &mut &str, is_range: bool) -> Result<Vec<Piece>, String> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (text, braced) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
        if !text.is_empty() {
            all.push(Piece::Text(text.to_owned()));
            *rest = braced;
            continue;
        }
        let length = closing(&rest[1..], '}').ok_or("there is no } for a {")?;
        let inner = rest[1..=length].trim();
        *rest = &rest[length + 2..];
        all.push(if inner == "end" {
            return if is_range {
                Ok(all)
            } else {
                Err("there is {end} without {range}".to_owned())
            };
        } else if let Some(over) = inner.strip_prefix("range ") {
            Piece::Range(path(over.trim())?, pieces(rest, true)?)
        } else if inner.starts_with(['"', '\'']) {
            Piece::Text(quoted(inner)?)
        } else {
            Piece::Values(path(inner)?)
        });
    }
    if is_range {
        Err("there is no {end} for a {range}".to_owned())
    } else {
        Ok(all)
    }
}

/// The position of the closing character, outside quotes and inner brackets.
fn closing(text: &str, sign: char) -> Option<usize> {
    let mut quote: Option<char> = None;
    let mut depth = 0_usize;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match (quote, c) {
            (_, '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, _) if c == sign && depth == 0 => return Some(at),
            (None, '[') => depth += 1,
            (None, ']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// `.a.b[0]`, from the root with `$`.
pub(super) fn path(text: &str) -> Result<Path, String> {
    let from_root = text.starts_with('$');
    let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if rest.starts_with("..") {
            return Err(format!("{text:?}: `..` is not supported; name every step"));
        }
        if let Some(after) = rest.strip_prefix('[') {
            let end =
                closing(after, ']').ok_or_else(|| format!("{text:?}: there is no ] for a ["))?;
            steps.push(bracket(after[..end].trim()).ok_or_else(|| {
                format!("[{}] is not supported: expected [0], [-1], [1:3], [*], ['name'] or [?(@.name==\"value\")]", &after[..end])
            })?);
            rest = &after[end + 1..];
        } else if let Some(after) = rest.strip_prefix('.') {
            let (name, length) = field(after);
            match name.as_str() {
                // `{.}` is the value itself.
                "" if after.is_empty() => {}
                "" if after.starts_with('[') => {}
                "" => return Err(format!("{text:?}: a name is missing")),
                "*" => steps.push(Step::Every),
                _ => steps.push(Step::Field(name)),
            }
            rest = &after[length..];
        } else {
            return Err(format!("{text:?} is no path: it looks like .metadata.name"));
        }
    }
    Ok(Path { from_root, steps })
}

/// A name up to the next dot or bracket (`\.` is a dot in the name), and its length in the text
/// (bytes).
fn field(text: &str) -> (String, usize) {
    let mut name = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
            name.push(c);
            continue;
        }
        match c {
            '\\' => escaped = true,
            '.' | '[' => return (name, at),
            _ => name.push(c),
        }
    }
    (name, text.len())
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::Every);
    }
    if inner.starts_with(['"', '\'']) {
        return quoted(inner).ok().map(Step::Field);
    }
    if let Some(filter) = inner
        .strip_prefix("?(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        return filter_of(filter.trim()).map(|filter| Step::Where(Box::new(filter)));
    }
    match inner.split_once(':') {
        None => inner.trim().parse::<i64>().ok().map(Step::Index),
        Some((from, to)) => Some(Step::Slice(slice_edge(from).ok()?, slice_edge(to).ok()?)),
    }
}

/// An edge of a slice; `None` if it is left out.
fn slice_edge(text: &str) -> Result<Option<i64>, ParseIntError> {
    let text = text.trim();
    if text.is_empty() {
        Ok(None)
    } else {
        text.parse::<i64>().map(Some)
    }
}

fn filter_of(text: &str) -> Option<Filter> {
    let found = COMPARISONS
        .iter()
        .filter_map(|(sign, comparison)| Some((text.find(sign)?, *sign, *comparison)));
    // The first operator in the text; of two at the same position the longer one.
    let Some((at, sign, comparison)) = found.min_by_key(|(at, sign, _)| (*at, 2 - sign.len()))
    else {
        let plain = text.starts_with('@') && !text.contains(['=', '&', '|', ' ']);
        return plain
            .then(|| path(text).ok())
            .flatten()
            .map(|path| Filter { path, wanted: None });
    };
    let left = text[..at].trim();
    let right = text[at + sign.len()..].trim();
    if !left.starts_with('@') || left.contains(['=', '&', '|', ' ']) {
        return None;
    }
    let wanted = if right.starts_with(['"', '\'']) {
        Value::String(quoted(right).ok()?)
    } else {
        serde_json::from_str(right).ok()?
    };
    Some(Filter {
        path: path(left).ok()?,
        wanted: Some((comparison, wanted)),
    })
}

/// A complete string in single or double quotes, with escapes such as `\n` and `\t`.
fn quoted(text: &str) -> Result<String, String> {
    let mut signs = text.chars();
    let quote = signs.next().ok_or_else(|| not_quoted(text))?;
    let mut read = String::new();
    while let Some(c) = signs.next() {
        if c == '\\' {
            let escaped = signs.next().ok_or_else(|| not_quoted(text))?;
            read.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            });
        } else if c != quote {
            read.push(c);
        } else if signs.next().is_none() {
            return Ok(read);
        } else {
            return Err(not_quoted(text));
        }
    }
    Err(not_quoted(text))
}

fn not_quoted(text: &str) -> String {
    format!("{text} is no text in quotes")
}
