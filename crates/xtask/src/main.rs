//! `cargo xtask`: the project's commands. Standard library only, so that it builds at once and can install or build
//! what everything else needs. What a command does in detail belongs to the programs it runs, not here.
#![allow(clippy::print_stdout, reason = "a command speaks to its user")]

mod background;
mod counts;
mod deny;
mod docs;
mod e2e;
mod floor;
mod generated;
mod image;
mod machine;
mod packages;
mod places;
mod release;
mod run;
mod simulate;
mod steps;
mod suites;
mod tool;
mod up;

use std::process::ExitCode;

/// A command of `cargo xtask`.
struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    work: fn(&[String]) -> Result<(), Failure>,
}

impl Command {
    fn call(&self) -> String {
        format!("{} {}", self.name, self.arguments).trim_end().to_owned()
    }
}

/// Why a command did not succeed.
enum Failure {
    /// It ran, and what it looked at is not in order.
    Failed(String),
    /// It was called in a way it does not understand.
    Refused(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[--fast]",
        about: "everything that must hold; --fast leaves out what needs a Kubernetes",
        work: steps::test,
    },
    Command {
        name: "e2e",
        arguments: "[--all] [--keep] [--nodes N] [--seed N] [--junit FILE] [NAME...]",
        about: "tests and scenarios whose names contain one of NAME, or all; without either, lists them (builds them first)",
        work: e2e::command,
    },
    Command {
        name: "simulate",
        arguments: "[SEEDS]",
        about: "lives of clusters from ten thousand seeds, which must have been everywhere, or from so many",
        work: simulate::seeds,
    },
    Command {
        name: "gen",
        arguments: "[--check]",
        about: "writes every generated file, or says which are stale",
        work: generated::command,
    },
    Command {
        name: "docs",
        arguments: "",
        about: "the documentation as a site with search, in target/docs/site",
        work: docs::command,
    },
    Command {
        name: "deny",
        arguments: "",
        about: "licences, banned crates and sources of the dependencies",
        work: deny::command,
    },
    Command {
        name: "up",
        arguments: "[--nodes 1|3] [--context NAME [--image IMAGE]]",
        about: "a Kubernetes on this machine, or the one of a context, with the operator and samples in it",
        work: up::up,
    },
    Command {
        name: "down",
        arguments: "[--purge]",
        about: "ends what `up` started; --purge removes what was built for it, too",
        work: up::down,
    },
    Command {
        name: "release",
        arguments: "",
        about: "the binary as it is shipped: fully static, stripped, at most 40 MB, or an error",
        work: release::command,
    },
    Command {
        name: "bench",
        arguments: "[--runs N] [NAME...]",
        about: "measures the operator against its budgets, beside what the same machine needs without it; five times each, or N",
        work: e2e::bench,
    },
    Command {
        name: "image",
        arguments: "[--output DIRECTORY] [--name NAME:TAG]",
        about: "the operator's container image as an archive of OCI, and its bill of materials; needs no engine",
        work: image::command,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        None => {
            println!("{}", usage());
            return ExitCode::SUCCESS;
        }
        Some((name, _)) if ["help", "--help", "-h"].contains(&name.as_str()) => {
            println!("{}", usage());
            return ExitCode::SUCCESS;
        }
        Some(split) => split,
    };
    let found = COMMANDS.iter().find(|command| command.name == name);
    if let Some(command) = found
        && rest
            .iter()
            .any(|argument| ["--help", "-h"].contains(&argument.as_str()))
    {
        println!("cargo xtask {}\n\n{}", command.call(), command.about);
        return ExitCode::SUCCESS;
    }
    let outcome = match found {
        None => Err(Failure::Refused(format!(
            "there is no command `{name}`\n\n{}",
            usage()
        ))),
        Some(command) => (command.work)(rest),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::from(1)
        }
        Err(Failure::Refused(message)) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn usage() -> String {
    let line = |command: &Command| format!("  {}\n      {}", command.call(), command.about);
    let lines: Vec<String> = COMMANDS.iter().map(line).collect();
    format!("cargo xtask COMMAND\n\n{}", lines.join("\n"))
}

/// For commands that take at most one flag.
fn only_flag(arguments: &[String], flag: &str) -> Result<bool, Failure> {
    match arguments {
        [] => Ok(false),
        [only] if only == flag => Ok(true),
        _ => Err(Failure::Refused(format!(
            "only {flag} is understood, not `{}`",
            arguments.join(" ")
        ))),
    }
}

/// For commands that take nothing.
fn no_arguments(arguments: &[String]) -> Result<(), Failure> {
    match arguments {
        [] => Ok(()),
        _ => Err(Failure::Refused(format!(
            "no arguments are understood, not `{}`",
            arguments.join(" ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_flag_is_refused_and_not_ignored() {
        assert!(matches!(
            only_flag(&["--fats".into()], "--fast"),
            Err(Failure::Refused(_))
        ));
        assert!(matches!(only_flag(&["--fast".into()], "--fast"), Ok(true)));
        assert!(matches!(no_arguments(&["x".into()]), Err(Failure::Refused(_))));
    }
}
