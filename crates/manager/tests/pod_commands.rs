//! Checks that this binary accepts the command lines of the pods that the cluster controller builds. A pod with a rejected
//! command line would never become a member.

use std::path::Path;

use etcd_operator_manager::cli::{Cli, Command};
use serde_json::Value;

const PROGRAM: &str = "etcd-operator";

/// The StatefulSets in the golden files of the cluster controller.
fn sets() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster-core/tests/canonical");
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let set = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let objects: Value = serde_json::from_str(&text).expect("it is JSON");
        let all = objects.as_array().expect("a list").iter();
        let set = all.into_iter().find(|object| object["kind"] == "StatefulSet");
        (path.display().to_string(), set.expect("a StatefulSet").clone())
    };
    files.map(set).collect()
}

fn words(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.map(|word| word.as_str().expect("text").to_owned()).collect()
}

/// The command line without the directory of the program.
fn line(words: &[String]) -> Vec<String> {
    let (program, rest) = words.split_first().expect("a command");
    assert!(program.ends_with(PROGRAM), "{words:?}");
    let mut line = vec![PROGRAM.to_owned()];
    line.extend_from_slice(rest);
    line
}

#[test]
fn command_lines_of_members_probes_and_init_containers_are_accepted() {
    let (mut members, mut probes) = (0, 0);
    for (file, set) in sets() {
        let spec = &set["spec"]["template"]["spec"];
        let container = |kind: &str| spec[kind].as_array().and_then(|all| all.first().cloned());
        let etcd = container("containers").expect("a container");
        let mut member = line(&words(&etcd["command"]));
        // The pod sets these as environment variables.
        let end = member
            .iter()
            .position(|word| word == "--")
            .expect("etcd's own command");
        let given = ["--name=c-0", "--pod-uid=u", "--pod-ip=10.0.0.1"].map(str::to_owned);
        let environment = variables_of_pod(&etcd);
        for name in ["POD_NAME", "POD_UID", "POD_IP"] {
            assert!(environment.iter().any(|given| given == name), "{file}: {name}");
        }
        member.splice(end..end, given);
        let cli = Cli::read(member).unwrap_or_else(|error| panic!("{file}: {error}"));
        let Command::Member(args) = cli.command else {
            panic!("{file}: not a member");
        };
        assert!(args.command.len() > 1, "{file}: {args:?}");
        members += 1;

        let install = container("initContainers").expect("an init container");
        let cli = Cli::read(line(&words(&install["command"])));
        let cli = cli.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(matches!(cli.command, Command::Install(_)), "{file}");

        let probe = &etcd["readinessProbe"]["exec"]["command"];
        if probe.is_array() {
            let cli = Cli::read(line(&words(probe))).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(matches!(cli.command, Command::Ready(_)), "{file}");
            probes += 1;
        }
    }
    assert!(members >= 6 && probes >= 1, "{members} members, {probes} probes");
}

/// The container's environment variables with values from its pod.
fn variables_of_pod(container: &Value) -> Vec<String> {
    let all = container["env"].as_array().into_iter().flatten();
    let from_pod = all.filter(|variable| variable["valueFrom"]["fieldRef"].is_object());
    let names = from_pod.filter_map(|variable| variable["name"].as_str());
    names.map(str::to_owned).collect()
}
