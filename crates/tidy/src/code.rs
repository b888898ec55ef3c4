//! Rust text as words, without comments and literals. Not a parser: it knows just enough not to be fooled by text.

/// The text with comments and the insides of literals blanked; line breaks stay, so lines keep their numbers.
pub fn bare(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut bare = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped(&chars, at);
        if end == at {
            bare.push(chars[at]);
            at += 1;
        } else {
            bare.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    bare
}

/// Where a comment or literal that begins at `at` ends; `at` itself if none begins there.
fn skipped(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |c| c == '\n'),
        '/' if next == Some('*') => block_comment(chars, at),
        '"' => string(chars, at + 1, 0),
        'r' | 'b' | 'c' if !is_word(at.checked_sub(1).and_then(|before| chars.get(before))) => {
            prefixed(chars, at)
        }
        '\'' => character(chars, at),
        _ => at,
    }
}

fn is_word(c: Option<&char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || *c == '_')
}

fn find(chars: &[char], from: usize, ends: impl Fn(char) -> bool) -> usize {
    chars[from..]
        .iter()
        .position(|c| ends(*c))
        .map_or(chars.len(), |length| from + length)
}

fn block_comment(chars: &[char], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// The end of a string whose first inner character is at `from`; raw if it has `hashes` (or is told so by escapes
/// being impossible).
fn string(chars: &[char], from: usize, hashes: usize) -> usize {
    let mut at = from;
    while at < chars.len() {
        match chars[at] {
            '\\' if hashes == 0 => at += 2,
            '"' if chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes => {
                return at + 1 + hashes;
            }
            _ => at += 1,
        }
    }
    chars.len()
}

/// `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#`, `c"…"`; anything else that begins with these letters is a word.
fn prefixed(chars: &[char], at: usize) -> usize {
    let mut quote = at + 1;
    let mut raw = chars[at] == 'r';
    if !raw && chars.get(quote) == Some(&'r') {
        raw = true;
        quote += 1;
    }
    let hashes = if raw {
        chars[quote.min(chars.len())..]
            .iter()
            .take_while(|c| **c == '#')
            .count()
    } else {
        0
    };
    match chars.get(quote + hashes) {
        Some('"') if raw && hashes == 0 => find(chars, quote + 1, |c| c == '"')
            .saturating_add(1)
            .min(chars.len()),
        Some('"') => string(chars, quote + hashes + 1, hashes),
        _ => at,
    }
}

/// A character literal, or nothing where the quote begins a lifetime.
fn character(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => find(chars, at + 3, |c| c == '\'')
            .saturating_add(1)
            .min(chars.len()),
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

/// A word or a sign, and the line it stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// The text.
    pub text: &'a str,
    /// The line, from 1.
    pub line: usize,
}

/// The words and signs of text that [`bare`] made. `::` is one sign.
pub fn tokens(bare: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (index, line) in bare.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word(Some(&first)) {
                rest.find(|c| !is_word(Some(&c))).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push(Token {
                text: &rest[..length],
                line: index + 1,
            });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// The lines on which a path such as `Timestamp::now` or a single word occurs.
pub fn lines_with(tokens: &[Token<'_>], path: &str) -> Vec<usize> {
    let wanted: Vec<Token<'_>> = tokens_of(path);
    tokens
        .windows(wanted.len())
        .filter(|window| window.iter().zip(&wanted).all(|(a, b)| a.text == b.text))
        .map(|window| window[0].line)
        .collect()
}

fn tokens_of(path: &str) -> Vec<Token<'_>> {
    tokens(path)
}

/// The line on which the unit tests of a file begin; what is behind it is no code of the product.
pub fn tests_begin(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let begins =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(begins).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        tokens(&bare(text))
            .iter()
            .map(|token| token.text.to_owned())
            .collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        assert_eq!(words("a // async\nb /* x /* async */ y */ c"), ["a", "b", "c"]);
        assert_eq!(
            words(r#"f("async \" b", 'x', '\'', '\u{e4}')"#),
            ["f", "(", ",", ",", ",", ")"]
        );
        assert_eq!(
            words("r#\"as\"ync\"# + b\"x\" + br\"\\\" + r\"\\\""),
            ["+", "+", "+"]
        );
        assert_eq!(words("/// async\nfn f() {}"), ["fn", "f", "(", ")", "{", "}"]);
    }

    #[test]
    fn lifetimes_and_words_that_look_like_literals_stay() {
        assert_eq!(words("&'a str"), ["&", "'", "a", "str"]);
        assert_eq!(
            words("rb br r#type for_r"),
            ["rb", "br", "r", "#", "type", "for_r"]
        );
    }

    #[test]
    fn lines_keep_their_numbers() {
        let text = "a\n\"x\ny\"\nasync fn\n";
        assert_eq!(lines_with(&tokens(&bare(text)), "async"), [4]);
    }

    #[test]
    fn a_path_is_found_whatever_the_spaces() {
        let text = bare("let t = jiff::Timestamp :: now();\nnow_and_then()");
        assert_eq!(lines_with(&tokens(&text), "Timestamp::now"), [1]);
        assert_eq!(lines_with(&tokens(&text), "now"), [1]);
    }

    #[test]
    fn unit_tests_begin_at_their_module_and_not_at_a_file_of_tests() {
        assert_eq!(tests_begin("a\n#[cfg(test)]\nmod tests {\n"), Some(2));
        assert_eq!(tests_begin("#[cfg(test)]\nmod tests;\n"), None);
    }
}
