//! The reference page of the command line: each command with its flags, as in `--help`.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use etcd_operator_manager::cli::Cli;

use super::head;
use super::table::{code, table};

/// Generates the page.
pub(super) fn page() -> String {
    let mut program = Cli::command();
    program.build();
    let mut page = head("Command line");
    page.push_str(
        "\nThe operator is a single binary: `etcd-operator COMMAND`. The chart sets the flags of the manager; the operator sets those \
         of Jobs and pods. A flag overrides its environment variable. `etcd-operator COMMAND --help` shows the same text.\n",
    );
    for command in program.get_subcommands() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        let description = description(command);
        let _ = write!(page, "\n## {}\n\n{description}\n", command.get_name());
        let rows: Vec<_> = command
            .get_arguments()
            .filter(|flag| !flag.is_hide_set() && !matches!(flag.get_id().as_str(), "help" | "version"))
            .map(row)
            .collect();
        if !rows.is_empty() {
            page.push('\n');
        }
        page.push_str(&table(&["flag", "variable", "default", "description"], &rows));
    }
    page
}

/// The long description of a command.
fn description(command: &Command) -> String {
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

/// Adds the full stop that clap removes from a single sentence.
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
    fn every_visible_command_and_flag_is_on_the_page() {
        let page = page();
        for expected in [
            "## manager",
            "`--watch-namespaces A,B` | `ETCD_OPERATOR_WATCH_NAMESPACES`",
            "`--concurrency N` | `ETCD_OPERATOR_CONCURRENCY` | `8`",
            "## restore",
            "`--dry-run`",
        ] {
            assert!(page.contains(expected), "{expected}:\n{page}");
        }
        assert!(!page.contains("## tidy"), "hidden commands are not on the page");
    }
}
