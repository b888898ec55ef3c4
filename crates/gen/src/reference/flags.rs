//! The page about the command line: each command with its flags, as `--help` has them.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use etcd_operator_manager::cli::Cli;

use super::head;
use super::table::{code, table};

/// The page.
pub(super) fn page() -> String {
    let mut program = Cli::command();
    program.build();
    let mut page = head("Command line");
    page.push_str(
        "\nOne program does everything: `etcd-operator COMMAND`. The chart sets what the manager needs; Jobs and pods are given \
         theirs by the operator. A flag counts more than its variable. `etcd-operator COMMAND --help` says the same.\n",
    );
    for command in program.get_subcommands() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        let words = about(command);
        let _ = write!(page, "\n## {}\n\n{words}\n", command.get_name());
        let rows: Vec<_> = command
            .get_arguments()
            .filter(|flag| !flag.is_hide_set() && !matches!(flag.get_id().as_str(), "help" | "version"))
            .map(row)
            .collect();
        if !rows.is_empty() {
            page.push('\n');
        }
        page.push_str(&table(&["flag", "variable", "default", "what for"], &rows));
    }
    page
}

/// What it does, in all the words there are.
fn about(command: &Command) -> String {
    let long = command.get_long_about().or_else(|| command.get_about());
    sentence(&long.map(ToString::to_string).unwrap_or_default())
}

fn row(flag: &Arg) -> [String; 4] {
    let value = flag.get_value_names().unwrap_or_default().join(" ");
    let takes = flag.get_action().takes_values();
    let name = match flag.get_long() {
        Some(long) if takes => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
        None => value,
    };
    let variable = flag.get_env().map(|name| name.to_string_lossy().into_owned());
    let defaults: Vec<_> = flag
        .get_default_values()
        .iter()
        .filter(|_| takes)
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    let help = flag.get_long_help().or_else(|| flag.get_help());
    [
        code(&name),
        code(&variable.unwrap_or_default()),
        code(&defaults.join(" ")),
        sentence(&help.map(ToString::to_string).unwrap_or_default()),
    ]
}

/// clap takes the full stop of what is one sentence.
fn sentence(text: &str) -> String {
    let text = text.trim();
    match text.chars().last() {
        None | Some('.' | '`') => text.to_owned(),
        Some(_) => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_flag_that_is_shown_is_on_the_page_with_its_variable() {
        let page = page();
        for wanted in [
            "## manager",
            "`--watch-namespaces A,B` | `ETCD_OPERATOR_WATCH_NAMESPACES`",
            "`--concurrency N` | `ETCD_OPERATOR_CONCURRENCY` | `8`",
            "## restore",
            "`--dry-run`",
        ] {
            assert!(page.contains(wanted), "{wanted}:\n{page}");
        }
        assert!(!page.contains("## tidy"), "nobody types it");
    }
}
