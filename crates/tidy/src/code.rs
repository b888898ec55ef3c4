//! Splits Rust source into tokens without comments and literals. This is not a parser; it only ensures that
//! text in comments and literals is not mistaken for code.

/// Replaces comments and the content of literals with spaces. Line breaks are kept, so line numbers stay the
/// same.
pub fn strip_comments_and_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut bare = String::with_capacity(text.len());
    let mut position = 0;
    while position < chars.len() {
        let end = skip_comment_or_literal(&chars, position);
        if end == position {
            bare.push(chars[position]);
            position += 1;
        } else {
            bare.extend(
                chars[position..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            position = end;
        }
    }
    bare
}

/// The end of the comment or literal that begins at `position`, or `position` itself if none begins there.
fn skip_comment_or_literal(chars: &[char], position: usize) -> usize {
    let next = chars.get(position + 1).copied();
    match chars[position] {
        '/' if next == Some('/') => find_char(chars, position, |c| c == '\n'),
        '/' if next == Some('*') => end_of_block_comment(chars, position),
        '"' => end_of_string(chars, position + 1, 0),
        'r' | 'b' | 'c' if !is_word(position.checked_sub(1).and_then(|before| chars.get(before))) => {
            end_of_prefixed_string(chars, position)
        }
        '\'' => end_of_character(chars, position),
        _ => position,
    }
}

fn is_word(c: Option<&char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || *c == '_')
}

fn find_char(chars: &[char], from: usize, ends: impl Fn(char) -> bool) -> usize {
    chars[from..]
        .iter()
        .position(|c| ends(*c))
        .map_or(chars.len(), |length| from + length)
}

fn end_of_block_comment(chars: &[char], from: usize) -> usize {
    let mut depth = 0;
    let mut position = from;
    while position < chars.len() {
        match (chars[position], chars.get(position + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                position += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                position += 2;
                if depth == 0 {
                    return position;
                }
            }
            _ => position += 1,
        }
    }
    position
}

/// The end of a string literal whose content begins at `from`. With `hashes`, the string is raw and has no
/// escapes.
fn end_of_string(chars: &[char], from: usize, hashes: usize) -> usize {
    let mut position = from;
    while position < chars.len() {
        match chars[position] {
            '\\' if hashes == 0 => position += 2,
            '"' if chars[position + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes =>
            {
                return position + 1 + hashes;
            }
            _ => position += 1,
        }
    }
    chars.len()
}

/// The end of a prefixed string: `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#` or `c"…"`. If the letters begin an
/// ordinary word, `position` itself.
fn end_of_prefixed_string(chars: &[char], position: usize) -> usize {
    let mut quote = position + 1;
    let mut raw = chars[position] == 'r';
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
        Some('"') if raw && hashes == 0 => find_char(chars, quote + 1, |c| c == '"')
            .saturating_add(1)
            .min(chars.len()),
        Some('"') => end_of_string(chars, quote + hashes + 1, hashes),
        _ => position,
    }
}

/// The end of a character literal, or `position` itself if the quote begins a lifetime.
fn end_of_character(chars: &[char], position: usize) -> usize {
    match (chars.get(position + 1), chars.get(position + 2)) {
        (Some('\\'), _) => find_char(chars, position + 3, |c| c == '\'')
            .saturating_add(1)
            .min(chars.len()),
        (Some(_), Some('\'')) => position + 3,
        _ => position,
    }
}

/// A word or sign with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// The text.
    pub text: &'a str,
    /// The line, starting at 1.
    pub line: usize,
}

/// Splits the output of [`strip_comments_and_literals`] into words and signs. `::` is one sign.
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

/// The lines that contain a word, or a path such as `Timestamp::now`.
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

/// The line on which the unit tests of a file begin. Checks of product code end there.
pub fn first_test_line(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let begins =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(begins).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        tokens(&strip_comments_and_literals(text))
            .iter()
            .map(|token| token.text.to_owned())
            .collect()
    }

    #[test]
    fn comments_and_literals_are_stripped() {
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
    fn lifetimes_and_words_that_look_like_literals_are_kept() {
        assert_eq!(words("&'a str"), ["&", "'", "a", "str"]);
        assert_eq!(
            words("rb br r#type for_r"),
            ["rb", "br", "r", "#", "type", "for_r"]
        );
    }

    #[test]
    fn lines_keep_their_numbers() {
        let text = "a\n\"x\ny\"\nasync fn\n";
        assert_eq!(
            lines_with(&tokens(&strip_comments_and_literals(text)), "async"),
            [4]
        );
    }

    #[test]
    fn a_path_is_found_with_any_spaces() {
        let text = strip_comments_and_literals("let t = jiff::Timestamp :: now();\nnow_and_then()");
        assert_eq!(lines_with(&tokens(&text), "Timestamp::now"), [1]);
        assert_eq!(lines_with(&tokens(&text), "now"), [1]);
    }

    #[test]
    fn unit_tests_begin_at_an_inline_module_only() {
        assert_eq!(first_test_line("a\n#[cfg(test)]\nmod tests {\n"), Some(2));
        assert_eq!(first_test_line("#[cfg(test)]\nmod tests;\n"), None);
    }
}
