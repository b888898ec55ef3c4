//! Running other programs: their output goes through as it comes, and can be read on its way.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::Command;

use crate::{packages, places};

/// Cargo, the same that built this program, in the root of the repository.
pub(crate) fn cargo<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    at_home(&mut command, arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(name)) {
        command.env_remove(name);
    }
    command
}

/// What Cargo tells a program that it runs about its package. Build scripts of dependencies watch some of it: handed on, it
/// would have them run again, and all behind them built again, whenever Cargo is called by hand in between.
fn is_of_this_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "CARGO_CRATE_NAME"
}

/// Any other program, in the root of the repository.
pub(crate) fn program<I: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(program);
    at_home(&mut command, arguments);
    command
}

/// In the root of the repository, with the programs found that were found here.
fn at_home<I: AsRef<OsStr>>(command: &mut Command, arguments: impl IntoIterator<Item = I>) {
    command.args(arguments).current_dir(places::root());
    if let Ok(path) = std::env::join_paths(packages::search_path()) {
        command.env("PATH", path);
    }
}

/// Runs to the end with our own standard output and error.
pub(crate) fn plainly(mut command: Command) -> Result<(), String> {
    let name = describe(&command);
    let status = command
        .status()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} failed ({status})"))
    }
}

/// Runs to the end and shows each line of output and error, in the order written, to `see` as well as to the user.
/// Colours are taken out of what `see` gets.
pub(crate) fn watched(mut command: Command, mut see: impl FnMut(&str)) -> Result<(), String> {
    let name = describe(&command);
    let fail = |error: std::io::Error| format!("cannot run {name}: {error}");
    // One pipe for both streams: what Cargo says about a test binary must not overtake the binary's own lines.
    let (reader, writer) = std::io::pipe().map_err(fail)?;
    command.stdout(writer.try_clone().map_err(fail)?).stderr(writer);
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.spawn().map_err(fail)?;
    // Else our own copies of the pipe's writing end would keep it open for ever.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut out = std::io::stdout();
    while reader.read_until(b'\n', &mut line).map_err(fail)? > 0 {
        // A reader that has gone away (`| head`) is no reason to stop testing.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        see(without_colours(&String::from_utf8_lossy(&line)).trim_end());
        line.clear();
    }
    let status = child.wait().map_err(fail)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} failed ({status})"))
    }
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy);
    format!("`{}`", words.collect::<Vec<_>>().join(" "))
}

/// Takes out `ESC [ … m` and its kind.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..start]);
        let code = &rest[start + 2..];
        let end = code
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(code.len(), |end| end + 1);
        rest = &code[end..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_do_not_hide_words() {
        assert_eq!(
            without_colours("\u{1b}[1m\u{1b}[32m     Running\u{1b}[0m tests/a.rs"),
            "     Running tests/a.rs"
        );
        assert_eq!(without_colours("plain"), "plain");
        assert_eq!(without_colours("torn \u{1b}[3"), "torn ");
    }

    #[test]
    fn cargo_is_run_as_if_by_hand() {
        // Cargo has told this test its own package.
        assert!(std::env::vars_os().any(|(name, _)| is_of_this_package(&name)));
        let command = cargo(["build"]);
        let mut handed_on = std::env::vars_os()
            .filter(|(name, _)| is_of_this_package(name))
            .filter(|(own, _)| {
                !command
                    .get_envs()
                    .any(|(name, value)| name == own && value.is_none())
            });
        assert_eq!(handed_on.next(), None);
    }

    #[test]
    fn what_is_run_finds_roots_programs_whatever_the_path_of_its_caller() {
        let command = program(Path::new("sh"), ["-c", ""]);
        let path = command.get_envs().find(|(name, _)| *name == "PATH");
        let path = path
            .and_then(|(_, value)| value)
            .expect("it has a PATH of its own");
        let directories: Vec<_> = std::env::split_paths(path).collect();
        for system in ["/usr/sbin", "/sbin"] {
            assert!(
                directories.iter().any(|directory| directory == Path::new(system)),
                "{system}"
            );
        }
    }

    #[test]
    fn both_streams_are_seen_in_the_order_written_and_a_failure_is_one() {
        let mut seen = Vec::new();
        let script = "echo one; echo two >&2; echo three; exit 3";
        let outcome = watched(program(Path::new("sh"), ["-c", script]), |line| {
            seen.push(line.to_owned());
        });
        assert_eq!(seen, ["one", "two", "three"]);
        assert!(outcome.is_err_and(|message| message.contains("exit status: 3")));
    }
}
