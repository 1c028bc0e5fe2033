//! Globs: `*` is any text, `?` any character, `[ab]`, `[a-z]` one of these, `[!a]` any other
//! character, `{a,b*}` one of these texts.
//!
//! The notation of Velero's filters (v1.18; in namespaces it refuses braces), without `\`. A
//! pattern with an unbalanced bracket or brace matches only itself.

#[derive(Debug, PartialEq)]
enum Piece {
    Char(char),
    AnyChar,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    AnyText,
}

/// Maximum number of patterns that braces expand to; a pattern with more matches only itself.
const MAX_ALTERNATIVES: usize = 256;

/// Whether the text has a character with a special meaning in globs.
pub fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', ']', '{', '}'])
}

/// Whether a pattern matches a whole name. Takes time proportional to at most the product of the
/// two lengths, for each of its alternatives.
pub fn glob_match(pattern: &str, name: &str) -> bool {
    if !is_glob(pattern) || pattern == "*" {
        return pattern == name || pattern == "*";
    }
    alternatives(pattern).map_or(pattern == name, |all| {
        all.iter().any(|one| matches(one, name))
    })
}

/// The patterns without braces that a pattern expands to; `None` if it matches only itself.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(next) = open.pop() {
        match innermost(&next) {
            None => {
                if next.contains(['{', '}']) {
                    return None;
                }
                done.push(next);
            }
            Some((before, inside, after)) => {
                open.extend(inside.split(',').map(|one| format!("{before}{one}{after}")));
            }
        }
        if done.len() + open.len() > MAX_ALTERNATIVES {
            return None;
        }
    }
    Some(done)
}

/// The text before, in and after the first innermost pair of braces.
fn innermost(pattern: &str) -> Option<(&str, &str, &str)> {
    let close = pattern.find('}')?;
    let open = pattern[..close].rfind('{')?;
    Some((
        &pattern[..open],
        &pattern[open + 1..close],
        &pattern[close + 1..],
    ))
}

/// The same for a pattern without braces.
fn matches(pattern: &str, name: &str) -> bool {
    let pieces = parse(pattern);
    let name: Vec<char> = name.chars().collect();
    let mut at_piece = 0;
    let mut at_char = 0;
    // Where to continue if the rest after the latest `*` does not match: the `*` takes one more
    // character.
    let mut retry: Option<(usize, usize)> = None;
    while at_char < name.len() {
        match pieces.get(at_piece) {
            Some(Piece::AnyText) => {
                retry = Some((at_piece + 1, at_char));
                at_piece += 1;
            }
            Some(piece) if piece.takes(name[at_char]) => {
                at_piece += 1;
                at_char += 1;
            }
            _ => match retry {
                Some((piece, char)) => {
                    retry = Some((piece, char + 1));
                    at_piece = piece;
                    at_char = char + 1;
                }
                None => return false,
            },
        }
    }
    pieces[at_piece..]
        .iter()
        .all(|piece| *piece == Piece::AnyText)
}

/// Whether some name could match both patterns. Returns `true` when unsure (two classes of which
/// one is negated).
pub fn globs_may_overlap(a: &str, b: &str) -> bool {
    if !is_glob(a) {
        return glob_match(b, a);
    }
    if !is_glob(b) {
        return glob_match(a, b);
    }
    match (alternatives(a), alternatives(b)) {
        (Some(all), Some(others)) => all.iter().any(|a| others.iter().any(|b| may_overlap(a, b))),
        (None, _) => glob_match(b, a),
        (_, None) => glob_match(a, b),
    }
}

/// The same for patterns without braces.
fn may_overlap(a: &str, b: &str) -> bool {
    let a = parse(a);
    let b = parse(b);
    // overlap[i][j]: whether the rests from piece i and piece j can match the same text. Filled
    // from the ends.
    let mut overlap = vec![vec![false; b.len() + 1]; a.len() + 1];
    for i in (0..=a.len()).rev() {
        for j in (0..=b.len()).rev() {
            overlap[i][j] = match (a.get(i), b.get(j)) {
                (None, None) => true,
                // The `*` ends here, or takes the other's next piece.
                (Some(Piece::AnyText), Some(_)) | (Some(_), Some(Piece::AnyText)) => {
                    overlap[i + 1][j] || overlap[i][j + 1]
                }
                (Some(piece), None) => *piece == Piece::AnyText && overlap[i + 1][j],
                (None, Some(piece)) => *piece == Piece::AnyText && overlap[i][j + 1],
                (Some(one), Some(other)) => one.may_meet(other) && overlap[i + 1][j + 1],
            };
        }
    }
    overlap[0][0]
}

impl Piece {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Char(own) => *own == c,
            Self::AnyChar => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            Self::AnyText => false,
        }
    }

    /// Whether both can match the same character.
    fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Char(c), piece) | (piece, Self::Char(c)) => piece.takes(*c),
            (
                Self::Class {
                    negated: false,
                    ranges: a,
                },
                Self::Class {
                    negated: false,
                    ranges: b,
                },
            ) => a
                .iter()
                .any(|(low, high)| b.iter().any(|(from, to)| low.max(from) <= high.min(to))),
            _ => true,
        }
    }
}

/// The pieces of a pattern; a malformed one is taken literally.
fn parse(pattern: &str) -> Vec<Piece> {
    try_parse(pattern).unwrap_or_else(|| pattern.chars().map(Piece::Char).collect())
}

fn try_parse(pattern: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        pieces.push(match c {
            '*' => Piece::AnyText,
            '?' => Piece::AnyChar,
            '[' => {
                let (inside, rest) = chars.as_str().split_once(']')?;
                chars = rest.chars();
                class(inside)?
            }
            ']' => return None,
            c => Piece::Char(c),
        });
    }
    Some(pieces)
}

/// The class between brackets. A dash at an end is literal.
fn class(inside: &str) -> Option<Piece> {
    let (negated, inside) = match inside.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, inside),
    };
    let chars: Vec<char> = inside.chars().collect();
    if chars.is_empty() {
        return None;
    }
    let mut ranges = Vec::new();
    let mut rest = chars.as_slice();
    while let [first, tail @ ..] = rest {
        rest = match tail {
            ['-', last, tail @ ..] => {
                ranges.push((*first, *last));
                tail
            }
            tail => {
                ranges.push((*first, *first));
                tail
            }
        };
    }
    Some(Piece::Class { negated, ranges })
}

#[cfg(test)]
mod tests;
