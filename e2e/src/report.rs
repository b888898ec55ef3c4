//! The folder a failed scenario leaves: enough to understand it without the bed, which is gone by then.
//!
//! Writing it never fails a scenario by itself: what cannot be had is said in the place where it would be.

mod etcds;
mod timeline;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bed_dir::{self, PREFIX};
use crate::chronicle::Chronicle;
use crate::cluster::Cluster;
use crate::host::Host;
use crate::namespaces::Entry;

/// Kinds that are not written out: secrets stay secret, events have a file of their own.
const LEFT_OUT: &[&str] = &["secrets", "events", "events.events.k8s.io", "bindings"];
/// Directories of a bed without logs of its own processes: nodes keep other people's there by the thousand.
const NOT_OURS: &[&str] = &["lib", "run", "log", "volumes", "disks", "etcd"];

/// How many lines of what happened are told at once.
const SHORT: usize = 40;

/// Writes the report about a cluster into `folder`.
pub async fn write(cluster: &Cluster, folder: &Path, failure: &str) -> Result<()> {
    put(folder, "failure.txt", failure)?;
    let kinds = kubectl(cluster, &["api-resources", "--verbs=list", "--output=name"]).await;
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !LEFT_OUT.contains(kind) && !kind.contains(' '))
        .collect();
    let all = kinds.join(",");
    let objects = ["get", &all, "--all-namespaces", "--output=yaml"];
    put(folder, "objects.yaml", kubectl(cluster, &objects).await)?;
    let pods = ["get", "pods,nodes", "--all-namespaces", "--output=wide"];
    put(folder, "pods.txt", kubectl(cluster, &pods).await)?;
    let events = kubectl(cluster, &["get", "events", "--all-namespaces", "--output=json"]).await;
    let (known, trouble) = match serde_json::from_str(&events) {
        Ok(known) => (known, String::new()),
        Err(_) => (Value::Null, format!("there are no events: {events}\n")),
    };
    let told = timeline::merged(&known, &cluster.chronicle().read());
    put(folder, "timeline.txt", trouble + &told)?;
    let leaving = match cluster.leaving().await {
        Ok(packets) => format!("{packets} packets tried to leave the bed\n"),
        Err(error) => format!("not known: {error:#}\n"),
    };
    put(folder, "left-the-bed.txt", leaving)?;
    network(cluster, &folder.join("network")).await?;
    let etcds = folder.join("etcd");
    if let Err(error) = etcds::write(cluster, &etcds).await {
        put(&etcds, "not-all.txt", format!("{error:#}\n"))?;
    }
    let bed = cluster.control_plane().directory();
    copy_processes(bed, &folder.join("processes"));
    for node in cluster.nodes() {
        let pods = bed.join(node.name()).join("log/pods");
        copy(&pods, &folder.join("pods").join(node.name()), &[], &|_| true);
    }
    Ok(())
}

/// Writes the report of a scenario that had beds of its own, or none: what it noted, what is on this host since, and
/// the logs of whatever bed there is.
pub async fn without_bed(folder: &Path, failure: &str, chronicle: &Chronicle, before: &Host) -> Result<()> {
    put(folder, "failure.txt", failure)?;
    put(
        folder,
        "timeline.txt",
        timeline::merged(&Value::Null, &chronicle.read()),
    )?;
    let since = match Host::look().await {
        Ok(now) => now.since(before).join("\n") + "\n",
        Err(error) => format!("not known: {error:#}\n"),
    };
    put(folder, "new-on-this-host.txt", since)?;
    for entry in fs::read_dir(bed_dir::parent()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) {
            let into = folder.join("beds").join(&name);
            copy_processes(&entry.path(), &into);
            let told = timeline::merged(&Value::Null, &Chronicle::of(&entry.path()).read());
            put(&into, "timeline.txt", told)?;
        }
    }
    Ok(())
}

