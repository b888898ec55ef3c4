//! Checks that the commands in docs/backups.md are valid.

use etcd_operator_manager::cli::{Cli, Command};
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/backups.md");

fn parse(line: &[String]) -> Result<Cli, String> {
    let line_with_program = ["etcd-operator".to_owned()]
        .into_iter()
        .chain(line.iter().cloned());
    Cli::read(line_with_program).map_err(|error| format!("{line:?}: {error}"))
}

/// Splits a command line like a shell, without quoting and with one variable.
fn words(line: &str) -> Vec<String> {
    let (_, rest) = PAGE.split_once("\nstore=\"").expect("the variable");
    let (store, _) = rest.split_once('"').expect("its end");
    let line = line.replace("$store", store);
    line.split_whitespace().map(str::to_owned).collect()
}

/// Parses a YAML list of arguments.
fn list(text: &str) -> Vec<String> {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The manifest that is passed to kubectl on standard input.
fn applied() -> Value {
    let (_, rest) = PAGE.split_once("<<'END'\n").expect("an object");
    let (object, _) = rest.split_once("\nEND\n").expect("its end");
    serde_saphyr::from_str(object).expect("YAML")
}

#[test]
fn the_pod_that_lists_backups_runs_a_valid_command_on_its_mount() {
    let pod = applied();
    let container = &pod["spec"]["containers"][0];
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).expect("arguments");
    let Command::List(parsed) = parse(&args).expect("understood").command else {
        panic!("{args:?}");
    };
    let mounted = container["volumeMounts"][0]["mountPath"]
        .as_str()
        .expect("a mount");
    assert_eq!(parsed.url.as_deref(), Some(format!("{mounted}/").as_str()));
    assert_eq!(
        container["volumeMounts"][0]["name"],
        pod["spec"]["volumes"][0]["name"]
    );
    assert!(
        container["command"].is_null(),
        "the image's entry point is the program"
    );
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
}

#[test]
fn the_command_to_fetch_from_a_volume_is_valid() {
    let (_, rest) = PAGE.split_once("say `args: ").expect("the line");
    let (args, _) = rest.split_once('`').expect("its end");
    let Command::Fetch(parsed) = parse(&list(args)).expect("understood").command else {
        panic!("{args}");
    };
    assert_eq!(parsed.url.as_deref(), Some("/backups/NAME"));
    assert!(parsed.file.is_some());
}

#[test]
fn every_command_line_of_the_operator_is_valid() {
    let joined = PAGE.replace("\\\n", " ");
    let lines: Vec<_> = joined
        .lines()
        .filter_map(|line| line.strip_prefix("etcd-operator "))
        .collect();
    assert!(lines.len() >= 6, "{lines:?}");
    for line in lines {
        parse(&words(line)).unwrap_or_else(|error| panic!("{error}"));
    }
}
