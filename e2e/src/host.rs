//! What a bed could leave on this host, as a value that can be taken before and after and compared.
//!
//! Only what the kernel shows is looked at, never what the bed believes to have removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::bed_dir::{self, Live, PREFIX, parent};
use crate::cluster::KERNEL;
use crate::command;

/// Everything of this kind there is now; each entry says what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host(BTreeSet<String>);

impl Host {
    /// Looks at processes with namespaces of their own, mounts, loop devices, interfaces, routes, packet rules,
    /// control groups, directories of beds, settings of the kernel.
    pub async fn look() -> Result<Self> {
        let live = bed_dir::live()?;
        let mut found = BTreeSet::new();
        processes(&live, &mut found);
        mounts(&mut found)?;
        loop_devices(&mut found);
        names("interface", Path::new("/sys/class/net"), "", &mut found);
        names("directory", &parent(), PREFIX, &mut found);
        groups(Path::new("/sys/fs/cgroup"), &mut found);
        settings(&mut found);
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

    /// What is there now, was not before, and belongs to no bed that somebody still owns: what has been left.
    pub async fn left_since(before: &Self) -> Result<Vec<String>> {
        // Beds may begin and end meanwhile: one that is there at either end is somebody's.
        let mut live = bed_dir::live()?;
        let now = Self::look().await?;
        live.extend(bed_dir::live()?);
        let mut left = now.since(before);
        left.retain(|what| {
            !live.iter().any(|bed| is_of(what, bed)) && bed_dir::owned_in(what).next().is_none()
        });
        Ok(left)
    }
}

/// Whether an entry names this bed, or its interface.
fn is_of(what: &str, bed: &Live) -> bool {
    let is_cable = |word: &str| bed.cable.as_deref() == Some(word);
    what.contains(&bed.name) || what.split([' ', '@']).any(is_cable)
}

/// Those in other namespaces than this process, and those that run from a bed's directory; each with the bed it
/// belongs to, as far as that can be told.
fn processes(live: &[Live], found: &mut BTreeSet<String>) {
    let namespace = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    let kinds = ["net", "mnt", "pid"];
    let own = kinds.map(|kind| namespace("self", kind));
    // What nodes and the control plane run is in namespaces with a process that the bed has recorded.
    let homes: Vec<(&str, PathBuf)> = live
        .iter()
        .flat_map(|bed| {
            let pids = bed.processes.iter().map(|process| process.pid().to_string());
            let of = |pid: String| kinds.iter().filter_map(move |kind| namespace(&pid, kind));
            pids.flat_map(of).map(|home| (bed.name.as_str(), home))
        })
        .filter(|(_, home)| !own.contains(&Some(home.clone())))
        .collect();
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
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let directory = directory.to_string_lossy().into_owned();
        if elsewhere || directory.contains(PREFIX) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let groups = read("cgroup") + &directory;
            let bed = live
                .iter()
                .map(|bed| bed.name.as_str())
                .find(|bed| groups.contains(bed))
                // One whose directory is elsewhere names itself.
                .or_else(|| bed_dir::owned_in(&groups).next())
                .or_else(|| {
                    let here = |place: &PathBuf| theirs.contains(&Some(place.clone()));
                    homes.iter().find(|(_, place)| here(place)).map(|(bed, _)| *bed)
                });
            let of = bed.map_or(String::new(), |bed| format!(" of {bed}"));
            found.insert(format!("process {pid} {}{of}", name.trim()));
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

/// Those that kubelets set on machines of their own.
fn settings(found: &mut BTreeSet<String>) {
    for (setting, _) in KERNEL {
        if let Ok(value) = fs::read_to_string(Path::new("/proc/sys").join(setting)) {
            found.insert(format!("setting {setting} {}", value.trim()));
        }
    }
}

/// Those at the top of each hierarchy, and all in one of a bed. What a manager of this host makes in a group of its own
/// meanwhile, such as one for each session, is no bed's.
fn groups(mount: &Path, found: &mut BTreeSet<String>) {
    if mount.join("cgroup.controllers").is_file() {
        return groups_in(mount, found);
    }
    for hierarchy in directories(mount) {
        groups_in(&hierarchy, found);
    }
}

fn groups_in(directory: &Path, found: &mut BTreeSet<String>) {
    for group in directories(directory) {
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PREFIX) {
            all_groups_in(&group, found);
        }
        found.insert(format!("control group {}", group.display()));
    }
}

fn all_groups_in(directory: &Path, found: &mut BTreeSet<String>) {
    for group in directories(directory) {
        all_groups_in(&group, found);
        found.insert(format!("control group {}", group.display()));
    }
}

fn directories(place: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed_dir::BedDir;

    #[test]
    fn what_a_bed_that_is_owned_has_is_not_left_and_what_merely_looks_like_it_is() {
        let bed = Live {
            name: "etcd-operator-bed-0a1b2c3d-1-2-0".to_owned(),
            cable: Some("eobed1".to_owned()),
            processes: Vec::new(),
        };
        for of in [
            "directory etcd-operator-bed-0a1b2c3d-1-2-0",
            "process 7 kubelet of etcd-operator-bed-0a1b2c3d-1-2-0",
            "interface eobed1",
            "route 198.18.1.0/30 dev eobed1 proto kernel",
        ] {
            assert!(is_of(of, &bed), "{of}");
        }
        for other in [
            "directory etcd-operator-bed-0a1b2c3d-1-3-0",
            "interface eobed10",
            "process 7 kubelet",
        ] {
            assert!(!is_of(other, &bed), "{other}");
        }
    }

    #[test]
    fn groups_of_a_bed_are_seen_to_the_bottom_and_those_of_others_at_the_top() {
        for (layout, at) in [("one", ""), ("many", "memory/")] {
            let place = BedDir::create().unwrap();
            let mount = place.path().join(layout);
            fs::create_dir(&mount).unwrap();
            if layout == "one" {
                fs::write(mount.join("cgroup.controllers"), "memory").unwrap();
            }
            let bed = format!("{PREFIX}0a1b2c3d-1-2-0");
            for group in ["sessions/one", &format!("{bed}/node-0/kubepods"), "kubepods"] {
                fs::create_dir_all(mount.join(format!("{at}{group}"))).unwrap();
            }
            let mut found = BTreeSet::new();
            groups(&mount, &mut found);
            let wanted = [
                bed.clone(),
                format!("{bed}/node-0"),
                format!("{bed}/node-0/kubepods"),
                "kubepods".to_owned(),
                "sessions".to_owned(),
            ];
            let wanted = wanted.map(|group| {
                let place = mount.join(format!("{at}{group}"));
                format!("control group {}", place.display())
            });
            assert_eq!(found, BTreeSet::from(wanted), "{layout}");
        }
    }
}