/// What is told of the clusters in a namespace, and what happened there last: for those who see nothing of a run but what
/// it printed.
pub async fn in_short(cluster: &Cluster, namespace: &str) -> String {
    let whose = format!("--namespace={namespace}");
    let clusters = kubectl(cluster, &["get", "etcdclusters", &whose, "--output=json"]).await;
    let pods = kubectl(cluster, &["get", "pods", &whose, "--output=wide"]).await;
    let events = kubectl(cluster, &["get", "events", &whose, "--output=json"]).await;
    let happened = serde_json::from_str(&events).map_or(events, |events| timeline::merged(&events, ""));
    let states = match serde_json::from_str::<Value>(&clusters) {
        Ok(list) => list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(state)
            .collect(),
        Err(_) => clusters,
    };
    let skipped = happened.lines().count().saturating_sub(SHORT);
    let happened: Vec<&str> = happened.lines().skip(skipped).collect();
    format!("{states}{pods}{}", happened.join("\n"))
}

/// Conditions and members of an EtcdCluster, a line each.
fn state(cluster: &Value) -> String {
    let status = &cluster["status"];
    let lines = ["conditions", "memberStatus"].into_iter().flat_map(|list| {
        let entries = status[list].as_array().into_iter().flatten();
        entries.map(move |entry| format!("  {list}: {entry}\n"))
    });
    let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
    let plan = &status["plan"];
    format!("{name}: plan {plan}\n{}", lines.collect::<String>())
}

/// Where the report is, or why there is none, as a part of an error.
pub fn place(folder: &Path, written: &Result<()>) -> String {
    match written {
        Ok(()) => format!("report: {}", folder.display()),
        Err(error) => format!("no report: {error:#}"),
    }
}

fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join(name), content).with_context(|| format!("cannot write {name}"))
}

async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    let patience = ["--request-timeout=10s"];
    match cluster
        .control_plane()
        .kubectl(&[arguments, &patience].concat())
        .await
    {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            if !output.status.success() {
                text += &String::from_utf8_lossy(&output.stderr);
            }
            text
        }
        Err(error) => format!("cannot be had: {error:#}\n"),
    }
}

/// What the API server answers to this path.
async fn raw(cluster: &Cluster, path: &str) -> String {
    kubectl(cluster, &["get", "--raw", path]).await
}

/// Addresses, routes and packet rules with their counts, of every namespace, and how full its disks are.
async fn network(cluster: &Cluster, folder: &Path) -> Result<()> {
    let hub = cluster.control_plane().hub()?;
    let nodes = cluster.nodes().iter().filter(|node| node.exists());
    let entries = nodes.map(|node| (node.name(), node.entry()));
    for (name, entry) in entries.chain([("hub", hub)]) {
        let mut told = String::new();
        for (program, arguments) in [
            ("ip", ["-brief", "address"].as_slice()),
            ("ip", &["route"]),
            ("iptables-save", &["--counters"]),
            ("tc", &["-statistics", "qdisc"]),
            ("df", &["--type=xfs"]),
        ] {
            let said = said(entry, program, arguments).await;
            let _ = write!(told, "# {program} {}\n{said}\n", arguments.join(" "));
        }
        put(folder, &format!("{name}.txt"), told)?;
    }
    Ok(())
}

async fn said(entry: Entry, program: &str, arguments: &[&str]) -> String {
    let said = entry.run(program, arguments).await;
    said.unwrap_or_else(|error| format!("{error:#}\n"))
}

/// Copies the logs of a bed's own processes.
fn copy_processes(bed: &Path, to: &Path) {
    let is_log = |name: &str| Path::new(name).extension().is_some_and(|end| end == "log");
    copy(bed, to, NOT_OURS, &is_log);
}

/// Copies files whose names are wanted, from below `from` to the same places below `to`.
fn copy(from: &Path, to: &Path, left_out: &[&str], wanted: &dyn Fn(&str) -> bool) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (source, target) = (entry.path(), to.join(&name));
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !left_out.contains(&name.as_str()) => {
                copy(&source, &target, left_out, wanted);
            }
            Ok(kind) if kind.is_file() && wanted(&name) => {
                let _ = fs::create_dir_all(to).and_then(|()| fs::copy(&source, &target).map(|_| ()));
            }
            _ => {}
        }
    }
}
