//! What the page about backups tells people to type is understood.

use etcd_operator_manager::cli::{Cli, Command};
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/backups.md");

fn read(line: &[String]) -> Result<Cli, String> {
    let whole = ["etcd-operator".to_owned()]
        .into_iter()
        .chain(line.iter().cloned());
    Cli::read(whole).map_err(|error| format!("{line:?}: {error}"))
}

/// The words of a line, as a shell has them where nothing is quoted and one variable is set.
fn words(line: &str) -> Vec<String> {
    let (_, rest) = PAGE.split_once("\nstore=\"").expect("the variable");
    let (store, _) = rest.split_once('"').expect("its end");
    let line = line.replace("$store", store);
    line.split_whitespace().map(str::to_owned).collect()
}

/// The arguments of a list in YAML.
fn list(text: &str) -> Vec<String> {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The object that is given to kubectl on its standard input.
fn applied() -> Value {
    let (_, rest) = PAGE.split_once("<<'END'\n").expect("an object");
    let (object, _) = rest.split_once("\nEND\n").expect("its end");
    serde_saphyr::from_str(object).expect("YAML")
}

#[test]
fn the_pod_that_looks_at_backups_runs_a_command_there_is_on_what_it_mounts() {
    let pod = applied();
    let container = &pod["spec"]["containers"][0];
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).expect("arguments");
    let Command::List(told) = read(&args).expect("understood").command else {
        panic!("{args:?}");
    };
    let mounted = container["volumeMounts"][0]["mountPath"]
        .as_str()
        .expect("a mount");
    assert_eq!(told.url.as_deref(), Some(format!("{mounted}/").as_str()));
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
fn the_way_to_fetch_from_a_volume_is_understood() {
    let (_, rest) = PAGE.split_once("say `args: ").expect("the line");
    let (args, _) = rest.split_once('`').expect("its end");
    let Command::Fetch(told) = read(&list(args)).expect("understood").command else {
        panic!("{args}");
    };
    assert_eq!(told.url.as_deref(), Some("/backups/NAME"));
    assert!(told.file.is_some());
}

#[test]
fn every_command_line_of_the_operator_is_understood() {
    let joined = PAGE.replace("\\\n", " ");
    let lines: Vec<_> = joined
        .lines()
        .filter_map(|line| line.strip_prefix("etcd-operator "))
        .collect();
    assert!(lines.len() >= 6, "{lines:?}");
    for line in lines {
        read(&words(line)).unwrap_or_else(|error| panic!("{error}"));
    }
}
