//! Checks this repository against the invariants of ARCHITECTURE.md. The doc comment of each test names its
//! invariant.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::LazyLock;

use etcd_operator_tidy::tree::Tree;
use etcd_operator_tidy::{
    Finding, architecture, dependencies, files, imports, links, manifests, purity, tree,
};

static TREE: LazyLock<Tree> = LazyLock::new(|| tree::read(tree::root()).expect("cannot read the repository"));

fn rust_files() -> impl Iterator<Item = (&'static String, &'static String)> + Clone {
    TREE.iter()
        .filter(|(path, _)| path.rsplit('.').next() == Some("rs"))
}

fn assert_none(findings: impl IntoIterator<Item = Finding>) {
    let lines: Vec<String> = findings.into_iter().map(|finding| finding.to_string()).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}

fn page() -> &'static str {
    &TREE[architecture::PAGE]
}

/// I-arrows
#[test]
fn crates_depend_on_one_another_as_the_table_says() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(tree::root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_none(dependencies::findings(&metadata));
}

/// I-pure
#[test]
fn modules_that_decide_are_pure() {
    let deciding: Vec<_> = rust_files()
        .filter(|(path, _)| purity::must_be_pure(path))
        .collect();
    assert_eq!(
        purity::without_a_file(&rust_files().map(|(path, _)| path.as_str())),
        [""; 0],
        "listed, and no file has that name"
    );
    assert_none(
        deciding
            .iter()
            .flat_map(|(path, text)| purity::findings(path, text, purity::IMPURE)),
    );
}

/// I-no-circles
#[test]
fn modules_that_decide_import_one_another_in_no_circle() {
    for source in purity::CONTROLLERS {
        let imports = imports::read(&TREE, source);
        let deciding: BTreeSet<_> = imports
            .keys()
            .map(String::as_str)
            .filter(|path| purity::must_be_pure(path))
            .collect();
        assert!(deciding.len() >= 10, "{source}: {deciding:?}");
        let exceptions = imports::EXCEPTIONS.iter().copied();
        let exceptions: Vec<_> = exceptions
            .filter(|exception| exception.from.starts_with(source))
            .collect();
        assert_none(imports::check_circles(&imports, &deciding, &exceptions));
    }
}

/// I-flows
#[test]
fn flows_of_a_cluster_call_no_other_flow() {
    let imports = imports::read(&TREE, "crates/cluster-core/src/");
    assert_none(imports::check_flows(&imports, &imports::FLOWS, &imports::PICKERS));
}

/// I-api-no-io
#[test]
fn the_api_does_no_io() {
    let api: Vec<_> = rust_files().filter(|(path, _)| purity::is_api(path)).collect();
    assert!(api.len() >= 20, "{}", api.len());
    assert_none(
        api.iter()
            .flat_map(|(path, text)| purity::findings(path, text, purity::IO)),
    );
}

/// I-one-clock
#[test]
fn time_and_chance_come_from_one_module_each() {
    let takers = rust_files().filter(|(path, _)| purity::must_not_read_clock(path));
    assert_none(takers.flat_map(|(path, text)| purity::findings(path, text, purity::CLOCKS)));
}

/// I-one-writer
#[test]
fn nothing_writes_to_the_api_server_but_apply_events_and_lease() {
    let others = rust_files().filter(|(path, _)| purity::must_not_write(path));
    assert_none(others.flat_map(|(path, text)| purity::findings(path, text, purity::WRITES)));
}

/// I-files
#[test]
fn files_are_short_say_what_they_are_for_and_are_finished() {
    assert_none(rust_files().flat_map(|(path, text)| {
        let length = files::check_length(path, text);
        [
            length,
            files::check_first_line(path, text),
            files::check_unfinished(path, text),
        ]
        .concat()
    }));
    assert_none(
        TREE.iter()
            .flat_map(|(path, text)| files::check_traces(path, text)),
    );
}

/// I-safe
#[test]
fn every_crate_takes_the_lints_of_the_workspace_and_no_code_is_unsafe() {
    assert_none(manifests::findings(&TREE));
}

/// I-map
#[test]
fn every_module_is_found_from_the_page_about_the_architecture() {
    assert_none(architecture::check_length(page()));
    assert_none(architecture::check_map(page(), &TREE));
}

/// I-links
#[test]
fn every_link_of_a_page_resolves_and_the_site_has_every_page() {
    let pages: Vec<_> = TREE.iter().filter(|(path, _)| links::is_page(path)).collect();
    assert!(pages.len() >= 50, "{}", pages.len());
    assert_none(
        pages
            .iter()
            .flat_map(|(path, text)| links::check_links(path, text, &TREE)),
    );
    assert_none(links::check_summary(&TREE));
}

/// I-held
#[test]
fn every_invariant_is_held_by_a_test_that_exists() {
    let invariants = architecture::invariants(page());
    assert!(invariants.len() >= 10, "{invariants:?}");
    assert_none(architecture::check_invariants(
        page(),
        &TREE,
        "crates/tidy/tests/repository.rs",
    ));
}
