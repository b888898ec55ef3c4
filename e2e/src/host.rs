//! What a bed could leave on this host, as a value that can be taken before and after and compared.
//!
//! Only what the kernel shows is looked at, never what the bed believes to have removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tokio::process::Command;

use crate::bed_dir::PREFIX;
use crate::command;

/// Everything of this kind there is now; each entry says what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(BTreeSet<String>);

impl Host {
    /// Looks at processes with namespaces of their own, mounts, loop devices, interfaces, routes, packet rules,
    /// control groups, directories of beds.
    pub async fn look() -> Result<Self> {
        let mut found = BTreeSet::new();
        processes(&mut found);
        mounts(&mut found)?;
        loop_devices(&mut found);
        names("interface", Path::new("/sys/class/net"), "", &mut found);
        names("directory", &std::env::temp_dir(), PREFIX, &mut found);
        groups(Path::new("/sys/fs/cgroup"), &mut found);
        for (what, program, arguments) in [
            ("route", "ip", ["route", "show", "table", "all"].as_slice()),
            ("rule", "iptables-save", &[]),
        ] {
            let mut list = Command::new(program);
            list.args(arguments);
            let lines = command::succeed(list, "").await?;
            found.extend(
                lines
                    .lines()
                    .filter(|line| !line.starts_with(['#', ':']))
                    .map(|line| format!("{what} {line}")),
            );
        }
        Ok(Self(found))
    }

    /// What is there now and was not before.
    pub fn since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// Those in other namespaces than this process, and those that run from a bed's directory.
fn processes(found: &mut BTreeSet<String>) {
    let namespace = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    let kinds = ["net", "mnt", "pid"];
    let own = kinds.map(|kind| namespace("self", kind));
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let theirs = kinds.map(|kind| namespace(&pid, kind));
        let elsewhere = theirs
            .iter()
            .zip(&own)
            .any(|(one, other)| one.is_some() && one != other);
        let in_bed = fs::read_link(format!("/proc/{pid}/cwd"))
            .is_ok_and(|directory| directory.to_string_lossy().contains(PREFIX));
        if elsewhere || in_bed {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            found.insert(format!("process {pid} {}", name.trim()));
        }
    }
}

fn mounts(found: &mut BTreeSet<String>) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
    found.extend(
        mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .map(|place| format!("mount {place}")),
    );
    Ok(())
}

fn loop_devices(found: &mut BTreeSet<String>) {
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        if let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) {
            found.insert(format!("loop device of {}", file.trim()));
        }
    }
}

fn names(what: &str, directory: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) {
            found.insert(format!("{what} {name}"));
        }
    }
}

fn groups(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(format!("control group {}", entry.path().display()));
            groups(&entry.path(), found);
        }
    }
}
