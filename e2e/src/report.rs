//! The folder a failed scenario leaves: enough to understand it without the bed, which is gone by then.
//!
//! Writing it never fails a scenario by itself: what cannot be had is said in the place where it would be.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cluster::Cluster;

/// Kinds that are not written out: secrets stay secret, events have a file of their own.
const LEFT_OUT: &[&str] = &["secrets", "events", "events.events.k8s.io", "bindings"];

/// Writes the report of a failed scenario into `folder`.
pub async fn write(cluster: &Cluster, folder: &Path, failure: &str, timeline: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let put = |name: &str, content: String| {
        fs::write(folder.join(name), content).with_context(|| format!("cannot write {name}"))
    };
    put("failure.txt", failure.to_owned())?;
    let kinds = kubectl(cluster, &["api-resources", "--verbs=list", "--output=name"]).await;
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !LEFT_OUT.contains(kind) && !kind.contains(' '))
        .collect();
    let all = kinds.join(",");
    put(
        "objects.yaml",
        kubectl(cluster, &["get", &all, "--all-namespaces", "--output=yaml"]).await,
    )?;
    put(
        "pods.txt",
        kubectl(
            cluster,
            &["get", "pods,nodes", "--all-namespaces", "--output=wide"],
        )
        .await,
    )?;
    let columns = "--output=custom-columns=TIME:.metadata.creationTimestamp,NAMESPACE:.metadata.namespace,\
                   OBJECT:.involvedObject.name,REASON:.reason,MESSAGE:.message";
    let events = kubectl(
        cluster,
        &["get", "events", "--all-namespaces", "--no-headers", columns],
    )
    .await;
    put("timeline.txt", merged(&events, timeline))?;
    put(
        "left-the-bed.txt",
        match cluster.leaving().await {
            Ok(packets) => format!("{packets} packets tried to leave the bed\n"),
            Err(error) => format!("not known: {error:#}\n"),
        },
    )?;
    let bed = cluster.control_plane().directory();
    copy_logs(bed, &folder.join("processes"), &|name| {
        Path::new(name).extension().is_some_and(|end| end == "log")
    });
    for node in cluster.nodes() {
        let pods = bed.join(node.name()).join("log/pods");
        copy_logs(&pods, &folder.join("pods").join(node.name()), &|_| true);
    }
    Ok(())
}

/// Where the report is, or why there is none, as a part of an error.
pub fn place(folder: &Path, written: &Result<()>) -> String {
    match written {
        Ok(()) => format!("report: {}", folder.display()),
        Err(error) => format!("no report: {error:#}"),
    }
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

/// Events of the cluster and notes of the scenario, by time. Both begin with a time of the same form.
fn merged(events: &str, notes: &str) -> String {
    let mut lines: Vec<&str> = events.lines().chain(notes.lines()).collect();
    lines.sort_by_key(|line| line.split_ascii_whitespace().next().unwrap_or_default());
    lines.join("\n") + "\n"
}

/// Copies files whose names are wanted, from below `from` to the same places below `to`.
fn copy_logs(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (source, target) = (entry.path(), to.join(&name));
        match entry.file_type() {
            // A node's own directories hold other people's logs by the thousand; only its pods' are wanted.
            Ok(kind)
                if kind.is_dir() && !["lib", "run", "log", "volumes", "etcd"].contains(&name.as_str()) =>
            {
                copy_logs(&source, &target, wanted);
            }
            Ok(kind) if kind.is_file() && wanted(&name) => {
                let _ = fs::create_dir_all(to).and_then(|()| fs::copy(&source, &target).map(|_| ()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeline_has_events_and_notes_in_the_order_in_which_they_happened() {
        let events =
            "2026-01-01T00:00:02Z default pod Killing x\n2026-01-01T00:00:00Z default pod Started x\n";
        let notes = "2026-01-01T00:00:01Z the scenario killed the pod\n";
        let order: Vec<String> = merged(events, notes)
            .lines()
            .map(|line| line.split(' ').next_back().unwrap().to_owned())
            .collect();
        assert_eq!(order, ["x", "pod", "x"]);
    }
}
