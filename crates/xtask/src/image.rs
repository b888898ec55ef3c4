//! `cargo xtask image`: the operator's image without an engine, and its bill of materials. What an image is made of is the
//! affair of the program that writes it.

use std::path::Path;
use std::process::Command;

use crate::{Failure, places, release, run, suites};

/// Where they are written unless something else is said.
const OUTPUT: &str = "target/image";
const FLAGS: [&str; 2] = ["--output", "--name"];

/// `cargo xtask image [--output DIRECTORY] [--name NAME:TAG]`.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    let (output, name) = parse(arguments).map_err(Failure::Refused)?;
    let version = env!("CARGO_PKG_VERSION");
    let output = output.unwrap_or_else(|| places::root().join(OUTPUT).display().to_string());
    let output = std::path::absolute(&output).map_err(|error| format!("{output} is no path: {error}"))?;
    let name = name.unwrap_or_else(|| format!("etcd-operator:{version}"));
    let binary = release::build()?;
    suites::build_binary("image")?;
    // `release`, below the directory named after what is built for.
    let target = binary.ancestors().nth(2).and_then(Path::file_name);
    let target = target.ok_or_else(|| format!("{} lies nowhere", binary.display()))?;
    let words = [
        format!("--binary={}", binary.display()),
        format!("--output={}", output.display()),
        format!("--name={name}"),
        format!("--version={version}"),
        format!("--revision={}", revision()),
        format!("--target={}", target.to_string_lossy()),
    ];
    Ok(run::plainly(run::program(&places::built("image")?, words))?)
}

/// The commit, if this is a clone.
fn revision() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(places::root());
    let said = git.output().ok().filter(|said| said.status.success());
    said.map_or_else(
        || "unknown".to_owned(),
        |said| String::from_utf8_lossy(&said.stdout).trim().to_owned(),
    )
}

fn parse(arguments: &[String]) -> Result<(Option<String>, Option<String>), String> {
    let (mut output, mut name) = (None, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word.as_str(), words.next().map(String::as_str)),
        };
        if !FLAGS.contains(&flag) {
            return Err(format!("only {} are understood, not `{word}`", FLAGS.join(", ")));
        }
        let value = value
            .filter(|value| !value.is_empty() && !value.starts_with('-'))
            .ok_or_else(|| format!("{flag} needs a value"))?
            .to_owned();
        match flag {
            "--output" => output = Some(value),
            _ if value.rsplit('/').next().is_some_and(|end| end.contains(':')) => name = Some(value),
            _ => return Err(format!("--name needs a tag, such as {value}:1.0.0")),
        }
    }
    Ok((output, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<(Option<String>, Option<String>), String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_understood_in_both_forms() {
        let meant = (Some("out".to_owned()), Some("a:5000/b:1".to_owned()));
        assert_eq!(parsed(&["--output=out", "--name", "a:5000/b:1"]), Ok(meant));
        assert_eq!(parsed(&[]), Ok((None, None)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (words, reason) in [
            (["--name", "a:5000/b"], "needs a tag"),
            (["--output", ""], "needs a value"),
            (["--push", "x"], "not `--push`"),
        ] {
            assert!(parsed(&words).is_err_and(|why| why.contains(reason)), "{words:?}");
        }
    }
}
