//! The control groups of a bed, one tree per hierarchy, named like its directory. Both layouts are served: one
//! hierarchy per controller (v1) and a single one (v2).
//!
//! Containers make further groups below these; all are removed together, and never anything that is not below one
//! named after a bed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::ProcessId;

/// Where hierarchies are mounted by convention.
const MOUNT: &str = "/sys/fs/cgroup";

/// Makes the group `name` in every hierarchy.
pub(crate) fn make(name: &str) -> Result<()> {
    for hierarchy in hierarchies() {
        let mut group = hierarchy.clone();
        for element in Path::new(name) {
            let parent = group.clone();
            group.push(element);
            if !group.exists() {
                fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
            }
            hand_down(&parent, &group)?;
        }
    }
    Ok(())
}

/// Removes the group `name` and all below it wherever it is; says whether nothing is left. Groups with processes
/// stay.
pub(crate) fn remove(name: &str) -> bool {
    let mut gone = true;
    for hierarchy in hierarchies() {
        let group = hierarchy.join(name);
        if group.exists() {
            gone &= remove_tree(&group);
        }
    }
    gone
}

/// The groups of this name that there are.
pub fn existing(name: &str) -> Vec<PathBuf> {
    let mut groups = hierarchies();
    for group in &mut groups {
        group.push(name);
    }
    groups.retain(|group| group.exists());
    groups
}

/// The processes in the groups of this name and in all below them.
pub(crate) fn inhabitants(name: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let mut groups = existing(name);
    while let Some(group) = groups.pop() {
        let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        found.extend(list.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = fs::read_dir(&group).into_iter().flatten().flatten();
        groups.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The processes in the group called `group`, which is somewhere below `name`.
pub(crate) fn processes(name: &str, group: &str) -> Option<Vec<ProcessId>> {
    let list = fs::read_to_string(find(name, group)?.join("cgroup.procs")).ok()?;
    Some(
        list.lines()
            .filter_map(|line| ProcessId::of(line.parse().ok()?))
            .collect(),
    )
}

/// The most memory that the group called `group` has used, which is somewhere below `name`.
pub(crate) fn most_memory(name: &str, group: &str) -> Option<u64> {
    existing(name)
        .iter()
        .filter_map(|top| find_below(top, group))
        .find_map(|path| {
            let files = ["memory.peak", "memory.max_usage_in_bytes"];
            let text = files
                .iter()
                .find_map(|file| fs::read_to_string(path.join(file)).ok())?;
            text.trim().parse().ok()
        })
}

/// The group called `group` somewhere below `name`, in the first hierarchy that has it.
pub(crate) fn find(name: &str, group: &str) -> Option<PathBuf> {
    existing(name).iter().find_map(|top| find_below(top, group))
}

/// The group called `group` somewhere below this one.
pub(crate) fn find_below(top: &Path, group: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(top).ok()?.flatten();
    let mut directories = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    directories.find_map(|path| {
        if path.ends_with(group) {
            Some(path)
        } else {
            find_below(&path, group)
        }
    })
}

/// The hierarchy that has this controller, if controllers have hierarchies of their own here.
pub(crate) fn controller(name: &str) -> Option<PathBuf> {
    let path = Path::new(MOUNT).join(name);
    path.join("cgroup.procs").is_file().then_some(path)
}

/// Every directory that is the root of a hierarchy: those below the mount point, and else that itself.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(MOUNT);
    if root.join("cgroup.controllers").is_file() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").is_file())
        .collect();
    found.sort();
    found
}

/// What a fresh group lacks: processors and memory nodes in v1, controllers for its children in v2.
fn hand_down(parent: &Path, group: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = group.join(file);
        if own.is_file() && fs::read_to_string(&own).is_ok_and(|value| value.trim().is_empty()) {
            let value = fs::read_to_string(parent.join(file)).unwrap_or_default();
            if !value.trim().is_empty() {
                fs::write(&own, value).with_context(|| format!("cannot fill in {}", own.display()))?;
            }
        }
    }
    if let Ok(controllers) = fs::read_to_string(parent.join("cgroup.controllers")) {
        for controller in controllers.split_ascii_whitespace() {
            let control = parent.join("cgroup.subtree_control");
            // A controller that cannot be handed down is missed by kubelet, which says so by its name.
            let _ = fs::write(control, format!("+{controller}"));
        }
    }
    Ok(())
}

fn remove_tree(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}
